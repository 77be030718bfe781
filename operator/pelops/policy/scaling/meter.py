"""What scaling measures of a group from one observation to the next: its rates and durations.

Each rate is a count over a time, both decaying: an observation is weighted by its interval, and a
counter that jumped costs one sample. Times are the server's, so the operator's clock does not
matter.

The handling time is not measured for single entries. By Little's law it is the number of entries
held, times the interval, divided by the entries acknowledged in it. Prefetched entries count as
held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, exp
from typing import Final

from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.capacity import Capacity, FadingCount, Interval

FADE_S: Final = 300.0
LEAST_ACKNOWLEDGED: Final = 5.0  # fewer are not significant

FAST_S: Final = 3.0  # time constant with which the arrival rate falls
SLOW_S: Final = 40.0  # time constant with which it rises: a burst is not a steady flow
ACKNOWLEDGED_S: Final = 15.0
OUTCOME_S: Final = 60.0  # the share of dead letters covers about a minute
SHORTEST_S: Final = 10.0  # the slow arrival rate covers at least this: a burst is not a steady flow

UNCOUNTED_PATIENCE_S: Final = 15.0
STEP: Final = 1.5


@dataclass(slots=True, kw_only=True)
class HandlingTime:
    """Entry-seconds for which workers held entries, per acknowledged entry; empty after a start."""

    held_s: float = 0.0  # entries times seconds
    acknowledged: float = 0.0  # entries acknowledged in that time
    open_held_s: float = 0.0  # entries times seconds since the last acknowledgement
    open_s: float = 0.0  # seconds since the last acknowledgement

    @property
    def mean_s(self) -> float | None:
        """Seconds that a worker holds an entry; None with fewer than `LEAST_ACKNOWLEDGED`."""
        if self.acknowledged < LEAST_ACKNOWLEDGED:
            return None
        return self.held_s / self.acknowledged

    def add(self, *, held: float, acknowledged: int, seconds: float) -> None:
        """Add `seconds` in which workers held `held` entries. Total.

        Time without an acknowledgement counts only after the next one, and for `FADE_S` at most.
        Otherwise entries whose handlers failed would count as long work once traffic ends.
        """
        counted = max(0.0, min(seconds, FADE_S - self.open_s))
        self.open_held_s += held * counted
        self.open_s += counted
        if acknowledged <= 0:
            return
        left = exp(-self.open_s / FADE_S)
        self.held_s = self.held_s * left + self.open_held_s
        self.acknowledged = self.acknowledged * left + acknowledged
        self.open_held_s = self.open_s = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast entries come and go, per second. None: not measured yet."""

    arrivals: float | None = None
    acknowledged: float | None = None
    per_replica: float | None = None  # what one worker finishes when fully busy
    is_proven: bool = False  # per_replica was measured; if not, it is a lower bound


