"""The world that every autoscaler meets: entries come, pods start and read, pods end.

The same for all of them. What it keeps is what an outsider could measure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.scaling_sim.group import Cohort, StreamGroup
from benchmarks.scaling_sim.workers import Pod, WorkerKind, make_pod

TICK_S = 0.25
GOLDEN = 0.6180339887  # its multiples spread evenly over an interval, whatever is looked at
GIVEN_UP_AFTER_S = 1200.0  # 4 deliveries, each for the processing timeout of 300 s
RECOVERED_AFTER_S = 1.0  # of a pod whose deletion was observed
DEAD_OWNER_RECOVERED_AFTER_S = 300.0  # of a consumer that no pod matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write of the number of replicas."""

    at: float
    before: int
    after: int
    owed: int  # what workers could do at that moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The world at one second."""

    at: float
    replicas: int  # asked for
    pods: int  # that exist
    undelivered: int
    in_work: int  # entries that pods hold and will finish
    pending: int  # all that were delivered and not acknowledged
    arrived: int  # within this second


class World:
    """One group and its workers, from the first second on."""

    def __init__(self, kind: WorkerKind, *, deletes: bool = False) -> None:
        self.now = 0.0
        self.group = StreamGroup()
        self.kind = kind
        self.deletes = deletes  # workers XDEL what they acknowledged
        self.speed = 1.0  # of all handlers
        self.replicas = 0
        self.pods: list[Pod] = []
        self.ownerless: list[tuple[float, int, bool]] = []  # recovered when, how many, poison
        self.dead_letters = 0
        self.requeued = 0
        self.interrupted = 0  # handlers that were killed in the middle
        self.waits: Counter[float] = Counter()
        self.pod_seconds = 0.0
        self.busy_seconds = 0.0
        self.writes: list[Write] = []
        self.samples: list[Sample] = []
        self._serial = 0
        self._ticks = 0
        self._just_now: list[Pod] = []  # at work at this instant, though the tick finished it
        self._arrived = 0

    def add(self, count: int, *, is_poison: bool = False) -> None:
        """Producers add entries."""
        self._arrived += count
        self.group.add(count, self.now, is_poison=is_poison)

    def strand(self, count: int) -> None:
        """So many entries are pending with a consumer that no pod will ever be again."""
        self.group.add(count, self.now)
        self.group.deliver(count)
        self.ownerless.append((self.now + DEAD_OWNER_RECOVERED_AFTER_S, count, False))

    def scale(self, replicas: int, rank: Callable[[Pod], float] | None = None) -> None:
        """Set the replicas. Of pods that go, those not ready are first, then by rank, the youngest.

        Without a rank this is the order of a ReplicaSet.
        """
        if replicas == self.replicas:
            return
        self.writes.append(Write(at=self.now, before=self.replicas, after=replicas, owed=self.owed))
        self.replicas = replicas
        alive = self.alive
        for _ in range(replicas - len(alive)):
            self._serial += 1
            self.pods.append(make_pod(self._serial, self.kind, self.now))
        if len(alive) > replicas:
            ranked = rank or (lambda pod: 0.0)
            alive.sort(key=lambda pod: (pod.ready_at <= self.now, ranked(pod), -pod.serial))
            for pod in alive[: len(alive) - replicas]:
                pod.ends_by = self.now + self.kind.grace_s

    @property
    def alive(self) -> list[Pod]:
        """Pods that are not terminating."""
        return [pod for pod in self.pods if pod.ends_by is None]

    @property
    def ready(self) -> int:
        """How many of those read."""
        return sum(pod.ready_at <= self.now for pod in self.alive)

    @property
    def in_work(self) -> int:
        """Entries that pods hold and will finish, at this instant."""
        return sum(pod.in_work for pod in self.pods) + len(self._just_now)

    @property
    def owed(self) -> int:
        """Entries that workers can do something about."""
        return self.group.undelivered + self.in_work

    @property
    def holding(self) -> int:
        """How many consumers hold entries at this instant."""
        pods = sum(pod.pending > 0 or pod in self._just_now for pod in self.pods)
        return pods + bool(self.ownerless)

    @property
    def pending(self) -> int:
        """What XPENDING counts at this instant."""
        failed = sum(pod.pending - pod.in_work for pod in self.pods)
        return self.in_work + failed + sum(one[1] for one in self.ownerless)

    def step(self) -> None:
        """Let one tick pass, after this tick's entries were added."""
        self._recover()
        self._deliver()
        spent = [(pod, self._work(pod)) for pod in self.pods]
        self._ticks += 1
        self._deliver()  # hands are full while entries are left: they read the moment they can
        self._look_within(spent)
        self._end_pods()
        self.pod_seconds += len(self.pods) * TICK_S
        self.now += TICK_S
        if math.isclose(self.now % 1.0, 0.0):
            self._sample()

    def _work(self, pod: Pod) -> float:
        """Let the pod handle what it holds, and read on within the tick; how long it was busy."""
        busy_s, pace = 0.0, self.speed * pod.speed
        while pod.in_work and TICK_S - busy_s > 1e-6:
            spent = pod.work((TICK_S - busy_s) * pace, self._started, self._finisher(pod)) / pace
            busy_s += spent
            if not pod.kind.batch or pod.in_work or pod.ends_by is not None:
                break
            pod.receive(self.group.deliver(pod.room))
        return busy_s

    def _look_within(self, spent: Iterable[tuple[Pod, float]]) -> None:
        """A look at a random instant of the tick finds a pod at work as likely as it was at work.

        Else a fleet that finishes within each tick what comes in it would look idle for ever. Pods
        that hold entries at the end of the tick count as working without this.
        """
        self._just_now = []
        passed = self._ticks * GOLDEN % 1.0
        for pod, busy_s in spent:
            self.busy_seconds += busy_s
            if pod.in_work == 0:
                before, passed = passed, passed + busy_s / TICK_S
                if int(passed) > int(before):
                    self._just_now.append(pod)

    def _started(self, added_at: float, count: int) -> None:
        self.waits[self.now - added_at] += count

    def _finisher(self, pod: Pod) -> Callable[[Cohort], None]:
        def finish(done: Cohort) -> None:
            if done.is_poison:
                pod.failed.append((self.now, done.count))
            elif self.deletes:
                self.group.delete_delivered(done.count, done.first + done.count - 1)

        return finish

    def _deliver(self) -> None:
        if not self.group.ahead and not self.kind.pause_s:
            return
        readers = [
            (pod, room)
            for pod in self._in_turn()
            if pod.ends_by is None and pod.reads_at <= self.now and (room := self._room(pod)) > 0
        ]
        for left, (pod, room) in zip(range(len(readers), 0, -1), readers, strict=True):
            fair = math.ceil(self.group.undelivered / left)
            given = self.group.deliver(room if pod.kind.batch else min(room, fair))
            pod.receive(given)
            if not given and not pod.in_work:
                chance = (pod.serial + self._ticks) * GOLDEN % 1.0  # or they keep step for ever
                pod.reads_at = self.now + pod.kind.pause_s * (0.5 + chance)

    def _in_turn(self) -> list[Pod]:
        """All pods, another one first each time."""
        first = self._ticks % max(1, len(self.pods))
        return self.pods[first:] + self.pods[:first]

    def _room(self, pod: Pod) -> int:
        """What it may be given now: readers come back often within a tick."""
        if pod.kind.batch or pod.kind.slots:
            return pod.room
        within_tick = int(pod.kind.rate * TICK_S) + 1
        return max(pod.kind.prefetch, within_tick) - pod.in_work

    def _end_pods(self) -> None:
        stays = []
        for pod in self.pods:
            if pod.ends_by is None:
                self._give_up(pod)
                stays.append(pod)
            elif pod.in_work and self.now < pod.ends_by:
                stays.append(pod)
            else:
                self._bury(pod)
        self.pods = stays

    def _give_up(self, pod: Pod) -> None:
        """Poison ends as dead letters when it failed often enough."""
        while pod.failed and pod.failed[0][0] + GIVEN_UP_AFTER_S <= self.now:
            self.dead_letters += pod.failed.pop(0)[1]

    def _bury(self, pod: Pod) -> None:
        self.interrupted += pod.current is not None
        lost, poison = pod.in_work, pod.pending - pod.in_work
        at = self.now + RECOVERED_AFTER_S
        self.ownerless += [(at, n, bad) for n, bad in ((lost, False), (poison, True)) if n]

    def _recover(self) -> None:
        """Entries of owners that no longer exist are added again, with every autoscaler."""
        for due, count, is_poison in [one for one in self.ownerless if one[0] <= self.now]:
            self.ownerless.remove((due, count, is_poison))
            self.group.add(count, self.now, is_poison=is_poison)
            self.requeued += count

    def _sample(self) -> None:
        self.samples.append(
            Sample(
                at=self.now,
                replicas=self.replicas,
                pods=len(self.pods),
                undelivered=self.group.undelivered,
                in_work=self.in_work,
                pending=self.pending,
                arrived=self._arrived,
            )
        )
        self._arrived = 0

    def unserved(self) -> list[Cohort]:
        """Entries that no handler has begun with."""
        return [*self.group.ahead, *(one for pod in self.pods for one in pod.hand)]
