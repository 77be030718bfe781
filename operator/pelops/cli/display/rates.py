"""Numbers of a group with its rates, and what follows from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pelops.cli.display.durations import parse_time, render_age
from pelops.cli.display.gauges import GroupGauges, GroupName
from pelops.cli.display.group_facts import DisplayedGroup

# Two measured rates that differ by less are equal.
_SAME_RATE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The numbers of one group; None if unknown."""

    group: DisplayedGroup
    lag: float | None
    pending: float | None
    oldest_s: float | None
    dead_letters: float | None
    arrival_rate: float | None
    acknowledge_rate: float | None

    @property
    def backlog(self) -> float | None:
        """Entries that are not acknowledged."""
        return None if self.lag is None or self.pending is None else self.lag + self.pending

    @property
    def growth(self) -> float | None:
        """Growth of the backlog in entries per second; 0 within the measurement error."""
        if self.arrival_rate is None or self.acknowledge_rate is None:
            return None
        growth = self.arrival_rate - self.acknowledge_rate
        larger = max(self.arrival_rate, self.acknowledge_rate)
        return 0.0 if abs(growth) <= _SAME_RATE * larger else growth

    @property
    def trend(self) -> str | None:
        if self.growth is None:
            return None
        return "↗" if self.growth > 0 else "↘" if self.growth < 0 and self.backlog else "→"

    @property
    def empty_in(self) -> str | None:
        """When the backlog is processed if the rates stay as they are."""
        if not self.backlog or self.growth is None:
            return None
        return "never" if self.growth >= 0 else render_age(self.backlog / -self.growth)


class RateWindow:
    """Rates of groups that the operator does not measure, from what Redis has counted.

    The operator measures the groups that it scales. For others, a rate is the difference of two
    samples that lie up to `window_s` seconds apart.
    """

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._samples: dict[GroupName, deque[tuple[float, GroupGauges]]] = {}

    def complete(
        self, found: Mapping[GroupName, GroupGauges], at_s: float
    ) -> dict[GroupName, GroupGauges]:
        """Return the gauges with rates; `at_s` is the time of the sample on a monotonic clock."""
        return {name: self._complete_one(name, gauges, at_s) for name, gauges in found.items()}

    def _complete_one(self, name: GroupName, gauges: GroupGauges, at_s: float) -> GroupGauges:
        samples = self._samples.setdefault(name, deque())
        samples.append((at_s, gauges))
        while len(samples) > 2 and samples[1][0] <= at_s - self._window_s:
            samples.popleft()
        since_s, first = samples[0]
        if gauges.acknowledge_rate is not None or since_s == at_s:
            return gauges
        passed = at_s - since_s
        added = _difference(first.added, gauges.added)
        delivered = _difference(first.delivered, gauges.delivered)
        if added is None or delivered is None or first.pending is None or gauges.pending is None:
            return gauges
        # What was delivered and is not pending was acknowledged.
        done = max(0.0, delivered - (gauges.pending - first.pending))
        return replace(gauges, arrival_rate=added / passed, acknowledge_rate=done / passed)


def _difference(before: float | None, now: float | None) -> float | None:
    """How much a counter has grown; None if it is unknown or has begun again."""
    return None if before is None or now is None or now < before else now - before


def build_row(group: DisplayedGroup, gauges: GroupGauges | None, now: datetime) -> Row:
    """Return the numbers of a group: of the operator if it exports them, else of the status."""
    seen = gauges or GroupGauges()
    oldest = parse_time(group.oldest_pending_time)
    oldest_s = None if oldest is None else (now - oldest).total_seconds()
    return Row(
        group=group,
        lag=_first(seen.lag, group.lag if group.lag_known else None),
        pending=_first(seen.pending, group.pending),
        oldest_s=_first(seen.oldest_s, oldest_s),
        dead_letters=_first(seen.dead_letters, group.dead_letters),
        arrival_rate=seen.arrival_rate,
        acknowledge_rate=seen.acknowledge_rate,
    )


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def render_rate(value: float | None) -> str | None:
    """Return entries per second for people."""
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
