"""Options: their names, their types, where they apply, and a table to look them up by name.

An option is declared once, as a field of a settings class::

    _pace = section("Tasks and pace")
    page_size: int = _pace("pageSize", whole(1, 100_000), default="2000")("Most entries ...")

Its type converts a text to a value, or raises an error that says what the text must be. Parsing,
messages and the tables of docs/spark/data-source.md are derived from the declaration.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from pyspark_redis_streams.errors import OptionError

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")  # as Spark's CAST accepts whole numbers
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_SPAN: Final = re.compile(r"([0-9]{1,15})\s*([a-z]*)")
_MS_OF: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
                 "d": 86_400_000}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OptionType:
    """The type of an option's value: its name in the documentation, and its parser.

    `read` raises ValueError with the end of a sentence: "must be ...".
    """

    name: str
    read: Callable[[str], Any]

    def then(self, convert: Callable[[Any], Any]) -> OptionType:
        """A type with the same texts and converted values; `convert` raises as `read` does."""
        return OptionType(self.name, lambda text: convert(self.read(text)))


def whole(smallest: int, largest: int | None = None) -> OptionType:
    """A whole number within inclusive bounds."""
    wanted = f"must be a whole number of at least {smallest}"
    wanted = wanted if largest is None else f"{wanted} and at most {largest}"

    def read(text: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text.strip()) else None
        if number is None or number < smallest or (largest is not None and number > largest):
            raise ValueError(wanted)
        return number

    return OptionType("whole number", read)


def choice(*allowed: str) -> OptionType:
    """One of these words, in any case; the value is the word as in `allowed`."""
    by_lowered = {word.lower(): word for word in allowed}

    def read(text: str) -> str:
        word = by_lowered.get(text.strip().lower())
        if word is None:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return word

    return OptionType(" | ".join(allowed), read)


def either(true: str, false: str) -> OptionType:
    """One of two words, in any case; the value is True for the first one."""

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
    """Milliseconds since 1970 of an aware time, rounded up."""
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


def _read_moments(text: str) -> dict[str, int | datetime]:
    try:
        moments = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"must be a JSON object, and is not valid JSON ({error})") from error
    if not isinstance(moments, dict):
        raise ValueError("must be a JSON object that has a time for each stream")
    try:
        return {stream: _read_moment(str(moment)) for stream, moment in moments.items()}
    except ValueError as error:
        raise ValueError(f"has a value that is no time: each {error}") from error


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
MOMENTS = OptionType("times by stream", _read_moments)
ZONE = OptionType("time zone", _read_zone_name)  # as text: executors may not know the zone
SPAN = OptionType("time span", _read_span)  # in milliseconds


_METADATA: Final = "option"  # key in a field's metadata
# Spark's own options of a streaming write, which it also passes to the sink.
OF_SPARK: Final = frozenset({"checkpointlocation"})


class Use(StrEnum):
    """How a program uses the data source."""

    READ = "read"
    STREAM = "readStream"
    WRITE = "write"


class View(StrEnum):
    """The kind of rows of a read."""

    ENTRIES = "entries"
    PENDING = "pending"
    GROUPS = "groups"
    CONSUMERS = "consumers"
    STREAMS = "streams"


EVERY_USE: Final = frozenset(Use)
READS: Final = frozenset({Use.READ, Use.STREAM})
EVERY_VIEW: Final = frozenset(View)


class Alias(NamedTuple):
    """The name of an option in Spark's Kafka source, and the type of its values there."""

    name: str
    kind: OptionType


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option; the case of names is ignored."""

    name: str
    kind: OptionType
    meaning: str  # Markdown: part of messages and of the documentation
    default: str | None = None  # as a user would write it; None: not set
    section: str  # heading of its table in the documentation
    uses: frozenset[Use] = READS
    views: frozenset[View] = frozenset({View.ENTRIES})  # of reads
    kafka: Alias | None = None
    is_secret: bool = False  # messages and `repr` do not show the value

    @property
    def names(self) -> tuple[str, ...]:
        """Its own name, and its alias if it has one."""
        return (self.name,) if self.kafka is None else (self.name, self.kafka.name)

    def read(self, text: str, alias: Alias | None = None) -> Any:
        """The value of a text that was given under the option's own name, or under its alias.

        Raises OptionError.
        """
        name, kind = alias or (self.name, self.kind)
        try:
            return kind.read(text)
        except ValueError as error:
            shown = "" if self.is_secret else f" is '{text}' but"
            also = f" Option '{self.name}' takes more:" if alias else ""
            raise OptionError(f"option '{name}'{shown} {error}.{also} {self.meaning}") from error


def section(title: str, **common: Any) -> Callable[..., Callable[[str], Any]]:
    """A function that declares the options of one section; they share `common`."""

    def declare(name: str, kind: OptionType, **own: Any) -> Callable[[str], Any]:
        def describe(meaning: str) -> Any:
            declared: dict[str, Any] = {"section": title, "name": name, "kind": kind} | common | own
            option = Option(**declared, meaning=meaning)
            return field(repr=not option.is_secret, metadata={_METADATA: option})

        return describe

    return declare


def values_for(settings: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that belong to the options of one settings class."""
    return {name: values[name] for name in _declared(settings)}


