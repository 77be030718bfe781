"""The keys of locks that users' workers hold per entry: rendered, checked and parsed.

In a template `$stream` is the stream's name, `$tag` its hash tag, `$id` the entry's ID and `$$` a
dollar sign. It holds `$id` at least once. A lock under a wrong key would seem free, so a template
that breaks these rules is refused here, in addition to the validation rules of the resource.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from pelops.domain.entry_id import EntryId, parse_entry_id, render_entry_id
from pelops.domain.naming import GroupKeys, key_slot, own_hash_tag
from pelops.errors import InvalidSpec

MatchLock: TypeAlias = Callable[[str], EntryId | None]

_VARIABLE: Final = re.compile(r"\$(\$|stream|tag|id)")
_NUMBER: Final = "(?:0|[1-9][0-9]{0,19})"
_FIRST_ID: Final = f"(?P<id>{_NUMBER}-{_NUMBER})"
_SAME_ID: Final = "(?P=id)"


def lock_key(template: str, keys: GroupKeys, entry_id: EntryId) -> str:
    """The key of one entry's lock. Raises InvalidSpec for a template that breaks the rules."""
    return render_entry_id(entry_id).join(_pieces(template, keys.stream, keys.tag))


def lock_slot_problem(template: str, keys: GroupKeys) -> str | None:
    """Why scripts on a cluster cannot check these locks; None when they can.

    A script may only read keys in the stream's slot. An ID holds no brace, so the hash tag is at
    the same place for all entries: comparing two IDs shows whether the tag depends on the ID.
    """
    one, other = (lock_key(template, keys, EntryId(0, seq)) for seq in (0, 1))
    tag = own_hash_tag(one)
    if tag is None or tag != own_hash_tag(other):
        return (
            f"the hash slot of a lock with the key {template} depends on the entry: "
            f"put the hash tag before $id, as in lock:{{$tag}}:$id"
        )
    if key_slot(one) != keys.slot:
        return (
            f"the locks with the key {template} are not in the hash slot of the stream "
            f"{keys.stream}: "
            "use its hash tag, as in lock:{$tag}:$id"
        )
    return None


def match_lock(template: str, keys: GroupKeys) -> MatchLock:
    """A function from a key to its entry ID: the inverse of `lock_key`, None for any other key."""
    first, second, *others = map(re.escape, _pieces(template, keys.stream, keys.tag))
    pattern = re.compile(_SAME_ID.join([f"{first}{_FIRST_ID}{second}", *others]))

    def match(key: str) -> EntryId | None:
        found = pattern.fullmatch(key)
        return _read_id(found["id"]) if found else None

    return match


@lru_cache(maxsize=1024)
def _pieces(template: str, stream: str, tag: str) -> tuple[str, ...]:
    """The parts of the key before, between and after the IDs."""
    literals = _VARIABLE.split(template)  # text, variable, text, variable, ..., text
    values = {"$": "$", "stream": stream, "tag": tag}
    pieces = [""]
    for index, part in enumerate(literals):
        if index % 2 == 0:
            pieces[-1] += _require_plain(part, template)
        elif part == "id":
            pieces.append("")
        else:
            pieces[-1] += values[part]
    if len(pieces) == 1:
        raise InvalidSpec(
            f"the lock template {template} does not contain $id: each entry needs a lock of its own"
        )
    return tuple(pieces)


def _require_plain(text: str, template: str) -> str:
    if "$" in text:
        raise InvalidSpec(
            f"the lock template {template} may only contain $stream, $tag and $id: write any "
            "other $ as $$"
        )
    return text


def _read_id(text: str) -> EntryId | None:
    try:
        return parse_entry_id(text)
    except InvalidSpec:
        return None  # more than 64 bits: no entry has this ID
