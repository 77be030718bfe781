"""What scaling knows of a group: its backlog, its rates, and which pods hold entries.

Rates are measured from one look to the next. Everything is a count over a time, both fading: a look
that comes late weighs by its length, and a counter that jumped costs one sample. Times are the
server's, so no clock of ours matters.

Busy is a worker that holds entries at an observation. Two kinds of evidence tell its capacity:

measured   entries waited during the whole interval: every worker that reads had enough to do, and
           what they finished is their capacity, be it more or less than was thought
inferred   at other times: what was finished, divided by the seconds of busy workers. It may only
           raise the capacity: a worker with several handlers is busy with one entry as with twenty,
           and entries whose handlers failed keep a worker busy that does nothing

So idle workers, and pods that are ready and have not read yet, never make a worker look slow.

No single entry is followed. By Little's law it is the number held at a time, times that time, for
each entry that was acknowledged in it; a buffer of prefetched entries counts as held.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from math import exp, sqrt
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a group at one instant, of its stream and of its retry stream together."""

    at: datetime  # server time of the look
    exists: bool  # the group does
    undelivered: int  # exact, or at least so many
    is_exact: bool  # whether `undelivered` is all
    held: int  # pending entries that workers may be processing
    waiting: int  # pending entries that no worker can help now: backoff, their turn, a dead owner
    added: int | None  # entries ever added, copies left out; a counter that may jump. None: unknown
    dead_letters: int  # length of the dead-letter stream
    holding: int | None = None  # consumers that hold entries; None: not known

    @property
    def deliverable(self) -> int:
        """Entries that workers are needed for."""
        return self.undelivered + self.held

    @property
    def is_empty(self) -> bool:
        """Whether workers are certainly not needed; an unknown number is no zero."""
        return self.exists and self.is_exact and self.deliverable == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast entries come and go, per second. None: not measured yet."""

    arrivals: float | None = None
    acknowledged: float | None = None
    per_replica: float | None = None  # what one worker finishes while there is enough to do
    is_proven: bool = False  # per_replica was seen so; else it is what a worker does at least


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPending:
    """How many entries one worker pod holds."""

    pod: str  # name
    uid: str
    pending: int
    at_work: int = 0  # of these, what handlers are still busy with
    created: datetime | None = None
    cost: int | None = None  # its annotation controller.kubernetes.io/pod-deletion-cost


@dataclass(frozen=True, slots=True, kw_only=True)
class FadingCount:
    """A count over a time, both fading together."""

    count: float = 0.0
    seconds: float = 0.0

    def fade(self, over_s: float, fade_s: float) -> FadingCount:
        """What is left of it `over_s` seconds later."""
        left = exp(-over_s / fade_s)
        return FadingCount(count=self.count * left, seconds=self.seconds * left)

    def add(self, count: float, seconds: float) -> FadingCount:
        """The tally with more of both."""
        return FadingCount(count=self.count + count, seconds=self.seconds + seconds)

    def rate(self, *, shortest_s: float = 0.0) -> float | None:
        """Count per second, over `shortest_s` at least; None when nothing was seen."""
        seconds = max(self.seconds, shortest_s)
        return self.count / seconds if self.seconds > 0 else None


MEASURED_S: Final = 10.0  # what was measured is forgotten so slowly, ...
INFERRED_S: Final = 15.0  # ... and what was inferred so
ENOUGH: Final = 20.0  # entries; with fewer nothing is forgotten
LEAST_ENTRIES: Final = 5.0  # fewer tell nothing
LEAST_S: Final = 5.0  # of one worker, for fewer than ENOUGH entries
JUMP: Final = 10.0  # so much faster than ever seen is no work but a position that was moved
MOSTLY_BUSY: Final = 0.9  # of the ready workers; then what is inferred is a lower bound only
# Per second. A capacity that fell returns to the best known one within two minutes, and one that
# was never measured rises slowly until entries wait.
RETURN: Final = 0.5 / 60
RISE: Final = 0.1 / 60
WRONG: Final = 1.2  # times what is measured then
PROVEN_AFTER_S: Final = 180.0  # of traffic without a measurement that says otherwise
FIRST_PATIENCE_S: Final = 240.0
LONGEST_PATIENCE_S: Final = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """What workers did between two observations."""

    seconds: float
    finished: int
    ready: int
    busy: float  # workers that held entries, on average
    busy_most: int  # the greater of both numbers
    is_saturated: bool  # entries waited all the time
    has_room: bool  # none waited at either observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What is known of it; empty after a start."""

    per_replica: float | None = None  # entries per second of one worker
    proven: float | None = None  # as it was measured last, or stood for minutes
    best: float = 0.0  # the highest that was proven and not refuted since
    measured: FadingCount = field(default_factory=FadingCount)  # entries, seconds of workers
    inferred: FadingCount = field(default_factory=FadingCount)  # entries, seconds of busy workers
    present: FadingCount = field(
        default_factory=FadingCount
    )  # seconds of busy workers, of ready workers
    stood_s: float = 0.0  # since it was measured
    patience_s: float = FIRST_PATIENCE_S  # after the next time that a raise was wrong
    wait_s: float = 0.0  # until it may be raised above the best one


