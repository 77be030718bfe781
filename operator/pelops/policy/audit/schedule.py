"""When a schedule in cron's five fields is due, by the rules of Kubernetes' CronJobs.

Those are the rules of github.com/robfig/cron v3. If both day and weekday are restricted, one match
is enough; otherwise both must match. A star with a step above 1 is a restriction. No Python library
follows these rules (docs/decisions, 23).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pelops.errors import InvalidSpec

_WORDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A parsed schedule: the numbers that each field allows."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    any_day: bool  # the field holds * or ?, without a step
    any_weekday: bool
    zone: tzinfo

    def is_due(self, minute: datetime) -> bool:
        """Whether a run should start in this minute."""
        local = minute.astimezone(self.zone)
        is_day = local.day in self.days
        is_weekday = local.isoweekday() % 7 in self.weekdays
        is_date = (
            is_day and is_weekday if self.any_day or self.any_weekday else is_day or is_weekday
        )
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and is_date
        )


def parse_schedule(text: str, zone: str | None = None) -> Schedule:
    """Parse a schedule of five fields, or a word such as @hourly. The default `zone` is UTC.

    Raises InvalidSpec for an invalid schedule or an unknown time zone.
    """
    fields = _WORDS.get(text, text).split()
    if len(fields) != len(_RANGES):
        raise InvalidSpec(f"the schedule {text!r} has {len(fields)} fields instead of five")
    numbers = [_parse_field(one, place) for place, one in enumerate(fields)]
    return Schedule(
        minutes=numbers[0],
        hours=numbers[1],
        days=numbers[2],
        months=numbers[3],
        weekdays=numbers[4],
        any_day=_is_unrestricted(fields[2]),
        any_weekday=_is_unrestricted(fields[4]),
        zone=_find_zone(zone or "UTC"),
    )


def find_due(schedule: Schedule, *, after: datetime, now: datetime) -> datetime | None:
    """Return the last minute after `after`, up to `now`, in which a run should start; else None."""
    minute = now.replace(second=0, microsecond=0)
    while minute > after:
        if schedule.is_due(minute):
            return minute
        minute -= _MINUTE
    return None


def _find_zone(name: str) -> tzinfo:
    if name in {"UTC", "Etc/UTC"}:
        return UTC  # needs no time zone database, which small images do not contain
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidSpec(
            f"spec.timeZone {name!r} is unknown: use a name such as Europe/Berlin"
        ) from error


def _is_unrestricted(text: str) -> bool:
    parts = (part.partition("/") for part in text.split(","))
    return any(span in {"*", "?"} and step.strip("0") in {"", "1"} for span, _, step in parts)


def _parse_field(text: str, place: int) -> frozenset[int]:
    parts = (_parse_part(part, place) for part in text.split(","))
    return frozenset(number for part in parts for number in part)


def _parse_part(part: str, place: int) -> range:
    lowest, highest = _RANGES[place]
    span, _, step = part.partition("/")
    if span in {"*", "?"}:
        first, last = lowest, highest
    else:
        begin, dash, end = span.partition("-")
        first = _parse_number(begin, place)
        last = _parse_number(end, place) if dash else (highest if step else first)
    if not (lowest <= first <= last <= highest) or (step and not (step.isdigit() and int(step))):
        raise InvalidSpec(f"the schedule's field {part!r} must be from {lowest} to {highest}")
    return range(first, last + 1, int(step or 1))


def _parse_number(text: str, place: int) -> int:
    names = _MONTHS if place == 3 else _WEEKDAYS if place == 4 else ()
    if text.lower() in names:
        return names.index(text.lower()) + _RANGES[place][0]
    if not (text.isascii() and text.isdigit()):
        raise InvalidSpec(f"the schedule contains {text!r}, which is not a number")
    return int(text)
