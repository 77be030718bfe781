"""Every key that Pelops derives from a stream and a consumer group.

    stream            orders:events            {shop}:orders                  a}b
    its own hash tag  none                     shop                           none
    tag               orders:events            shop                           decimal of its slot
    prefix            {orders:events}:<group>  {shop}:{shop}%3Aorders:<group>  {4297}:a}b:<group>

All keys of one group are in the stream's hash slot, and no two groups share a key. The tag holds no
`}`, and the parts after it hold no `:`, so stream and group can be parsed from a key.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import count
from typing import Final

from pelops.errors import DeadLetterInAnotherSlot, InvalidSpec

SLOTS: Final = 16384
_OWNERSHIP: Final = "ownership"


class DerivedKey(StrEnum):
    """What a derived key holds: the last part of its name."""

    DEAD_LETTER = "dlq"  # stream of dead letters
    LEDGER = "ledger"  # stream of the operator's actions
    STATE = "state"  # hash: ownership record, scan cursor; workers do not write it
    STARTED = "started"  # hash: entries whose handler has started, by consumer
    WORKER_STATE = "worker-state"  # hash: what workers report of themselves, such as boot times
    WORKER_LEDGER = "worker-ledger"  # stream of actions that workers report
    RETRY = "retry"  # stream of copies for this group alone
    OFFERS = "handover"  # stream of entries that workers may claim
    AUDIT = "audit"  # hash: what audits recorded about the group
    DISCARDED = "discarded"  # stream of dead letters that a redrive discarded


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKeys:
    """A consumer group's names in Redis.

    All are in one slot, except a dead-letter stream that the user named: see `check_slots`.
    """

    stream: str
    group: str
    tag: str
    slot: int
    prefix: str  # of every derived key, without the `:` after it
    dead_letter: str  # the default, or the stream that the user named
    dead_letter_owner: str  # hash: the group that created or adopted that stream
    ledger: str
    state: str
    started: str
    worker_state: str
    worker_ledger: str
    retry: str
    offer_stream: str
    audit: str
    discarded: str

    @property
    def hashes(self) -> tuple[str, ...]:
        """The keys of hashes; all others are streams."""
        of_group = (self.state, self.started, self.worker_state, self.audit)
        return (*of_group, self.dead_letter_owner)

    def by_name(self) -> dict[str, str]:
        """Every key by the name that scripts use for it."""
        return {
            "stream": self.stream,
            "dead_letter": self.dead_letter,
            "dead_letter_owner": self.dead_letter_owner,
            "ledger": self.ledger,
            "state": self.state,
            "started": self.started,
            "worker_state": self.worker_state,
            "worker_ledger": self.worker_ledger,
            "retry": self.retry,
            "offer_stream": self.offer_stream,
            "audit": self.audit,
            "discarded": self.discarded,
        }

    def derived(self) -> Iterator[str]:
        """Every key except the stream and `dead_letter_owner`, the dead-letter stream first."""
        yield from (self.dead_letter, self.ledger, self.state)
        yield from (self.started, self.worker_state, self.worker_ledger)
        yield from (self.retry, self.offer_stream, self.audit, self.discarded)


def derive_keys(stream: str, group: str, *, dead_letter: str | None = None) -> GroupKeys:
    """All names of one consumer group; `dead_letter` is the dead-letter stream that the user chose.

    Raises InvalidSpec when a name is empty or not valid UTF-8. Also when `dead_letter` is the
    stream itself, or a key that Pelops derives for another purpose or group.
    """
    _require_text("stream", stream)
    _require_text("group", group)
    tag, prefix = hash_tag(stream), key_prefix(stream, group)
    named = {what: f"{prefix}:{what}" for what in DerivedKey}
    letters = dead_letter or named[DerivedKey.DEAD_LETTER]
    _require_text("dead-letter stream", letters)
    keys = GroupKeys(
        stream=stream,
        group=group,
        tag=tag,
        slot=key_slot(stream),
        prefix=prefix,
        dead_letter=letters,
        dead_letter_owner=ownership_key(letters),
        ledger=named[DerivedKey.LEDGER],
        state=named[DerivedKey.STATE],
        started=named[DerivedKey.STARTED],
        worker_state=named[DerivedKey.WORKER_STATE],
        worker_ledger=named[DerivedKey.WORKER_LEDGER],
        retry=named[DerivedKey.RETRY],
        offer_stream=named[DerivedKey.OFFERS],
        audit=named[DerivedKey.AUDIT],
        discarded=named[DerivedKey.DISCARDED],
    )
    _check_dead_letter(keys)
    return keys


def check_slots(keys: GroupKeys) -> None:
    """Refuse a dead-letter stream in another hash slot than the stream. Only for Redis Cluster.

    Raises DeadLetterInAnotherSlot.
    """
    if key_slot(keys.dead_letter) != keys.slot:
        raise DeadLetterInAnotherSlot(
            f"the dead-letter stream {keys.dead_letter} is not in the hash slot of the stream "
            f"{keys.stream}: on a Redis Cluster an entry cannot be moved between slots in one "
            f"step. Use a key with the same hash tag, such as {{{keys.tag}}}:dead-letters, or "
            "remove spec.deadLetter.stream"
        )


def key_prefix(stream: str, group: str) -> str:
    """The prefix of every derived key of this group, without the `:` after it."""
    tag = hash_tag(stream)
    middle = "" if stream == tag else f":{_escape(stream)}"
    return f"{{{tag}}}{middle}:{_escape(group)}"


def ownership_key(dead_letter: str) -> str:
    """The key, in a dead-letter stream's slot, that records which group the stream belongs to."""
    if own_hash_tag(dead_letter) is not None:
        return f"{dead_letter}:{_OWNERSHIP}"
    tag = hash_tag(dead_letter)
    return f"{{{tag}}}{'' if tag == dead_letter else f':{dead_letter}'}:{_OWNERSHIP}"


