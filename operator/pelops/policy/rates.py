"""How fast entries come and go, measured from one look to the next.

Everything is a count over a time, both fading: a look that comes late weighs by its length, and a
counter that jumped costs one sample. Times are the server's, so no clock of ours matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp
from typing import Final

from pelops.domain.scaling import Backlog, Rates
from pelops.policy.handling import Handling, watch_handling

FAST_S: Final = 3.0  # arrivals fall as fast as this ...
SLOW_S: Final = 40.0  # ... and rise as slowly as this: one burst is no steady flow
ACKNOWLEDGED_S: Final = 15.0
OUTCOME_S: Final = 60.0  # what became of entries is judged over about a minute
CAPACITY_S: Final = 60.0  # a rate per worker is forgotten so slowly ...
ENOUGH: Final = 20.0  # ... and only once so many entries tell a new one
LEAST_ENTRIES: Final = 5.0  # fewer tell nothing
LEAST_S: Final = 5.0  # of one worker, for less than ENOUGH entries
SHORTEST_S: Final = 10.0  # arrivals within less are no steady flow
JUMP: Final = 10.0  # so much faster than ever seen is no work but a position that was moved
# How fast a rate that nobody tests any more is taken for too low, per second. Without it one slow
# minute would hold too many workers for ever; were it faster, a fleet that keeps up would be taken
# down every few minutes, only to learn once more that it was needed.
CREEP_PROVEN: Final = 0.02 / 60
CREEP_UNPROVEN: Final = 0.1 / 60
HOPE: Final = 4.0  # times what was proven, and no further
HIGHEST: Final = 1e6  # entries per second of one worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A count over a time, both fading together."""

    count: float = 0.0
    seconds: float = 0.0

    def fade(self, over_s: float, fade_s: float) -> Tally:
        """What is left of it `over_s` seconds later."""
        left = exp(-over_s / fade_s)
        return Tally(count=self.count * left, seconds=self.seconds * left)

    def add(self, count: float, seconds: float) -> Tally:
        """The tally with more of both."""
        return Tally(count=self.count + count, seconds=self.seconds + seconds)

    def rate(self, *, shortest_s: float = 0.0) -> float | None:
        """Count per second, over `shortest_s` at least; None when nothing was seen."""
        seconds = max(self.seconds, shortest_s)
        return self.count / seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What is remembered between two looks; empty after a start."""

    last: Backlog | None = None
    last_ready: int = 0
    fast: Tally = field(default_factory=Tally)  # arrivals
    slow: Tally = field(default_factory=Tally)  # arrivals
    acknowledged: Tally = field(default_factory=Tally)
    saturated: Tally = field(default_factory=Tally)  # acknowledged per worker that had enough to do
    working: Tally = field(default_factory=Tally)  # acknowledged per worker, whatever it had to do
    finished: float = 0.0  # entries in the last minute or so, dead letters among them
    dead_lettered: float = 0.0
    per_replica: float | None = None
    proven: float | None = None  # per_replica as it was last seen while there was enough to do
    handling: Handling = field(default_factory=Handling)

    @property
    def rates(self) -> Rates:
        """The rates as they are known now."""
        fast = self.fast.rate(shortest_s=FAST_S)
        slow = self.slow.rate(shortest_s=SHORTEST_S)
        return Rates(
            arrivals=None if fast is None or slow is None else min(fast, slow),
            acknowledged=self.acknowledged.rate(),
            per_replica=self.per_replica,
            is_proven=self.proven is not None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """What happened between two looks."""

    seconds: float
    arrived: int | None  # None: a counter went back
    finished: int | None  # None: unknown
    dead_lettered: int
    held: float  # by workers, on average
    ready: int
    is_quiet: bool  # nothing came, and nothing was owed
    is_saturated: bool


def measure(meter: Meter, backlog: Backlog, *, ready: int) -> Meter:
    """The meter after one more look. Total.

    A second look at the same instant tells nothing; a server whose clock or counters went back (a
    failover) begins a new count, and what was learned stays.
    """
    last = meter.last
    if last is not None and backlog.at == last.at:
        return meter
    moved = replace(meter, last=backlog, last_ready=ready)
    if last is None or backlog.at < last.at or not (backlog.exists and last.exists):
        return moved
    sample = _sample(last, backlog, ready if ready == meter.last_ready else 0)
    return _learn(_count(moved, sample), sample)


def _sample(last: Backlog, backlog: Backlog, ready: int) -> _Sample:
    arrived = _difference(last.added, backlog.added)
    is_known = arrived is not None and last.is_exact and backlog.is_exact
    before = last.owed + last.waiting
    after = backlog.owed + backlog.waiting
    finished = (arrived or 0) + before - after if is_known else None
    least = max(1, ready)  # each worker had one more to go on with
    return _Sample(
        seconds=(backlog.at - last.at).total_seconds(),
        arrived=arrived,
        # A position that was set back makes entries owed anew.
        finished=finished if finished is not None and finished >= 0 else None,
        dead_lettered=max(0, backlog.dead_letters - last.dead_letters),
        held=(last.held + backlog.held) / 2,
        ready=ready,
        is_quiet=not arrived and before == after == 0,
        is_saturated=min(last.undelivered, backlog.undelivered) >= least,
    )


def _difference(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before


def _count(meter: Meter, sample: _Sample) -> Meter:
    if sample.arrived is not None:
        meter = replace(
            meter,
            fast=meter.fast.fade(sample.seconds, FAST_S).add(sample.arrived, sample.seconds),
            slow=meter.slow.fade(sample.seconds, SLOW_S).add(sample.arrived, sample.seconds),
        )
    if sample.finished is None:
        return meter
    left = exp(-sample.seconds / OUTCOME_S)
    faded = meter.acknowledged.fade(sample.seconds, ACKNOWLEDGED_S)
    done = max(0, sample.finished - sample.dead_lettered)
    return replace(
        meter,
        acknowledged=faded.add(done, sample.seconds),
        handling=watch_handling(
            meter.handling, held=sample.held, acknowledged=done, seconds=sample.seconds
        ),
        finished=meter.finished * left + sample.finished,
        dead_lettered=meter.dead_lettered * left + sample.dead_lettered,
    )


def _learn(meter: Meter, sample: _Sample) -> Meter:
    """What one worker can do: seen when there is enough to do, else never less than it does."""
    if sample.finished is None or sample.ready == 0 or sample.is_quiet:
        return meter
    done = max(0, sample.finished - sample.dead_lettered)
    worked_s = sample.seconds * sample.ready
    if meter.per_replica is not None and done > JUMP * meter.per_replica * worked_s + ENOUGH:
        return meter
    working = _tell(meter.working, done, worked_s, sample.seconds)
    meter = replace(meter, working=working)
    if sample.is_saturated:
        return _prove(meter, _tell(meter.saturated, done, worked_s, sample.seconds))
    return _raise(_creep(meter, sample.seconds))


def _tell(tally: Tally, done: int, worked_s: float, seconds: float) -> Tally:
    """Slow work is seen seldom: what little is known of it is not forgotten."""
    if tally.count > ENOUGH:
        tally = tally.fade(seconds, CAPACITY_S)
    return tally.add(done, worked_s)


def _prove(meter: Meter, saturated: Tally) -> Meter:
    meter = replace(meter, saturated=saturated)
    is_long = saturated.count >= LEAST_ENTRIES and saturated.seconds >= LEAST_S
    if is_long or saturated.count >= ENOUGH:
        return replace(meter, per_replica=saturated.rate(), proven=saturated.rate())
    return _end_hope(meter) if meter.proven is None else meter


def _end_hope(meter: Meter) -> Meter:
    """A rate that only crept up is given up as soon as there is too much to do: it is too high."""
    seen = max(meter.working.rate() or 0.0, meter.saturated.rate() or 0.0)
    if meter.per_replica is None or seen == 0:
        return meter
    return replace(meter, per_replica=min(meter.per_replica, seen))


def _raise(meter: Meter) -> Meter:
    """A worker that did more than it was thought to can do so again."""
    if meter.working.count < LEAST_ENTRIES or meter.working.seconds < LEAST_S:
        return meter
    seen = meter.working.rate()
    if seen is None or (meter.per_replica is not None and meter.per_replica >= seen):
        return meter
    return replace(meter, per_replica=seen)


def _creep(meter: Meter, seconds: float) -> Meter:
    if meter.per_replica is None:
        return meter
    pace = CREEP_UNPROVEN if meter.proven is None else CREEP_PROVEN
    most = HIGHEST if meter.proven is None else max(meter.per_replica, HOPE * meter.proven)
    raised = min(most, meter.per_replica * exp(min(1.0, pace * seconds)))
    # The old evidence fades as well, so that new one counts at once.
    return replace(meter, per_replica=raised, saturated=meter.saturated.fade(seconds, CAPACITY_S))
