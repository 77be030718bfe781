"""Workers that crash over some entries, and an operator that moves what they held by the plan.

A stream, its group and its recovery in memory: what is fresh moves at once, counted as failed once;
suspects move by `plan_attempts`. Time goes in steps; in each, every worker does one unit of its
work.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Action, Death, RetryBatch, Suspect, read_ids, write_ids
from pelops.policy.recovery.attempts import (
    AttemptPlan,
    Backoff,
    Crash,
    OwnerPlan,
    Rules,
    plan_attempts,
)

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
SCAN_EVERY: Final = 5  # steps; and at once when a worker has died
AT_ONCE: Final = Backoff()
STEP: Final = timedelta(milliseconds=10)


class Habit(StrEnum):
    """How a worker acknowledges."""

    ONE_BY_ONE = "one by one, each acknowledged"
    TEN_AT_ONCE = "ten at once, each acknowledged when it is done"
    WHOLE_BATCH = "one acknowledgement for everything that was read"
    MARKING = "ten at once, marked when they start; what failed before runs in isolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The events of one simulation."""

    habit: Habit
    entries: int = 4_000
    poisons: int = 2
    workers: int = 4
    prefetch: int = 500
    max_retries: int = 3
    kills: int = 0  # of workers from outside, each at a random time
    kills_within: int = 100  # steps
    poison_looks: Death = Death.CRASHED  # how a death by a poison looks; hanging: killed by a probe
    backoff: Backoff = AT_ONCE
    renames: bool = False  # a new process has a new name, as a Deployment's pods have


@dataclass(slots=True)
class Entry:
    """An entry, or a copy: which one it was at first, and the failures written into it."""

    root: int
    retries: int = 0


@dataclass(slots=True)
class Process:
    """One process of a worker, and what it has read and not yet finished."""

    consumer: str
    held: list[EntryId] = field(default_factory=list)


@dataclass(slots=True)
class Ended:
    """The end of a consumer's last process."""

    cutoff: datetime
    death: Death


