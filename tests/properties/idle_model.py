"""Workers that live on while entries fail, and an operator that moves what idles past the limit.

The stream and its recovery are those of `crash_model`; what differs is how workers fail, and that
entries idle instead of their owners' ending. A step is 10 ms of the server's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import FINISHED, PARALLEL, ConsumerProgress, Death, RetryBatch, Suspect
from pelops.policy.recovery.attempts import (
    AttemptPlan,
    Backoff,
    Crash,
    OwnerPlan,
    Rules,
    plan_attempts,
)
from tests.properties.crash_model import AT_ONCE, STEP, Entry, Habit, Process, Scene, World

SCAN_EVERY: Final = 25  # steps
FOLLOWED_FOR: Final = 25  # steps for which one scan continues to release
FOR_EVER: Final = 10**9


class Failing(StrEnum):
    """How a worker that survives a poison entry behaves."""

    SWALLOWS = "catches the error, acknowledges nothing, goes on with the next entry"
    HANGS = "stops for ever, with all it has read"
    HANGS_LONG = "stops for three limits, then goes on"
    HANGS_IN_A_SLOT = "runs ten at a time, of which the poison stops one"
    READS_ON = "hangs, while another thread goes on reading"
    CANNOT_PARSE = "loses the whole answer that holds the poison, and reads on"
    CRASHES_TOO = "swallows, and some entries crash it"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleScene:
    """The events of one simulation."""

    failing: Failing
    entries: int = 80
    poisons: int = 1
    workers: int = 3
    count: int = 10  # what one read asks for
    max_retries: int = 3
    limit: int = 100  # steps: the processing timeout
    handling: int = 0  # steps that one entry takes; 0: ten entries a step
    lost: float = 0.0  # how likely the answer to a read is lost
    crashers: int = 0  # poisons that crash their worker
    ahead: int = 40  # entries at most that a worker holds while it continues to read
    arrivals: int = 0  # one more entry every so many steps
    backoff: Backoff = AT_ONCE
    reports_progress: bool = True  # the server does: not before Redis 7.2
    is_pod: bool = True  # the workers' names are those of pods


@dataclass(slots=True)
class Worker(Process):
    """One process that lives on."""

    busy_until: int = 0
    asked: datetime | None = None  # it last read, with an answer or without
    given: datetime | None = None
    hung: int = 0  # slots


class IdleWorld(World):
    """The same stream and group, with workers that fail without ending."""

    def __init__(self, scene: IdleScene, seed: int) -> None:
        self.idle_scene = scene
        super().__init__(
            Scene(
                habit=Habit.ONE_BY_ONE,
                entries=scene.entries,
                poisons=scene.poisons,
                workers=scene.workers,
                max_retries=scene.max_retries,
                backoff=scene.backoff,
                renames=True,
            ),
            seed,
        )
        self.step = 0
        self.crashers = set(sorted(self.poisons)[: scene.crashers])
        self.roots = scene.entries

    @staticmethod
    def _born_process(consumer: str) -> Worker:
        return Worker(consumer=consumer)

    def live(self, limits: int) -> int:
        """Go on until nothing is left; how many limits it took, or an error after so many."""
        while self.step < limits * self.idle_scene.limit:
            self._tick()
            if self.has_died or self.step % SCAN_EVERY == 0:
                self.has_died = False
                self._scan()
            if not self.pending and not self.waiting:
                return -(-self.step // self.idle_scene.limit)
        raise AssertionError(
            f"after {limits} limits: {len(self.pending)} pending, {len(self.waiting)} waiting,"
            f" {len(self.letters)} given up"
        )

    def _tick(self) -> None:
        self.step += 1
        self.now += STEP
        scene = self.idle_scene
        if (
            scene.arrivals
            and self.step % scene.arrivals == 0
            and self.step < 20 * self.idle_scene.limit
        ):
            self._add(Entry(root=self.roots))
            self.roots += 1
        # Blocked readers are served in the order of their coming.
        places = list(range(len(self.processes)))
        self.chance.shuffle(places)
        for place in places:
            worker = self.processes[place]
            assert isinstance(worker, Worker)
            if self._live_on(worker):
                self.crashes += 1
                self._bury(worker.consumer, Death.CRASHED, place)

    # -- workers

    def _live_on(self, worker: Worker) -> bool:
        """One step of a worker's life; whether it ended."""
        scene = self.idle_scene
        if scene.failing is Failing.READS_ON and len(worker.held) < scene.ahead:
            self._take(worker)
        if worker.busy_until > self.step:
            return False
        if not worker.held:
            self._take(worker)
        for _ in range(1 if scene.handling else 10):
            if not worker.held or worker.busy_until > self.step:
                break
            worker.busy_until = self.step + scene.handling
            entry_id = worker.held.pop(0)
            root = self.bodies[entry_id].root
            if root in self.crashers:
                return True
            if root in self.poisons:
                self._fail(worker)
            else:
                self._finish(entry_id)
        return False

    def _fail(self, worker: Worker) -> None:
        """The effect of a poison entry on a worker that does not end."""
        failing = self.idle_scene.failing
        if failing in (Failing.HANGS, Failing.READS_ON):
            worker.busy_until = FOR_EVER
        elif failing is Failing.HANGS_LONG:
            worker.busy_until = self.step + 3 * self.idle_scene.limit
        elif failing is Failing.HANGS_IN_A_SLOT:
            worker.hung += 1
            if worker.hung == 10:
                worker.busy_until = FOR_EVER

    def _take(self, worker: Worker) -> None:
        ids = [self.waiting.pop() for _ in range(min(self.idle_scene.count, len(self.waiting)))]
        worker.asked = self.now
        if not ids:
            return
        worker.given = self.now
        for entry_id in ids:
            self.pending[entry_id] = worker.consumer
            self.holdings[worker.consumer][entry_id] = self.now
        is_lost = self.chance.random() < self.idle_scene.lost
        if self.idle_scene.failing is Failing.CANNOT_PARSE:
            is_lost = is_lost or any(self.bodies[one].root in self.poisons for one in ids)
        if not is_lost:
            worker.held += ids

    def _finish(self, entry_id: EntryId) -> None:
        """Acknowledge it, whichever worker holds it by now; a copy may still wait."""
        if self.pending.get(entry_id) is not None:
            self._drop(entry_id)
        self.acknowledged.add(self.bodies[entry_id].root)

    # -- the operator

    def _scan(self) -> None:
        owners = [owner for owner in sorted(self.ended) if self.holdings[owner]]
        crashes = [crash for owner in owners if (crash := self._recover(owner))]
        crashes += self._recover_idle()
        retry_batch = self._observe_retry_batch()
        if not crashes and not retry_batch.written:
            return
        scene = self.idle_scene
        rules = Rules(max_retries=scene.max_retries, backoff=scene.backoff)
        until = self.step + FOLLOWED_FOR
        plan = plan_attempts(crashes, retry_batch, rules, now=self.now)
        following = plan.following
        for owner in plan.owners:
            plan = plan.after(self._settle(plan, owner))
        for owner in following:
            if not self._is_delivered(plan, until):
                break
            plan = plan.after(self._settle(plan, owner))

    def _is_delivered(self, plan: AttemptPlan, until: int) -> bool:
        while self.step < until:
            self._tick()
            if not plan.kept.intersection(self.waiting):
                return True
        return False

    def _observe_retry_batch(self) -> RetryBatch:
        seen = super()._observe_retry_batch()
        return RetryBatch(
            written=seen.written,
            under_way=seen.under_way,
            undelivered=seen.under_way.intersection(self.waiting),
        )

    def _settle(self, plan: AttemptPlan, owner: OwnerPlan) -> str:
        # Between the look and the script a worker may have acknowledged it.
        there = tuple(one for one in owner.settlements if one.entry_id in self.pending)
        kept = OwnerPlan(
            owner=owner.owner, cutoff=owner.cutoff, settlements=there, co_failed=owner.co_failed
        )
        super()._settle(plan, kept)
        words = (PARALLEL if plan.is_parallel else "", FINISHED if plan.has_finished else "")
        self.retry_batch = " ".join(filter(None, (*words, self.retry_batch)))
        return self.retry_batch

    def _recover_idle(self) -> list[Crash]:
        found: list[Crash] = []
        for owner, held in self.holdings.items():
            if owner in self.ended:
                continue
            suspects: list[Suspect] = []
            for entry_id, delivered in list(held.items()):
                if self.now - delivered < self.idle_scene.limit * STEP:
                    continue
                retries = self.bodies[entry_id].retries
                if retries or self.idle_scene.max_retries == 0:
                    attempts, alone = self.tries.get(entry_id, (0, 0))
                    suspects.append(
                        Suspect(
                            entry_id=entry_id,
                            attempts=max(retries, attempts),
                            isolated_failures=alone,
                            delivered=delivered,
                            deliveries=1,
                        )
                    )
                elif self.now - delivered >= self.idle_scene.backoff.after(1):
                    self._move(entry_id, 1)
            if suspects:
                found.append(
                    Crash(
                        owner=owner,
                        cutoff=max(one.delivered for one in suspects) + timedelta(milliseconds=1),
                        death=Death.CRASHED,
                        suspects=tuple(suspects),
                        co_failed=self.co_failed.get(owner),
                        is_idle=True,
                        unproven_since=self._unproven(owner)[0],
                        is_outdone=self._unproven(owner)[1],
                    )
                )
        return found

    def _unproven(self, owner: str) -> tuple[datetime | None, bool]:
        if not self.idle_scene.is_pod:
            return self.now + self.idle_scene.limit * STEP, True
        workers = [one for one in self.processes if isinstance(one, Worker)]
        own = next(one for one in workers if one.consumer == owner)
        others = [
            self.now - one.given
            for one in workers
            if one is not own and one.given and not self.holdings[one.consumer]
        ]
        held = self.holdings[owner].values()
        reports = self.idle_scene.reports_progress
        asked = own.asked if reports else own.given
        progress = ConsumerProgress(
            asked=asked or self.now,
            inactive=self.now - own.given if reports and own.given else None,
            newest=self.now - max(held) if held else None,
            others=min(others, default=None) if reports else None,
        )
        is_proven = progress.has_finished(self.idle_scene.limit * STEP)
        return None if is_proven else asked, progress.have_others_finished(
            self.idle_scene.limit * STEP
        )
