"""Types of option values: each turns a text into a value, or says what the text must be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")  # as Spark's CAST reads whole numbers
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_SPAN: Final = re.compile(r"([0-9]{1,15})\s*([a-z]*)")
_MS_OF: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
                 "d": 86_400_000}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OptionType:
    """What a user may write as the value of an option: its name in the documentation, its parser.

    `read` raises ValueError with the rest of a sentence: "must be ...".
    """

    name: str
    read: Callable[[str], Any]

    def then(self, convert: Callable[[Any], Any]) -> OptionType:
        """The same texts, with their values converted; `convert` raises as `read` does."""
        return OptionType(self.name, lambda text: convert(self.read(text)))


def whole(smallest: int, largest: int | None = None) -> OptionType:
    """A whole number within bounds, both included."""
    wanted = f"must be a whole number of at least {smallest}"
    wanted = wanted if largest is None else f"{wanted} and at most {largest}"

    def read(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text.strip()) else None
        if number is None or number < smallest or (largest is not None and number > largest):
            raise ValueError(wanted)
        return number

    return OptionType("whole number", read)


def choice(*allowed: str) -> OptionType:
    """One of these words, in any case; the value is the word as written here."""
    by_lowered = {word.lower(): word for word in allowed}

    def read(text: str) -> str:
        word = by_lowered.get(text.strip().lower())
        if word is None:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return word

    return OptionType(" | ".join(allowed), read)


def either(true: str, false: str) -> OptionType:
    """One of two words, in any case; the value is whether it is the first."""

    def read(text: str) -> bool:
        lowered = text.strip().lower()
        if lowered not in (true, false):
            raise ValueError(f"must be {true} or {false}")
        return lowered == true

    return OptionType(f"{true} | {false}", read)


def choices(*allowed: str) -> OptionType:
    """Some of these words, separated by commas."""
    single = choice(*allowed)

    def read(text: str) -> tuple[str, ...]:
        try:
            return tuple(dict.fromkeys(single.read(word) for word in text.split(",")))
        except ValueError as error:
            raise ValueError(
                f"must be some of {', '.join(allowed)}, separated by commas"
            ) from error

    return OptionType("some of " + ", ".join(allowed), read)


def milliseconds(moment: datetime) -> int:
    """The first millisecond since 1970 that is not before an aware moment."""
    return max(0, -((_EPOCH - moment) // timedelta(milliseconds=1)))  # no ID is older than 1970


def read_zone(text: str) -> tzinfo:
    """The time zone of a name or an offset. Raises ValueError."""
    stripped = text.strip()
    found = _OFFSET.fullmatch(stripped)
    try:
        if found is None:
            return UTC if stripped in ("Z", "UTC", "GMT") else ZoneInfo(stripped)
        size = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-size if found[1] == "-" else size)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError("must be a time zone, such as Europe/Berlin, +01:00 or UTC") from error


def _read_text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _read_names(text: str) -> tuple[str, ...]:
    stripped = text.strip()
    if stripped.startswith("["):
        names = _read_json_names(stripped)
    else:
        names = [name.strip() for name in stripped.split(",")]
    if not names or not all(names):
        raise ValueError("must be names separated by commas, or a JSON list of names")
    return tuple(dict.fromkeys(names))


def _read_json_names(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"begins as a JSON list but is not valid JSON ({error})") from error
    if not all(isinstance(name, str) for name in names):
        raise ValueError("must be a JSON list of strings")
    return list(names)


def _read_moment(text: str) -> int | datetime:
    stripped = text.strip()
    if _WHOLE.fullmatch(stripped) and int(stripped) < 2**64:
        return max(0, int(stripped))
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError as error:
        raise ValueError("must be milliseconds since 1970 or an ISO 8601 time") from error
    return milliseconds(moment) if moment.tzinfo else moment


def _read_zone_name(text: str) -> str:
    read_zone(text)
    return text


def _read_span(text: str) -> int:
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or found[2] not in _MS_OF or not int(found[1]):
        raise ValueError("must be a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _MS_OF[found[2]]


TEXT = OptionType("text", _read_text)
FLAG = either("true", "false")
NAMES = OptionType("names", _read_names)
MOMENT = OptionType("time", _read_moment)  # in milliseconds; a datetime if it names no zone
ZONE = OptionType("time zone", _read_zone_name)  # as text: executors may not know the zone
SPAN = OptionType("time span", _read_span)  # in milliseconds