class World:
    """The stream, the group, its workers and its operator."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.chance = random.Random(seed)
        self.now = BEGIN
        self.bodies: dict[EntryId, Entry] = {}
        self.waiting: list[EntryId] = []  # undelivered, the next one last
        self.pending: dict[EntryId, str] = {}  # and their consumers
        self.holdings: dict[str, dict[EntryId, datetime]] = defaultdict(dict)  # delivered when
        self.marks: dict[str, set[EntryId]] = defaultdict(set)
        self.tries: dict[EntryId, tuple[int, int]] = {}
        self.co_failed: dict[str, datetime] = {}
        self.retry_batch = ""
        self.ended: dict[str, Ended] = {}
        self.acknowledged: set[int] = set()
        self.letters: list[int] = []
        self.crashes = 0
        self.has_died = False
        self._next = 0
        self._born = 0
        roots = range(scene.entries)
        self.poisons = set(self.chance.sample(roots, scene.poisons))
        self.kill_times = {self.chance.randrange(1, scene.kills_within) for _ in range(scene.kills)}
        for root in roots:
            self._add(Entry(root=root))
        self.processes = [self._born_process(f"w{n}") for n in range(scene.workers)]

    @property
    def innocents(self) -> list[int]:
        """The roots of dead letters that are not poison entries."""
        return [root for root in self.letters if root not in self.poisons]

    def run(self, limit: int = 60_000) -> int:
        """Go on until nothing is left; the number of steps."""
        for step in range(1, limit):
            self.now += STEP
            for place, process in enumerate(self.processes):
                death = self._work(process)
                if death is not None:
                    self._bury(process.consumer, death, place)
            if step in self.kill_times:
                self._kill_one()
            if self.has_died or step % SCAN_EVERY == 0:
                self.has_died = False
                self._scan()
            if not self.pending and not self.waiting:
                return step
        raise AssertionError(f"not done: {len(self.pending)} pending, {len(self.waiting)} waiting")

    def _kill_one(self) -> None:
        place = self.chance.randrange(len(self.processes))
        self._bury(self.processes[place].consumer, Death.KILLED, place)

    def _bury(self, consumer: str, death: Death, place: int) -> None:
        self.has_died = True
        self.ended[consumer] = Ended(cutoff=self.now + STEP / 2, death=death)
        name = self._new_name(place) if self.scene.renames else consumer
        self.processes[place] = self._born_process(name)

    def _new_name(self, place: int) -> str:
        self._born += 1
        return f"w{place}-{self._born}"

    @staticmethod
    def _born_process(consumer: str) -> Process:
        return Process(consumer=consumer)

    def _add(self, entry: Entry) -> EntryId:
        self._next += 1
        entry_id = EntryId(self._next, 0)
        self.bodies[entry_id] = entry
        self.waiting.insert(0, entry_id)
        return entry_id

    # -- workers

    def _work(self, process: Process) -> Death | None:
        if not process.held:
            self._read(process)
        habit = self.scene.habit
        if habit is Habit.ONE_BY_ONE:
            return self._run(process, process.held[:1], at_once=1)
        if habit is Habit.WHOLE_BATCH:
            return self._run(process, list(process.held), at_once=0)
        if habit is Habit.MARKING:
            return self._run_marked(process)
        return self._run(process, process.held[:10], at_once=10)

    def _read(self, process: Process) -> None:
        for _ in range(min(self.scene.prefetch, len(self.waiting))):
            entry_id = self.waiting.pop()
            process.held.append(entry_id)
            self.pending[entry_id] = process.consumer
            self.holdings[process.consumer][entry_id] = self.now

    def _run_marked(self, process: Process) -> Death | None:
        charged = [one for one in process.held if self.bodies[one].retries > 0]
        batch = charged[:1] or process.held[:10]
        # What a former process of this name had recorded as started stays marked until it is moved.
        former = self.marks[process.consumer] & self.pending.keys() - set(process.held)
        self.marks[process.consumer] = former | set(batch)
        death = self._run(process, batch, at_once=10)
        if death is None:
            self.marks[process.consumer] = former
        return death

    def _run(self, process: Process, batch: list[EntryId], *, at_once: int) -> Death | None:
        """Handle a batch; with `at_once`, what finishes before a crash is acknowledged."""
        guilty = [one for one in batch if self.bodies[one].root in self.poisons]
        if not guilty:
            finished = batch
        elif at_once > 1:
            innocent = [one for one in batch if one not in guilty]
            finished = self.chance.sample(innocent, self.chance.randint(0, len(innocent)))
        else:
            finished = []
        for entry_id in finished:
            self._drop(entry_id)
            self.acknowledged.add(self.bodies[entry_id].root)
        if guilty:
            self.crashes += 1
            return self.scene.poison_looks
        for entry_id in finished:
            process.held.remove(entry_id)
        return None

    # -- the operator

    def _scan(self) -> None:
        owners = [owner for owner in sorted(self.ended) if self.holdings[owner]]
        crashes = [crash for owner in owners if (crash := self._recover(owner))]
        retry_batch = self._observe_retry_batch()
        if not crashes and not retry_batch.written:
            return
        rules = Rules(max_retries=self.scene.max_retries, backoff=self.scene.backoff)
        plan = plan_attempts(crashes, retry_batch, rules, now=self.now)
        for owner in plan.owners:
            plan = plan.after(self._settle(plan, owner))

    def _observe_retry_batch(self) -> RetryBatch:
        waiting = set(self.waiting)
        ids = read_ids(self.retry_batch)
        under_way = frozenset(one for one in ids if one in self.pending or one in waiting)
        return RetryBatch(written=self.retry_batch, under_way=under_way)

    def _recover(self, owner: str) -> Crash | None:
        """Move what is fresh, as `recover_owner` does; what is left is suspect."""
        ended, suspects = self.ended[owner], []
        for entry_id, delivered in list(self.holdings[owner].items()):
            if delivered >= ended.cutoff:
                continue
            entry = self.bodies[entry_id]
            is_started = entry_id in self.marks[owner]
            counts_attempt = is_started if self.scene.habit is Habit.MARKING else True
            if counts_attempt and (entry.retries > 0 or is_started):
                attempts, isolated = self.tries.get(entry_id, (0, 0))
                suspects.append(
                    Suspect(
                        entry_id=entry_id,
                        attempts=max(entry.retries, attempts),
                        isolated_failures=isolated,
                        delivered=delivered,
                        deliveries=1,
                        is_started=is_started,
                    )
                )
            elif not counts_attempt or self.now - delivered >= self.scene.backoff.after(1):
                copy = self._move(entry_id, entry.retries + counts_attempt)
                if entry_id in self.tries:
                    self.tries[copy] = self.tries.pop(entry_id)
        if not suspects:
            return None
        return Crash(
            owner=owner,
            cutoff=ended.cutoff,
            death=ended.death,
            suspects=tuple(suspects),
            co_failed=self.co_failed.get(owner),
        )

    def _drop(self, entry_id: EntryId) -> None:
        del self.holdings[self.pending.pop(entry_id)][entry_id]

    def _settle(self, plan: AttemptPlan, owner: OwnerPlan) -> str:
        """Do what `settle_suspects` does, and return the retry batch."""
        members = set(plan.kept)
        for one in owner.settlements:
            assert self.holdings[owner.owner][one.entry_id] < owner.cutoff
            self.tries.pop(one.entry_id, None)
            if one.action is Action.DEAD:
                self._drop(one.entry_id)
                self.letters.append(self.bodies[one.entry_id].root)
                continue
            copy = self._move(one.entry_id, one.attempts)
            self.tries[copy] = (one.attempts, one.isolated_failures)
            if one.action is Action.RETRY:
                members.add(copy)
        if owner.co_failed is not None:
            self.co_failed[owner.owner] = max(
                owner.co_failed, self.co_failed.get(owner.owner, BEGIN)
            )
        for resolved in plan.resolved:
            self.tries.pop(resolved, None)
        self.retry_batch = write_ids(members)
        return self.retry_batch

    def _move(self, entry_id: EntryId, retries: int) -> EntryId:
        self._drop(entry_id)
        return self._add(Entry(root=self.bodies[entry_id].root, retries=retries))