@dataclass(slots=True, kw_only=True)
class Meter:
    """What is remembered of a group between two observations; empty after a start."""

    last: Backlog | None = None
    last_ready: int = 0
    fast: FadingCount = field(default_factory=FadingCount)  # arrivals
    slow: FadingCount = field(default_factory=FadingCount)  # arrivals
    acknowledged: FadingCount = field(default_factory=FadingCount)
    finished: float = 0.0  # entries in the last minute or so, dead letters among them
    dead_lettered: float = 0.0
    capacity: Capacity = field(default_factory=Capacity)  # of one worker
    handling: HandlingTime = field(default_factory=HandlingTime)
    empty_since: float | None = None  # monotonic; None: there is a backlog, or may be one
    # While more entries are undelivered than can be counted: since when all of these workers have
    # been ready. Time in which fewer are ready shows nothing about their capacity.
    uncounted_since: float | None = None  # monotonic
    uncounted_workers: int = 0

    @property
    def rates(self) -> Rates:
        """The current rates."""
        fast = self.fast.rate(shortest_s=FAST_S)
        slow = self.slow.rate(shortest_s=SHORTEST_S)
        return Rates(
            arrivals=None if fast is None or slow is None else min(fast, slow),
            acknowledged=self.acknowledged.rate(),
            per_replica=self.capacity.per_replica,
            is_proven=self.capacity.proven is not None,
        )

    def observe(self, backlog: Backlog | None, *, ready: int, workers: int, now: float) -> None:
        """Note one more observation of the group; `backlog` is None if there was no answer. Total.

        `ready` counts the ready workers, `workers` the wanted ones. `now` is in seconds on a
        monotonic clock. Workers may be so fast that no observation finds a backlog, so entries that
        were added and finished between two observations restart `empty_since` as well.
        """
        if backlog is None or not backlog.exists:
            self.empty_since = None
            return
        if not backlog.is_empty:
            self.empty_since = None
        elif self.empty_since is None or (self.last and self.last.added != backlog.added):
            self.empty_since = now
        if backlog.is_exact or backlog.undelivered == 0:
            self.uncounted_since = None
        elif self.uncounted_since is None or self.uncounted_workers != workers or ready < workers:
            self.uncounted_since, self.uncounted_workers = now, workers
        self.measure(backlog, ready=ready)

    def restart_durations(self) -> None:
        """Forget since when the group is empty or cannot be counted; the rates are kept."""
        self.empty_since = self.uncounted_since = None

    def try_workers(self, *, now: float) -> int:
        """Return half as many workers again if more entries than can be counted have been
        undelivered for `UNCOUNTED_PATIENCE_S`; 0 before.
        """
        since = self.uncounted_since
        if since is None or now - since < UNCOUNTED_PATIENCE_S:
            return 0
        return ceil(self.uncounted_workers * STEP)

    def measure(self, backlog: Backlog, *, ready: int) -> None:
        """Learn the rates from one more backlog of a group that exists. Total.

        A second observation of the same instant changes nothing. If the server's clock or counters
        went back (a failover), a new count starts, and the rates are kept.
        """
        last, last_ready = self.last, self.last_ready
        if last is not None and backlog.at == last.at:
            return
        self.last, self.last_ready = backlog, ready
        if last is None or backlog.at < last.at or not (backlog.exists and last.exists):
            return
        interval = _compare(last, backlog, ready if ready == last_ready else 0)
        seconds, arrived = interval.seconds, interval.arrived
        if arrived is not None:
            self.fast = self.fast.fade(seconds, FAST_S).add(arrived, seconds)
            self.slow = self.slow.fade(seconds, SLOW_S).add(arrived, seconds)
        if interval.finished is None:
            return
        left, done = exp(-seconds / OUTCOME_S), interval.acknowledged
        self.acknowledged = self.acknowledged.fade(seconds, ACKNOWLEDGED_S).add(done, seconds)
        self.handling.add(held=interval.held, acknowledged=done, seconds=seconds)
        self.finished = self.finished * left + interval.finished
        self.dead_lettered = self.dead_lettered * left + interval.dead_lettered
        if interval.ready > 0 and not interval.is_quiet:
            self.capacity.learn(interval)


def _compare(last: Backlog, backlog: Backlog, ready: int) -> Interval:
    arrived = _difference(last.added, backlog.added)
    is_known = arrived is not None and last.is_exact and backlog.is_exact
    before = last.deliverable + last.waiting
    after = backlog.deliverable + backlog.waiting
    finished = (arrived or 0) + before - after if is_known else None
    delivered = (arrived or 0) + last.undelivered - backlog.undelivered
    busy = _busy(last, ready), _busy(backlog, ready)
    return Interval(
        seconds=(backlog.at - last.at).total_seconds(),
        arrived=arrived,
        # Negative if the position was set back: delivered entries are undelivered again.
        finished=finished if finished is not None and finished >= 0 else None,
        dead_lettered=max(0, backlog.dead_letters - last.dead_letters),
        held=(last.held + backlog.held) / 2,
        ready=ready,
        busy=sum(busy) / 2,
        busy_most=max(busy),
        is_quiet=not arrived and before == after == 0,
        # Workers that started in this interval have not finished entries yet.
        is_saturated=last.undelivered > delivered and busy[0] >= busy[1],
        has_room=last.undelivered == backlog.undelivered == 0,
    )


def _busy(backlog: Backlog, ready: int) -> int:
    return ready if backlog.holding is None else backlog.holding


def _difference(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before
