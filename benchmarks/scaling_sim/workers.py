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
    grace_s: float = 30.0  # to finish what it holds once it is terminating
    varies: bool = False  # handlers take from 0.4 to 1.6 of the mean
    batch: int = 0  # reads so many at a time and acknowledges them together; 0: one after the other
    slots: int = 0  # handles so many at the same time, each so much longer; 0: one
    first_read_s: float = 0.0  # from Ready to its first read
    pause_s: float = 0.0  # asks again so long after a read that found nothing; 0: it blocks
    slow_pod: int = 0  # the pod with this number handles a tenth; 0: none


Started = Callable[[float, int], None]  # when they were added, how many
Finished = Callable[[Cohort], None]


class Pod:
    """One worker."""

    def __init__(self, serial: int, kind: WorkerKind, now: float) -> None:
        self.serial = serial
        self.kind = kind
        self.ready_at = now + kind.starts_in_s
        self.reads_at = self.ready_at + kind.first_read_s
        self.speed = 0.1 if serial == kind.slow_pod else 1.0
        self.ends_by: float | None = None  # it is terminating, and killed at this time
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

    @property
    def room(self) -> int:
        """Entries that its next read asks for."""
        return self.kind.prefetch - self.in_work

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


class BatchPod(Pod):
    """A worker that reads a batch, acknowledges it as a whole, and reads the next one."""

    @property
    def room(self) -> int:
        """A batch, once the last one is acknowledged."""
        return 0 if self.unbegun else self.kind.batch

    def work(self, seconds: float, started: Started, finished: Finished) -> float:
        """Handle the batch; what is left of the time stays for the next one."""
        if not self.hand:
            self._credit = 0.0
            return 0.0
        if self._credit == 0.0:
            for cohort in self.hand:
                started(cohort.added_at, cohort.count)
        self._credit += seconds * self.kind.rate
        if self._credit < self.unbegun - 1e-6:
            return seconds
        spare = (self._credit - self.unbegun) / self.kind.rate
        while self.hand:
            finished(self.hand.popleft())
        self.unbegun, self._credit = 0, 0.0
        return max(0.0, seconds - spare)


class ConcurrentPod(Pod):
    """A worker whose handlers run side by side; it asks for as many as it has free slots."""

    def __init__(self, serial: int, kind: WorkerKind, now: float) -> None:
        super().__init__(serial, kind, now)
        self._running: deque[tuple[float, Cohort]] = deque()  # work that is left, for each of them

    @property
    def room(self) -> int:
        """Free slots."""
        return self.kind.slots - self.in_work

    @property
    def in_work(self) -> int:
        """Entries that it is going to finish."""
        return self.unbegun + sum(cohort.count for _, cohort in self._running)

    def work(self, seconds: float, started: Started, finished: Finished) -> float:
        """Let all of its handlers run."""
        while self.hand:
            cohort = self.hand.popleft()
            self.unbegun -= cohort.count
            started(cohort.added_at, cohort.count)
            self._running.append((self.kind.slots / self.kind.rate, cohort))
        busy = sum(cohort.count for _, cohort in self._running)
        left = [(work - seconds, cohort) for work, cohort in self._running]
        for work, cohort in left:
            if work <= 1e-6:
                finished(cohort)
        self._running = deque((work, cohort) for work, cohort in left if work > 1e-6)
        return seconds * busy / self.kind.slots


def make_pod(serial: int, kind: WorkerKind, now: float) -> Pod:
    """A new pod of this kind."""
    made = BatchPod if kind.batch else ConcurrentPod if kind.slots else Pod
    return made(serial, kind, now)
