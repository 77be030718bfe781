"""The expected shape of replies, by command. Any other reply raises InvalidReply.

Errors name the command and the problem, and repeat no text from the server. The address may lead to
another service, whose answers must not become visible in the status of a resource.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from redis.exceptions import NoScriptError

from pelops.errors import InvalidReply
from pelops.redis_core.commands import Part

Check: TypeAlias = Callable[[Any], Any]  # raises BadShape
_Parts: TypeAlias = Sequence[Part]

LARGEST: Final = 2**63 - 1
LATEST_MS: Final = 32_503_680_000_000  # the year 3000: sums with it are still valid dates
_LARGEST_PART: Final = 2**64 - 1
_ID: Final = re.compile(rb"\d{1,20}-\d{1,20}")
_IDS: Final = re.compile(rb"(?:[0-9]{1,19}+-[0-9]{1,19}+,)*+")
_DIGITS: Final = re.compile(rb"\d{1,19}")
# Exceptions that code raises when it reads a malformed reply.
_MISREAD: Final = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


class BadShape(ValueError):
    """A reply is malformed; the message contains no text from the server."""


def invalid(command: str, what: str) -> InvalidReply:
    """The error for a reply to this command."""
    return InvalidReply(f"Redis returned an invalid reply to {command}: {what}")


@contextmanager
def reading(command: str) -> Iterator[None]:
    """Turns exceptions from reading a malformed reply to `command` into InvalidReply.

    Use it for a block, or as the decorator of a function that only reads replies.
    """
    try:
        yield
    except _MISREAD as error:
        raise _misread(command, error) from None


def _misread(command: str, error: Exception) -> InvalidReply:
    """InvalidReply without the error's message and cause, which may quote the server."""
    is_ours = isinstance(error, BadShape)
    return invalid(
        command, str(error) if is_ours else "a part of it has another type or value than expected"
    )


def text(part: Any) -> bytes:
    """Bytes."""
    if type(part) is not bytes:
        raise BadShape("a text is missing")
    return part


def number(part: Any) -> int:
    """A non-negative number."""
    if type(part) is not int or not 0 <= part <= LARGEST:
        raise BadShape("a number is missing, or out of range")
    return part


def signed(part: Any) -> int:
    """A number that may be negative."""
    if type(part) is not int or abs(part) > LARGEST:
        raise BadShape("a number is missing, or out of range")
    return part


def delivery_count(part: Any) -> int:
    """A signed 64-bit number; it is negative when a delivery count has overflowed."""
    if type(part) is not int or not -LARGEST - 1 <= part <= LARGEST:
        raise BadShape("a number is missing, or out of range")
    return part


def milliseconds(part: Any) -> int:
    """A time or a duration in milliseconds; -1 means never."""
    if type(part) is not int or not -1 <= part <= LATEST_MS:
        raise BadShape("a time is missing, or out of range")
    return part


def digits(part: Any) -> None:
    """A number as decimal digits."""
    if type(part) is not bytes or not _DIGITS.fullmatch(part):
        raise BadShape("the digits of a number are missing")


def entry_id(part: Any) -> bytes:
    """The ID of an entry."""
    if type(part) is not bytes or not _ID.fullmatch(part):
        raise BadShape("an entry ID is missing")
    if len(part) >= 20 and any(int(half) > _LARGEST_PART for half in part.split(b"-")):
        raise BadShape("an entry ID is out of range")
    return part


def optional(check: Check) -> Check:
    """Null, or what the check accepts."""

    def checked(part: Any) -> None:
        if part is not None:
            check(part)

    return checked


def list_of(check: Check) -> Check:
    """A list whose elements all pass the check."""

    def checked(part: Any) -> None:
        for one in parts_of(part):
            check(one)

    return checked


def row_of(*checks: Check) -> Check:
    """A list with one element for each check."""

    def checked(part: Any) -> None:
        if len(parts_of(part)) != len(checks):
            raise BadShape("a list has an unexpected number of elements")
        for check, one in zip(checks, part, strict=True):
            check(one)

    return checked


