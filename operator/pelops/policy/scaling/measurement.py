"""What scaling knows of a group: its backlog, its rates, and which pods hold entries.

Rates are measured from one observation to the next. Each is a count over a time, both decaying: an
observation is weighted by its interval, and a counter that jumped costs one sample. Times are the
server's, so the operator's clock does not matter.

A worker is busy if it holds entries at an observation. Two kinds of evidence show its capacity:

Measured   Entries waited during the whole interval, so every worker that reads had enough to do.
           What they finished is their capacity, whether higher or lower than assumed.
Inferred   At other times: entries finished per second of a busy worker. This may only raise the
           capacity, because a worker with several handlers counts as busy with one entry as with
           twenty. Entries whose handlers failed also keep an inactive worker busy.

So idle workers, and pods that are ready but have not read yet, never make a worker look slow.

The handling time is not measured for single entries. By Little's law it is the number of entries
held, times the interval, divided by the entries acknowledged in it. Prefetched entries count as
held.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from math import exp, sqrt
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a group at one instant, of its stream and of its retry stream together."""

    at: datetime  # server time of the observation
    exists: bool  # whether the group exists
    undelivered: int  # exact, or a lower bound
    is_exact: bool  # whether `undelivered` is exact
    held: int  # pending entries that workers may be processing
    waiting: int  # pending entries that wait for recovery: backoff, a retry batch, a dead owner
    added: int | None  # entries ever added, copies left out; a counter that may jump. None: unknown
    dead_letters: int  # length of the dead-letter stream
    holding: int | None = None  # consumers that hold entries; None: not known

    @property
    def deliverable(self) -> int:
        """Entries that require workers."""
        return self.undelivered + self.held

    @property
    def is_empty(self) -> bool:
        """Whether workers are certainly not needed; an unknown number is not zero."""
        return self.exists and self.is_exact and self.deliverable == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast entries come and go, per second. None: not measured yet."""

    arrivals: float | None = None
    acknowledged: float | None = None
    per_replica: float | None = None  # what one worker finishes when fully busy
    is_proven: bool = False  # per_replica was measured; if not, it is a lower bound


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPending:
    """How many entries one worker pod holds."""

    pod: str  # name
    uid: str
    pending: int
    at_work: int = 0  # of these, held by consumers that are busy
    created: datetime | None = None
    cost: int | None = None  # its annotation controller.kubernetes.io/pod-deletion-cost


@dataclass(frozen=True, slots=True, kw_only=True)
class FadingCount:
    """A count over a time; both decay together."""

    count: float = 0.0
    seconds: float = 0.0

    def fade(self, over_s: float, fade_s: float) -> FadingCount:
        """Return the count after `over_s` seconds of decay, with the time constant `fade_s`."""
        left = exp(-over_s / fade_s)
        return FadingCount(count=self.count * left, seconds=self.seconds * left)

    def add(self, count: float, seconds: float) -> FadingCount:
        """Return the sum with this count and time."""
        return FadingCount(count=self.count + count, seconds=self.seconds + seconds)

    def rate(self, *, shortest_s: float = 0.0) -> float | None:
        """Return the count per second, over `shortest_s` at least; None before any sample."""
        seconds = max(self.seconds, shortest_s)
        return self.count / seconds if self.seconds > 0 else None


MEASURED_S: Final = 10.0  # time constant of the decay of measured samples
INFERRED_S: Final = 15.0  # the same for inferred samples
ENOUGH: Final = 20.0  # entries; samples of fewer do not decay
LEAST_ENTRIES: Final = 5.0  # fewer are not significant
LEAST_S: Final = 5.0  # of one worker, for fewer than ENOUGH entries
JUMP: Final = 10.0  # a rate above this multiple of the known one means that the position was moved
MOSTLY_BUSY: Final = 0.9  # of the ready workers; then an inferred capacity is only a lower bound
# Per second. A capacity that fell returns to the best known one within two minutes, and one that
# was never measured rises slowly until entries wait.
RETURN: Final = 0.5 / 60
RISE: Final = 0.1 / 60
WRONG: Final = 1.2  # a raise beyond this multiple of the measured rate was wrong
PROVEN_AFTER_S: Final = 180.0  # of traffic without a contrary measurement
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
    is_saturated: bool  # entries waited during the whole interval
    has_room: bool  # no entries waited at either observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The known capacity of one worker; empty after a start."""

    per_replica: float | None = None  # entries per second of one worker
    proven: float | None = None  # as last measured, or unchanged for minutes
    best: float = 0.0  # the highest that was proven and not refuted since
    measured: FadingCount = field(default_factory=FadingCount)  # entries, seconds of workers
    inferred: FadingCount = field(default_factory=FadingCount)  # entries, seconds of busy workers
    present: FadingCount = field(
        default_factory=FadingCount
    )  # seconds of busy workers, of ready workers
    stood_s: float = 0.0  # since it was measured
    patience_s: float = FIRST_PATIENCE_S  # value of `wait_s` after the next wrong raise
    wait_s: float = 0.0  # until it may be raised above the best one


