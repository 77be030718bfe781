"""How fast one worker is, learned from what all workers finish between two observations.

A worker is busy if it holds entries at an observation. Two kinds of evidence show its capacity:

Measured   Entries waited during the whole interval, so every worker that reads had enough to do.
           What they finished is their capacity, whether higher or lower than assumed.
Inferred   At other times: entries finished per second of a busy worker. This may only raise the
           capacity, because a worker with several handlers counts as busy with one entry as with
           twenty. Entries whose handlers failed also keep an inactive worker busy.

So idle workers, and pods that are ready but have not read yet, never make a worker look slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Final

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What happened between two observations of a group."""

    seconds: float
    arrived: int | None = None  # entries; None: a counter went back
    finished: int | None  # entries, dead letters among them; None: unknown
    dead_lettered: int = 0
    held: float = 0.0  # entries that workers held, on average
    ready: int  # workers; 0 if their number changed
    busy: float  # workers that held entries, on average of both observations
    busy_most: int  # the greater of both
    is_quiet: bool = False  # no entries arrived, and the backlog was empty
    is_saturated: bool  # undelivered entries waited during the whole interval
    has_room: bool  # no undelivered entries waited at either observation

    @property
    def acknowledged(self) -> int:
        """Entries that workers finished; 0 if unknown."""
        return max(0, (self.finished or 0) - self.dead_lettered)


@dataclass(slots=True, kw_only=True)
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

    def learn(self, interval: Interval) -> None:
        """Learn from one more interval. Never raises."""
        known, worked_s = (
            self.per_replica,
            interval.seconds * max(interval.busy_most, interval.ready),
        )
        if known is not None and interval.acknowledged > JUMP * known * worked_s + ENOUGH:
            return
        if interval.is_saturated:
            self._measure(interval)
        else:
            self._infer(interval)

    def _measure(self, interval: Interval) -> None:
        workers = min(interval.busy_most, interval.ready)
        if workers == 0:
            return
        self.measured = _add(self.measured, interval, workers * interval.seconds, MEASURED_S)
        count, seconds, rate = self.measured.count, self.measured.seconds, self.measured.rate()
        is_enough = count >= ENOUGH or (count >= LEAST_ENTRIES and seconds >= LEAST_S)
        if rate is None or not is_enough:
            self._lower(rate if count >= LEAST_ENTRIES else None)
            return
        self._correct(rate)
        self.proven, self.stood_s = rate, 0.0
        self.inferred, self.present = FadingCount(), FadingCount()

    def _lower(self, rate: float | None) -> None:
        """Lower a capacity that was never measured to `rate`, as entries wait."""
        known = self.per_replica
        if known is None or rate is None or self.proven is not None or known <= rate:
            return
        self._correct(rate)

    def _correct(self, rate: float) -> None:
        """Set the capacity to `rate`, and delay the next raise if `rate` refutes the last one,
        twice as long each time.

        The raise is refuted if the rate is as it was before the raise. If it is far lower than
        that, workers became slower, which proves nothing about the raise.
        """
        raised, sure = self.per_replica, self.proven or self.inferred.rate() or 0.0
        self.per_replica = rate
        if raised is None or raised <= WRONG * max(rate, sure):
            self.best = max(self.best, rate)
        elif rate * WRONG < sure:
            self.best = max(self.best, raised)
        else:
            self.best, self.wait_s = rate, self.patience_s
            self.patience_s = min(LONGEST_PATIENCE_S, 2 * self.patience_s)

    def _infer(self, interval: Interval) -> None:
        seconds = interval.seconds
        busy_s, ready_s = interval.busy * seconds, interval.ready * seconds
        self.inferred = _add(self.inferred, interval, busy_s, INFERRED_S)
        self.present = self.present.fade(seconds, INFERRED_S).add(busy_s, ready_s)
        self.measured = self.measured.fade(seconds, MEASURED_S)
        self.wait_s = max(0.0, self.wait_s - seconds)
        self.stood_s += seconds
        if not interval.has_room and interval.busy >= interval.ready:
            self._lower(self.inferred.rate())
        self._raise(interval)
        if self.proven is not None and self.stood_s >= PROVEN_AFTER_S:
            self._prove()

    def _raise(self, interval: Interval) -> None:
        known, new = self.per_replica, self._least(reserve=1.5)
        if known is None or new is None:
            self.per_replica = known or new
            return
        again = min(self.best, self._least(reserve=1.0) or 0.0)
        if self.wait_s > 0:
            new = min(self.best, new)
        self.per_replica = max(known, again, new, self._return(known, interval))

    def _return(self, known: float, interval: Interval) -> float:
        """Return a rate closer to the best known, if workers are always busy and still have
        room.
        """
        if not interval.has_room or (self.present.rate() or 0.0) < MOSTLY_BUSY:
            return known
        if known < self.best:
            return min(self.best, known * exp(min(1.0, RETURN * interval.seconds)))
        if self.proven is not None or self.wait_s > 0:
            return known
        return known * exp(min(1.0, RISE * interval.seconds))

    def _least(self, *, reserve: float) -> float | None:
        """Return the inferred rate less a reserve, in standard deviations, as samples are sparse.

        A new capacity requires a larger reserve than one that was proven before.
        """
        count, seconds = self.inferred.count, self.inferred.seconds
        if count < LEAST_ENTRIES:
            return None
        idle = max(0.0, 1.0 - (self.present.rate() or 0.0))
        return (count - sqrt(count)) / (seconds + reserve * sqrt(seconds * idle) + 1)

    def _prove(self) -> None:
        """Take the capacity as proven, because no measurement was contrary to it for minutes."""
        self.proven, self.stood_s = self.per_replica or 0.0, 0.0
        if self.proven > self.best:
            self.best, self.patience_s = self.proven, FIRST_PATIENCE_S


def _add(tally: FadingCount, interval: Interval, seconds: float, fade_s: float) -> FadingCount:
    """Add a sample; the sum decays only above `ENOUGH` entries, as slow work has few samples."""
    if tally.count > ENOUGH:
        tally = tally.fade(interval.seconds, fade_s)
    return tally.add(interval.acknowledged, seconds)
