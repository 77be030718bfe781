"""Worker pods: they start, read ahead, handle one entry after the other, and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.scaling_sim.group import Cohort


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKind:
    """What one pod can do."""

    rate: float = 50.0  # entries per second
    starts_in_s: float = 2.0  # from its creation to its first read
    prefetch: int = 10  # entries it holds at most
    grace_s: float = 30.0  # to finish what it holds once it was told to end
    varies: bool = False  # handlers take from 0.4 to 1.6 of the mean


Started = Callable[[float, int], None]  # when they were added, how many
Finished = Callable[[Cohort], None]


class Pod:
    """One worker."""

    def __init__(self, serial: int, kind: WorkerKind, now: float) -> None:
        self.serial = serial
        self.kind = kind
        self.ready_at = now + kind.starts_in_s
        self.ends_by: float | None = None  # told to end; killed at this time
        self.hand: deque[Cohort] = deque()  # delivered, not begun
        self.unbegun = 0  # how many those are
        self.current: Cohort | None = None
        self.failed: list[tuple[float, int]] = []  # poison: first failure, how many
        self._credit = 0.0
        self._wanted = 1.0  # credit that the current entry takes

    @property
    def pending(self) -> int:
        """Entries that it owns."""
        return self.in_work + sum(count for _, count in self.failed)

    @property
    def in_work(self) -> int:
        """Entries that it is going to finish, if it is left alone."""
        return self.unbegun + (self.current is not None)

    def receive(self, cohorts: list[Cohort]) -> None:
        """Take over what a read gave."""
        self.hand.extend(cohorts)
        self.unbegun += sum(one.count for one in cohorts)

    def work(self, seconds: float, started: Started, finished: Finished) -> float:
        """Handle what it holds for a while; how long it was busy."""
        if self.current is None and not self._begin(started):
            return 0.0
        self._credit += seconds * self.kind.rate
        before = self._credit
        while self.current is not None and self._credit >= self._wanted:
            self._credit -= self._wanted
            finished(self.current)
            self.current = None
            if not self.kind.varies:
                self._rush(started, finished)
            self._begin(started)
        if self.current is None:
            idle, self._credit = self._credit, 0.0
            return max(0.0, seconds * min(1.0, (before - idle) / max(before, 1e-9)))
        return seconds

    def _rush(self, started: Started, finished: Finished) -> None:
        """Begin and finish at once as many as the credit pays for."""
        while self.hand and self._credit >= 1.0:
            oldest = self.hand[0]
            done = self._from(oldest, min(oldest.count, int(self._credit)))
            self._credit -= done.count
            started(done.added_at, done.count)
            finished(done)

    def _begin(self, started: Started) -> bool:
        if not self.hand:
            return False
        self.current = self._from(self.hand[0], 1)
        self._wanted = 0.4 + 1.2 * (self.current.first * 0.618034 % 1) if self.kind.varies else 1.0
        started(self.current.added_at, 1)
        return True

    def _from(self, oldest: Cohort, count: int) -> Cohort:
        self.unbegun -= count
        return self.hand.popleft() if count == oldest.count else oldest.take(count)