def learn_capacity(capacity: Capacity, work: WorkDone) -> Capacity:
    """The capacity after one more interval. Never raises."""
    known, worked_s = capacity.per_replica, work.seconds * max(work.busy_most, work.ready)
    if known is not None and work.finished > JUMP * known * worked_s + ENOUGH:
        return capacity
    return _measure(capacity, work) if work.is_saturated else _infer(capacity, work)


def _measure(capacity: Capacity, work: WorkDone) -> Capacity:
    workers = min(work.busy_most, work.ready)
    if workers == 0:
        return capacity
    measured = _add(capacity.measured, work.finished, workers * work.seconds, work, MEASURED_S)
    capacity = replace(capacity, measured=measured)
    is_long = measured.count >= LEAST_ENTRIES and measured.seconds >= LEAST_S
    rate = measured.rate()
    if rate is None or not (is_long or measured.count >= ENOUGH):
        return _end_rise(capacity, rate if measured.count >= LEAST_ENTRIES else None)
    known = replace(capacity, per_replica=rate, proven=rate, stood_s=0.0)
    return _judge_raise(replace(known, inferred=FadingCount(), present=FadingCount()), capacity)


def _end_rise(capacity: Capacity, rate: float | None) -> Capacity:
    """A capacity that was never measured is given up as soon as entries wait."""
    known = capacity.per_replica
    if known is None or rate is None or capacity.proven is not None or known <= rate:
        return capacity
    return _judge_raise(replace(capacity, per_replica=rate), capacity)


def _judge_raise(capacity: Capacity, before: Capacity) -> Capacity:
    """A raise that a measurement refutes is not tried again for twice as long each time.

    It is refuted when the capacity is what it was before the raise. When it is far lower than that,
    workers became slower, which says nothing of the raise.
    """
    rate, raised = capacity.per_replica or 0.0, before.per_replica
    sure = before.proven or before.inferred.rate() or 0.0
    if raised is None or raised <= WRONG * max(rate, sure):
        return replace(capacity, best=max(capacity.best, rate))
    if rate * WRONG < sure:
        return replace(capacity, best=max(capacity.best, raised))
    longer = min(LONGEST_PATIENCE_S, 2 * before.patience_s)
    return replace(capacity, best=rate, wait_s=before.patience_s, patience_s=longer)


def _infer(capacity: Capacity, work: WorkDone) -> Capacity:
    busy_s, ready_s = work.busy * work.seconds, work.ready * work.seconds
    capacity = replace(
        capacity,
        inferred=_add(capacity.inferred, work.finished, busy_s, work, INFERRED_S),
        present=capacity.present.fade(work.seconds, INFERRED_S).add(busy_s, ready_s),
        measured=capacity.measured.fade(work.seconds, MEASURED_S),
        wait_s=max(0.0, capacity.wait_s - work.seconds),
        stood_s=capacity.stood_s + work.seconds,
    )
    if not work.has_room and work.busy >= work.ready:
        capacity = _end_rise(capacity, capacity.inferred.rate())
    return _prove_by_time(_raise(capacity, work))


def _raise(capacity: Capacity, work: WorkDone) -> Capacity:
    known, new = capacity.per_replica, _least(capacity, reserve=1.5)
    if known is None or new is None:
        return replace(capacity, per_replica=known or new)
    again = min(capacity.best, _least(capacity, reserve=1.0) or 0.0)
    if capacity.wait_s > 0:
        new = min(capacity.best, new)
    return replace(capacity, per_replica=max(known, again, new, _return(capacity, known, work)))