def map_of(needed: Mapping[bytes, Check], known: Mapping[bytes, Check] | None = None) -> Check:
    """Alternating names and values: `needed` must exist; `known` are checked if they exist."""
    checks = {**(known or {}), **needed}

    def checked(part: Any) -> None:
        names = parts_of(part)[::2]
        if len(part) % 2 or set(map(type, names)) - {bytes} or not all(map(bytes.isascii, names)):
            raise BadShape("names and values do not alternate")
        found = dict(zip(names, part[1::2], strict=True))
        if not found.keys() >= needed.keys():
            raise BadShape("a value is missing")
        for name in checks.keys() & found.keys():
            checks[name](found[name])

    return checked


def parts_of(part: Any) -> list[Any]:
    """The parts of a list."""
    if type(part) is not list:
        raise BadShape("a list is missing")
    return part


def server_time(part: Any) -> list[bytes]:
    """A reply to TIME: seconds and microseconds."""
    row_of(digits, digits)(part)
    if int(part[0]) > LATEST_MS // 1000 or int(part[1]) >= 1_000_000:
        raise BadShape("a time is out of range")
    return part  # type: ignore[no-any-return]


def entries(
    part: Any, *, most: int | None = None, widths: frozenset[int] = frozenset({2})
) -> list[Any]:
    """Entries as XRANGE returns them: an ID, and a flat list of names and values, or null.

    With a width of 4 they also have an idle time and a delivery count.
    """
    # A whole page at once, by functions implemented in C: pages are the bulk of all replies.
    page = parts_of(part)
    if not page:
        return page
    if most is not None and len(page) > most:
        raise BadShape("there are more entries than requested")
    if set(map(type, page)) != {list} or len(page[0]) not in widths:
        raise BadShape("an entry has an unexpected number of elements")
    ids, bodies, *others = zip(*page, strict=True)
    _check_ids(ids)
    _check_bodies(bodies)
    for column in others:
        if set(map(type, column)) != {int} or min(column) < -LARGEST - 1 or max(column) > LARGEST:
            raise BadShape("a number is missing, or out of range")
    return page


def _check_ids(ids: Sequence[Any]) -> None:
    try:
        joined = b",".join((*ids, b""))
    except TypeError:
        raise BadShape("an entry ID is missing") from None
    if not _IDS.fullmatch(joined) or joined.count(b",") != len(ids):
        for one in ids:
            entry_id(one)


def _check_bodies(bodies: Sequence[Any]) -> None:
    if set(map(type, bodies)) != {list}:
        bodies = [body for body in bodies if body is not None]
        if set(map(type, bodies)) - {list}:
            raise BadShape("the fields of an entry are missing")
    if any(size % 2 for size in set(map(len, bodies))):
        raise BadShape("a field of an entry has no value")
    parts: list[Any] = []
    for body in bodies:
        parts += body
    try:
        # The fastest type check of all parts that copies none: it raises TypeError for other types.
        b"".startswith(tuple(parts), 1)
    except TypeError:
        raise BadShape("a field of an entry is not a string") from None


_IDLE: Final = {b"idle": milliseconds}
_GROUP: Final = map_of(
    {b"name": text, b"consumers": number, b"pending": number, b"last-delivered-id": entry_id},
    # After XGROUP SETID with ENTRIESREAD above entries-added, Redis 7.0 reports the lag -1.
    {b"entries-read": optional(number), b"lag": optional(signed)},
)
_CONSUMER: Final = map_of(
    {b"name": text, b"pending": number, b"idle": milliseconds}, {b"inactive": milliseconds}
)
_ONE: Final = optional(lambda entry: entries([entry]))
_STREAM: Final = map_of(
    {
        b"length": number,
        b"last-generated-id": entry_id,
        b"groups": number,
        b"first-entry": _ONE,
        b"last-entry": _ONE,
    },
    {b"entries-added": number, b"max-deleted-entry-id": entry_id},
)
_PENDING: Final = list_of(row_of(entry_id, text, milliseconds, delivery_count))
_PENDING_SUMMARY: Final = row_of(
    number, optional(entry_id), optional(entry_id), optional(list_of(row_of(text, digits)))
)


def _state_or_number(part: Any) -> None:
    if type(part) is not bytes:
        number(part)


def _acknowledged(part: Any) -> None:
    if type(part) is list:
        list_of(signed)(part)
    else:
        number(part)