class OptionTable:
    """The options of several settings classes, by name."""

    def __init__(self, *settings: type) -> None:
        self._by_field = {name: one for kind in settings for name, one in _declared(kind).items()}
        self._by_name = {name.lower(): (name, option) for option in self for name in option.names}

    def __getitem__(self, field: str) -> Option:
        return self._by_field[field]

    def __iter__(self) -> Iterator[Option]:
        return iter(self._by_field.values())

    def given_for(self, given: Mapping[str, str], *uses: Use) -> dict[str, str]:
        """The given options that are for any of the uses, and unknown ones, to be refused later."""
        return {
            name: value
            for name, value in given.items()
            if name.lower() not in self._by_name or self._by_name[name.lower()][1].uses & set(uses)
        }

    def parse(self, given: Mapping[str, str], uses: Set[Use]) -> dict[str, Any]:
        """The values of all options by field; None without a default. Raises OptionError."""
        for name in given:
            if uses != {Use.WRITE} or name.lower() not in OF_SPARK:
                self._refuse_unfit(name, uses)
        texts = {name.lower(): str(text) for name, text in given.items() if text is not None}
        return {field: _parse(option, texts) for field, option in self._by_field.items()}

    def refuse_other_views(self, given: Mapping[str, str], view: View) -> None:
        """Raise OptionError for an option that has no meaning for a view."""
        for one in given:
            name, option = self._by_name[one.lower()]
            if view not in option.views:
                allowed = ", ".join(f"'{allowed}'" for allowed in sorted(option.views))
                raise OptionError(
                    f"option '{name}' has no meaning for view '{view}', only for {allowed}"
                )

    def name_given(self, field: str, given: Mapping[str, str]) -> str:
        """The name under which an option was given: its own, or its alias."""
        lowered = {name.lower() for name in given}
        return next(name for name in self._by_field[field].names if name.lower() in lowered)

    def _refuse_unfit(self, given: str, uses: Set[Use]) -> None:
        name, option = self._by_name.get(given.lower(), (given, None))
        if option is None:
            raise OptionError(f"unknown option '{given}'{self._nearest(given, uses)}")
        if not option.uses & uses:
            allowed = " and ".join(sorted(option.uses))
            raise OptionError(f"option '{name}' is for {allowed} only. {option.meaning}")

    def _nearest(self, name: str, uses: Set[Use]) -> str:
        alike = difflib.get_close_matches(name.lower(), self._by_name, n=1, cutoff=0.6)
        if alike:
            return f": did you mean '{self._by_name[alike[0]][0]}'?"
        return f"; there are {', '.join(option.name for option in self if option.uses & uses)}"


def _declared(settings: type) -> dict[str, Option]:
    return {
        one.name: one.metadata[_METADATA] for one in fields(settings) if _METADATA in one.metadata
    }


def _parse(option: Option, texts: Mapping[str, str]) -> Any:
    ours = texts.get(option.name.lower(), option.default)
    theirs = None if option.kafka is None else texts.get(option.kafka.name.lower())
    if option.kafka is None or theirs is None:
        return None if ours is None else option.read(ours)
    value = option.read(theirs, option.kafka)
    if option.name.lower() in texts:
        own = option.read(texts[option.name.lower()])
        if own != value and str(own).lower() != str(value).lower():
            raise OptionError(
                f"options '{option.name}' ('{ours}') and '{option.kafka.name}' ('{theirs}') are two"
                " names of one option and differ: give one of them"
            )
    return value
