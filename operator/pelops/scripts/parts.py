"""The types of parts of scripts' answers: each is `Annotated` with the function that reads it.

The functions check the part, and convert it. They raise an exception that `reading` knows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, TypeAlias

from pelops.clock import MILLISECOND, from_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.redis_core.replies.shapes import (
    LATEST_MS,
    BadShape,
    digits,
    entry_id,
    milliseconds,
    number,
    server_time,
    signed,
    text,
)


def read_text(part: Any) -> str:
    """Text; bytes that are not UTF-8 are replaced."""
    return str(text(part), "utf-8", "replace")


def _read_name(part: Any) -> str:
    return str(text(part), "utf-8", "surrogateescape")


def _read_id(part: Any) -> EntryId:
    return parse_entry_id(entry_id(part))


def _read_number(part: Any) -> int:
    digits(part)
    return int(part)


def read_moment(part: int | bytes) -> datetime:
    """A time on the server's clock, from milliseconds; raises BadShape when it is out of range."""
    if not 0 <= int(part) <= LATEST_MS:
        raise BadShape("a time is out of range")
    return from_ms(int(part))


def _read_moment_if_any(part: Any) -> datetime | None:
    if not part or not text(part).isdigit() or int(part) == 0:
        return None
    return from_ms(min(int(part), LATEST_MS))


def _read_span(part: Any) -> timedelta:
    return int(milliseconds(part)) * MILLISECOND


Raw: TypeAlias = Annotated[bytes, text]
RawId: TypeAlias = Annotated[bytes, entry_id]
Text: TypeAlias = Annotated[str, read_text]
Name: TypeAlias = Annotated[str, _read_name]  # bytes that are not UTF-8 survive a round trip
Count: TypeAlias = Annotated[int, number]
Signed: TypeAlias = Annotated[int, signed]
# Numbers as digits; those that a state holds may be absent or damaged.
Number: TypeAlias = Annotated[int, _read_number]
NumberIfAny: TypeAlias = Annotated[
    int | None, lambda part: _read_number(part) if text(part).isdigit() else None
]
Milliseconds: TypeAlias = Annotated[int, milliseconds]
ServerTime: TypeAlias = Annotated[list[bytes], server_time]  # seconds, microseconds
Flag: TypeAlias = Annotated[bool, lambda part: bool(number(part))]
Id: TypeAlias = Annotated[EntryId, _read_id]
IdIfAny: TypeAlias = Annotated[EntryId | None, lambda part: _read_id(part) if part else None]
Moment: TypeAlias = Annotated[datetime, read_moment]
# Fields of the state may be absent or damaged, which counts as absent.
MomentIfAny: TypeAlias = Annotated[datetime | None, _read_moment_if_any]
Span: TypeAlias = Annotated[timedelta, _read_span]
SpanIfAny: TypeAlias = Annotated[
    timedelta | None, lambda part: _read_span(part) if milliseconds(part) >= 0 else None
]