def audit_index_key(name: str) -> str:
    """The key in which an audit of a stream pattern lists the groups that it found."""
    return f"pelops:audit:{name}"


def parse_derived_key(key: str) -> tuple[str, str, DerivedKey] | None:
    """The stream, the group and the meaning of a derived key; None for any other key.

    The inverse of `derive_keys` for default names. Applied to a stream that a user chose, it shows
    which derived key that stream would collide with.
    """
    tag, closed, rest = key.removeprefix("{").partition("}")
    parts = rest.split(":")
    if not (key.startswith("{") and closed and len(parts) in {3, 4} and parts[0] == ""):
        return None
    stream = _unescape(parts[1]) if len(parts) == 4 else tag
    group, what = _unescape(parts[-2]), parts[-1]
    if not stream or not group or what not in set(DerivedKey):
        return None
    is_ours = f"{key_prefix(stream, group)}:{what}" == key
    return (stream, group, DerivedKey(what)) if is_ours else None


def key_slot(key: str) -> int:
    """The hash slot of a key, as CLUSTER KEYSLOT returns it."""
    tag = own_hash_tag(key)
    return crc_hqx((tag or key).encode(), 0) % SLOTS


def own_hash_tag(key: str) -> str | None:
    """The text between the first `{` and the first `}` after it; None when there is none."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else None


def hash_tag(stream: str) -> str:
    """A text that, in braces, puts a key into the stream's slot."""
    tag = own_hash_tag(stream)
    if tag is not None:
        return tag
    return stream if "}" not in stream else _smallest_decimal_in(key_slot(stream))


def escape_glob(text: str) -> str:
    """A Redis glob pattern that matches `text` and as little else as possible.

    An ACL pattern must not contain white space or NUL: each such character becomes `?`.
    """
    return "".join(_escape_glob_character(character) for character in text)


def _escape_glob_character(character: str) -> str:
    if character in "\t\n\v\f\r \0":
        return "?"
    return f"\\{character}" if character in "*?[]\\" else character


def _require_text(what: str, name: str) -> None:
    if not name:
        raise InvalidSpec(f"the name of the {what} is empty: set it")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidSpec(f"the name of the {what} is not valid UTF-8: {name!r}") from error


def _check_dead_letter(keys: GroupKeys) -> None:
    derived = parse_derived_key(keys.dead_letter)
    own = (keys.stream, keys.group, DerivedKey.DEAD_LETTER)
    if keys.dead_letter == keys.stream or (derived and derived != own):
        raise InvalidSpec(
            f"spec.deadLetter.stream must not be {keys.dead_letter}, which is the stream itself "
            "or a key that Pelops uses for a group: choose another key"
        )


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _unescape(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")


@cache
def _smallest_decimal_in(slot: int) -> str:
    return next(text for text in map(str, count()) if key_slot(text) == slot)