def _return(capacity: Capacity, known: float, work: WorkDone) -> float:
    """Back towards the best known, for workers that are busy all the time and still have room."""
    if not work.has_room or (capacity.present.rate() or 0.0) < MOSTLY_BUSY:
        return known
    if known < capacity.best:
        return min(capacity.best, known * exp(min(1.0, RETURN * work.seconds)))
    if capacity.proven is not None or capacity.wait_s > 0:
        return known
    return known * exp(min(1.0, RISE * work.seconds))


def _least(capacity: Capacity, *, reserve: float) -> float | None:
    """The rate less a reserve, in standard deviations: busy workers are counted only now and then.

    What was never proven takes more evidence than what was.
    """
    count, seconds = capacity.inferred.count, capacity.inferred.seconds
    if count < LEAST_ENTRIES:
        return None
    idle = max(0.0, 1.0 - (capacity.present.rate() or 0.0))
    return (count - sqrt(count)) / (seconds + reserve * sqrt(seconds * idle) + 1)


def _prove_by_time(capacity: Capacity) -> Capacity:
    if capacity.proven is None or capacity.stood_s < PROVEN_AFTER_S:
        return capacity
    rate = capacity.per_replica or 0.0
    capacity = replace(capacity, proven=rate, stood_s=0.0)
    if rate <= capacity.best:
        return capacity
    return replace(capacity, best=rate, patience_s=FIRST_PATIENCE_S)


def _add(
    tally: FadingCount, count: float, seconds: float, work: WorkDone, fade_s: float
) -> FadingCount:
    """Slow work is seen seldom: what little is known of it is not forgotten."""
    if tally.count > ENOUGH:
        tally = tally.fade(work.seconds, fade_s)
    return tally.add(count, seconds)


FADE_S: Final = 300.0
LEAST_ACKNOWLEDGED: Final = 5.0  # fewer tell nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingTime:
    """Entry-seconds that were spent, and what came of them; empty after a start."""

    held_s: float = 0.0  # entries times seconds, ...
    acknowledged: float = 0.0  # ... and the entries that this brought to an end
    open_held_s: float = 0.0  # what was spent since the last one was acknowledged, ...
    open_s: float = 0.0  # ... and for how long

    @property
    def mean_s(self) -> float | None:
        """Seconds that a worker holds an entry; None while too little was seen."""
        if self.acknowledged < LEAST_ACKNOWLEDGED:
            return None
        return self.held_s / self.acknowledged


def watch_handling(
    handling: HandlingTime, *, held: float, acknowledged: int, seconds: float
) -> HandlingTime:
    """What is known after so many seconds with `held` entries in the workers' hands. Total.

    Time in which nothing is acknowledged counts only when something is, and for no more than
    `FADE_S`: else entries whose handlers failed would pass for long work once traffic ends.
    """
    counted = max(0.0, min(seconds, FADE_S - handling.open_s))
    open_held_s = handling.open_held_s + held * counted
    open_s = handling.open_s + counted
    if acknowledged <= 0:
        return replace(handling, open_held_s=open_held_s, open_s=open_s)
    left = exp(-open_s / FADE_S)
    return HandlingTime(
        held_s=handling.held_s * left + open_held_s,
        acknowledged=handling.acknowledged * left + acknowledged,
    )


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
    fast: FadingCount = field(default_factory=FadingCount)  # arrivals
    slow: FadingCount = field(default_factory=FadingCount)  # arrivals
    acknowledged: FadingCount = field(default_factory=FadingCount)
    finished: float = 0.0  # entries in the last minute or so, dead letters among them
    dead_lettered: float = 0.0
    capacity: Capacity = field(default_factory=Capacity)  # of one worker
    handling: HandlingTime = field(default_factory=HandlingTime)

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
    is_quiet: bool  # nothing came, and the backlog was empty
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
    before = last.deliverable + last.waiting
    after = backlog.deliverable + backlog.waiting
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
    work = WorkDone(
        seconds=sample.seconds,
        finished=max(0, sample.finished - sample.dead_lettered),
        ready=sample.ready,
        busy=sum(sample.busy) / 2,
        busy_most=max(sample.busy),
        is_saturated=sample.is_saturated,
        has_room=sample.has_room,
    )
    return replace(meter, capacity=learn_capacity(meter.capacity, work))
