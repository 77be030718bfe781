"""How fast entries come and go, measured from one look to the next.

Everything is a count over a time, both fading: a look that comes late weighs by its length, and a
counter that jumped costs one sample. Times are the server's, so no clock of ours matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp
from typing import Final

from pelops.domain.scaling import Backlog, Rates
from pelops.policy.capacity import Capacity, Work, learn_capacity
from pelops.policy.handling import Handling, watch_handling
from pelops.policy.tally import Tally

FAST_S: Final = 3.0  # arrivals fall as fast as this ...
SLOW_S: Final = 40.0  # ... and rise as slowly as this: one burst is no steady flow
ACKNOWLEDGED_S: Final = 15.0
OUTCOME_S: Final = 60.0  # what became of entries is judged over about a minute
SHORTEST_S: Final = 10.0  # arrivals within less are no steady flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What is remembered between two looks; empty after a start."""

    last: Backlog | None = None
    last_ready: int = 0
    fast: Tally = field(default_factory=Tally)  # arrivals
    slow: Tally = field(default_factory=Tally)  # arrivals
    acknowledged: Tally = field(default_factory=Tally)
    finished: float = 0.0  # entries in the last minute or so, dead letters among them
    dead_lettered: float = 0.0
    capacity: Capacity = field(default_factory=Capacity)  # of one worker
    handling: Handling = field(default_factory=Handling)

    @property
    def rates(self) -> Rates:
        """The rates as they are known now."""
        fast = self.fast.rate(shortest_s=FAST_S)
        slow = self.slow.rate(shortest_s=SHORTEST_S)
        return Rates(
            arrivals=None if fast is None or slow is None else min(fast, slow),
            acknowledged=self.acknowledged.rate(),
            per_replica=self.capacity.per_replica,
            is_proven=self.capacity.proven is not None,
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
    busy: tuple[int, int]  # workers that held entries at both looks
    is_quiet: bool  # nothing came, and nothing was owed
    is_saturated: bool  # entries waited to be read, all the time
    has_room: bool  # none waited at either look


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
    delivered = (arrived or 0) + last.undelivered - backlog.undelivered
    busy = _busy(last, ready), _busy(backlog, ready)
    return _Sample(
        seconds=(backlog.at - last.at).total_seconds(),
        arrived=arrived,
        # A position that was set back makes entries owed anew.
        finished=finished if finished is not None and finished >= 0 else None,
        dead_lettered=max(0, backlog.dead_letters - last.dead_letters),
        held=(last.held + backlog.held) / 2,
        ready=ready,
        busy=busy,
        is_quiet=not arrived and before == after == 0,
        # Workers that have just begun have finished nothing yet.
        is_saturated=last.undelivered > delivered and busy[0] >= busy[1],
        has_room=last.undelivered == backlog.undelivered == 0,
    )


def _busy(backlog: Backlog, ready: int) -> int:
    return ready if backlog.holding is None else backlog.holding


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
    if sample.finished is None or sample.ready == 0 or sample.is_quiet:
        return meter
    work = Work(
        seconds=sample.seconds,
        finished=max(0, sample.finished - sample.dead_lettered),
        ready=sample.ready,
        busy=sum(sample.busy) / 2,
        busy_most=max(sample.busy),
        is_saturated=sample.is_saturated,
        has_room=sample.has_room,
    )
    return replace(meter, capacity=learn_capacity(meter.capacity, work))