def learn_capacity(capacity: Capacity, work: WorkDone) -> Capacity:
    """Return the capacity after one more interval. Never raises."""
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
    """Lower a capacity that was never measured to `rate`, as entries wait."""
    known = capacity.per_replica
    if known is None or rate is None or capacity.proven is not None or known <= rate:
        return capacity
    return _judge_raise(replace(capacity, per_replica=rate), capacity)


def _judge_raise(capacity: Capacity, before: Capacity) -> Capacity:
    """Delay the next raise if this measurement refutes the last one, twice as long each time.

    The raise is refuted if the rate is as it was before the raise. If it is far lower than that,
    workers became slower, which proves nothing about the raise.
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
    """Return a rate closer to the best known, if workers are always busy and still have room."""
    if not work.has_room or (capacity.present.rate() or 0.0) < MOSTLY_BUSY:
        return known
    if known < capacity.best:
        return min(capacity.best, known * exp(min(1.0, RETURN * work.seconds)))
    if capacity.proven is not None or capacity.wait_s > 0:
        return known
    return known * exp(min(1.0, RISE * work.seconds))


def _least(capacity: Capacity, *, reserve: float) -> float | None:
    """Return the inferred rate less a reserve, in standard deviations, as samples are sparse.

    A new capacity requires a larger reserve than one that was proven before.
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
    """Add a sample; the sum decays only above `ENOUGH` entries, as slow work has few samples."""
    if tally.count > ENOUGH:
        tally = tally.fade(work.seconds, fade_s)
    return tally.add(count, seconds)


FADE_S: Final = 300.0
LEAST_ACKNOWLEDGED: Final = 5.0  # fewer are not significant


@dataclass(frozen=True, slots=True, kw_only=True)
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


def watch_handling(
    handling: HandlingTime, *, held: float, acknowledged: int, seconds: float
) -> HandlingTime:
    """Return the handling time after `seconds` in which workers held `held` entries. Total.

    Time without an acknowledgement counts only after the next one, and for `FADE_S` at most.
    Otherwise entries whose handlers failed would count as long work once traffic ends.
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


FAST_S: Final = 3.0  # time constant with which the arrival rate falls
SLOW_S: Final = 40.0  # time constant with which it rises: a burst is not a steady flow
ACKNOWLEDGED_S: Final = 15.0
OUTCOME_S: Final = 60.0  # the share of dead letters covers about a minute
SHORTEST_S: Final = 10.0  # the slow arrival rate covers at least this: a burst is not a steady flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What is remembered between two observations; empty after a start."""

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
        """The current rates."""
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
    """What happened between two observations."""

    seconds: float
    arrived: int | None  # None: a counter went back
    finished: int | None  # None: unknown
    dead_lettered: int
    held: float  # by workers, on average
    ready: int
    busy: tuple[int, int]  # workers that held entries at each observation
    is_quiet: bool  # no entries arrived, and the backlog was empty
    is_saturated: bool  # undelivered entries waited during the whole interval
    has_room: bool  # no undelivered entries waited at either observation


def measure(meter: Meter, backlog: Backlog, *, ready: int) -> Meter:
    """Return the meter after one more observation. Total.

    A second observation of the same instant changes nothing. If the server's clock or counters went
    back (a failover), a new count starts, and the rates are kept.
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
        # Negative if the position was set back: delivered entries are undelivered again.
        finished=finished if finished is not None and finished >= 0 else None,
        dead_lettered=max(0, backlog.dead_letters - last.dead_letters),
        held=(last.held + backlog.held) / 2,
        ready=ready,
        busy=busy,
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
