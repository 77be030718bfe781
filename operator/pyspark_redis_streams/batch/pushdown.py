"""Filters on IDs, times and streams that narrow what is read.

Spark applies every filter again on what comes back: a filter that narrows too little is only slow.
A narrowed read that Spark gives to another query than the one that filters would miss entries:
`keeps_narrowed_reads_apart` says where that cannot happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from pelops.redis_core import LARGEST_PART, EntryId, parse_entry_id

if TYPE_CHECKING:  # PySpark 4.0 has no filters, and never calls what is here
    from pyspark.sql.datasource import Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class IdWindow:
    """What the filters leave: IDs between two, both included, of some streams or of all."""

    lower: EntryId = EntryId.MIN
    upper: EntryId = EntryId.MAX
    streams: frozenset[str] | None = None

    def between(self, lower: EntryId, upper: EntryId) -> IdWindow:
        return replace(self, lower=max(self.lower, lower), upper=min(self.upper, upper))

    def only(self, streams: Iterable[str]) -> IdWindow:
        wanted = frozenset(streams)
        return replace(self, streams=wanted if self.streams is None else self.streams & wanted)


def keeps_narrowed_reads_apart() -> bool:
    """Whether a narrowed read belongs to the query that filters, and to no other.

    Up to Spark 4.3 it belongs to the loaded DataFrame: each other use of that, in the same query or
    a later one, is given the tasks of the last filter, and misses entries without an error. Neither
    the driver's side of a Python data source nor its tasks can notice. The Spark that can push
    limits to a Python data source keeps such reads apart (SPARK-58551).
    """
    return hasattr(datasource.DataSourceReader, "pushLimit")


def narrow(window: IdWindow, condition: Filter) -> IdWindow:
    """The window with one more filter; unchanged by a filter that says nothing about it."""
    column: tuple[str, ...] = getattr(condition, "attribute", ())
    rule = _RULES.get(column[0]) if len(column) == 1 else None
    return rule(window, condition) if rule else window


def _by_stream(window: IdWindow, condition: Filter) -> IdWindow:
    if isinstance(condition, datasource.EqualTo):
        return window.only([condition.value])
    return window.only(condition.value) if isinstance(condition, datasource.In) else window


def _by_id(window: IdWindow, condition: Filter) -> IdWindow:
    # Spark compares IDs as text, so only equality means the same to both.
    if isinstance(condition, datasource.EqualTo):
        values = [condition.value]
    elif isinstance(condition, datasource.In):
        values = list(condition.value)
    else:
        return window
    try:
        wanted = [parse_entry_id(value) for value in values]
    except ValueError:
        return window
    return window.between(min(wanted), max(wanted)) if wanted else window


def _by_ms(window: IdWindow, condition: Filter) -> IdWindow:
    return _by_number(window, condition, lambda value: (int(value), int(value)))


def _by_time(window: IdWindow, condition: Filter) -> IdWindow:
    return _by_number(window, condition, _milliseconds)


def _milliseconds(value: datetime) -> tuple[int, int]:
    """The whole millisecond at or before a moment, and the one at or after it."""
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    micros = round((aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    return micros // 1000, -(-micros // 1000)


def _by_number(
    window: IdWindow, condition: Filter, bounds: Callable[[Any], tuple[int, int]]
) -> IdWindow:
    value = getattr(condition, "value", None)
    if value is None or isinstance(condition, datasource.In):
        return window
    below, above = bounds(value)
    from_it = EntryId(min(LARGEST_PART, max(0, below)), 0)
    to_it = EntryId(min(LARGEST_PART, above), LARGEST_PART) if above >= 0 else EntryId.MIN
    if isinstance(condition, datasource.GreaterThan | datasource.GreaterThanOrEqual):
        return window.between(from_it, EntryId.MAX)
    if isinstance(condition, datasource.LessThan | datasource.LessThanOrEqual):
        return window.between(EntryId.MIN, to_it)
    return window.between(from_it, to_it) if isinstance(condition, datasource.EqualTo) else window


_RULES: dict[str, Callable[[IdWindow, Filter], IdWindow]] = {
    "stream": _by_stream,
    "id": _by_id,
    "ms": _by_ms,
    "ts": _by_time,
}