_SHAPES: Final[Mapping[str, Check]] = {
    **dict.fromkeys(
        ("HSET", "HDEL", "HLEN", "XACK", "XLEN", "XDEL", "XTRIM", "EXISTS", "UNLINK"), number
    ),
    **dict.fromkeys(("CLIENT ID", "CLIENT UNBLOCK"), number),
    **dict.fromkeys(("PTTL", "HINCRBY"), signed),
    **dict.fromkeys(("HGET", "GET"), optional(text)),
    **dict.fromkeys(("INFO", "TYPE", "PING", "ASKING", "READONLY"), text),
    "TIME": server_time,
    "XADD": entry_id,
    "XACKDEL": _acknowledged,
    "XINFO STREAM": _STREAM,
    "XINFO GROUPS": list_of(_GROUP),
    "XINFO CONSUMERS": list_of(_CONSUMER),
    "XGROUP CREATE": _state_or_number,
    "XGROUP SETID": _state_or_number,
    **dict.fromkeys(("SCAN", "HSCAN"), row_of(digits, list_of(text))),
    "CONFIG GET": list_of(text),
}
_SUBCOMMANDS: Final = frozenset({"XINFO", "XGROUP", "CLIENT", "CONFIG", "CLUSTER", "SENTINEL"})
_SCRIPTS: Final = frozenset({"EVAL", "EVALSHA"})
_READ_WIDTHS: Final = frozenset({2, 4})


def name_of(parts: _Parts) -> str:
    """The name of a command with its subcommand, for messages."""
    first = str(parts[0]).upper()
    return f"{first} {str(parts[1]).upper()}" if first in _SUBCOMMANDS else first


def check_reply(parts: _Parts, reply: Any) -> None:
    """Raise InvalidReply for a reply of another shape than this command returns.

    Error replies are not checked, except NOSCRIPT for a command that is not a script. Replies of
    scripts are checked by who reads them.
    """
    name = name_of(parts)
    if isinstance(reply, Exception):
        if isinstance(reply, NoScriptError) and name not in _SCRIPTS:
            raise invalid(name, "NOSCRIPT for a command that is not a script")
        return
    try:
        if name in _SHAPES:
            _SHAPES[name](reply)
        elif name in _ASKED_SHAPES:
            _ASKED_SHAPES[name](parts, reply)
    except _MISREAD as error:  # not `reading`, which costs as much as the check of a number
        raise _misread(name, error) from None


def _check_page(parts: _Parts, reply: Any) -> None:
    entries(reply, most=_most_requested(parts))


def _check_values(parts: _Parts, reply: Any) -> None:
    list_of(optional(text))(reply)
    if len(reply) != len(parts) - 2:
        raise BadShape("there are not as many values as requested")


def _check_pending(parts: _Parts, reply: Any) -> None:
    if len(parts) == 3:
        _PENDING_SUMMARY(reply)
        return
    _PENDING(reply)
    if len(reply) > int(parts[7 if parts[3] == "IDLE" else 5]):
        raise BadShape("there are more entries than requested")


def _most_requested(parts: _Parts) -> int:
    """The largest number of entries that a read may return."""
    if len(parts) > 5:
        return int(parts[5])
    return 1 if parts[2] == parts[3] else int(LARGEST)


def _check_streams(parts: _Parts, reply: Any) -> None:
    if reply is None:
        return
    options = 4 if parts[0] == "XREADGROUP" else 1  # after the names of group and consumer
    keys = parts.index("STREAMS", options) + 1
    is_counted = "COUNT" in parts[options:keys]
    most = int(parts[parts.index("COUNT", options) + 1]) if is_counted else None
    named = parts[keys:]
    asked = named[: len(named) // 2]
    if len(parts_of(reply)) > len(asked):
        raise BadShape("there are more streams than requested")
    for pair in reply:
        if len(parts_of(pair)) != 2 or type(pair[0]) is not bytes:
            raise BadShape("a stream is missing")
        if pair[0] not in asked and pair[0].decode() not in asked:
            raise BadShape("there is a stream that was not requested")
        entries(pair[1], most=most, widths=_READ_WIDTHS)


# Commands whose shape depends on their arguments.
_ASKED_SHAPES: Final[Mapping[str, Callable[[_Parts, Any], None]]] = {
    **dict.fromkeys(("XREAD", "XREADGROUP"), _check_streams),
    **dict.fromkeys(("XRANGE", "XREVRANGE"), _check_page),
    "HMGET": _check_values,
    "XPENDING": _check_pending,
}
