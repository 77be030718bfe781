"""Pelops in the simulated world: its own facts and decisions, looked for at its own pace."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from benchmarks.scaling_sim.group import StreamGroup
from benchmarks.scaling_sim.workers import Pod
from benchmarks.scaling_sim.world import TICK_S, World
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState
from pelops.domain.stream_observation import Ahead, GroupObservation, StreamObservation, decide_lag
from pelops.domain.workload import Target, WorkloadObservation
from pelops.policy.scaling.autoscaler import Autoscaler, next_observation
from pelops.policy.scaling.backlog import Backlog, measure_backlog
from pelops.policy.scaling.decision import ScalingDecision, keep_busy_workers
from pelops.policy.scaling.victims import AT_WORK_S

NAME: Final = "pelops"
COUNTED: Final = 64  # entries ahead that a usual look counts, ...
COUNTED_DEEP: Final = 500  # ... and one at a group whose lag cannot be true
_BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_TARGET: Final = Target(api_version="apps/v1", kind="Deployment", namespace="shop", name="workers")


class Pelops:
    """One StreamConsumerGroup with the defaults, but for maxReplicas and backlogPerReplica."""

    def __init__(self, *, per_replica: int, most: int, phase: float) -> None:
        self.name = NAME
        self._spec = StreamConsumerGroupSpec.model_validate(
            {
                "redis": {"url": "redis://redis:6379"},
                "stream": "orders:events",
                "targetRef": {"name": _TARGET.name},
                "scaling": {
                    "mode": "Auto",
                    "maxReplicas": most,
                    "backlogPerReplica": per_replica,
                },
            }
        )
        self._autoscaler = Autoscaler()
        self._next_look = TICK_S + phase
        self._idle_looks = 0
        self._chance = random.Random(f"looks {phase}")  # even steps would keep pace with producers
        self._seen_added: int | None = None  # while an entry would wake the operator

    def act(self, world: World) -> None:
        """Observe and decide when it is due, or when the first new entry wakes the operator."""
        is_woken = self._seen_added is not None and world.group.added > self._seen_added
        if not is_woken and world.now < self._next_look:
            return
        seen = observe(world)
        if seen.group is not None and seen.group.is_lag_repairable:
            world.group.repair()
        backlog = measure_backlog(seen, recovers=True)
        self._write(world, self._decide(world, backlog))
        self._idle_looks = self._idle_looks + 1 if backlog.is_empty else 0
        self._plan(world, backlog)

    def _plan(self, world: World, backlog: Backlog) -> None:
        is_watched = world.replicas == 0 and backlog.is_empty
        self._seen_added = world.group.added if is_watched else None
        spread = self._chance.uniform(0.8, 1.2)  # as the operator spreads its looks
        self._next_look = world.now + spread * next_observation(
            backlog,
            replicas=world.replicas,
            least=0,
            idle_observations=self._idle_looks,
            is_watched=is_watched,
        )
        self._next_look -= TICK_S / 2  # to the nearest tick, not to the next one

    def _decide(self, world: World, backlog: Backlog) -> ScalingDecision:
        workload = WorkloadObservation(
            target=_TARGET,
            exists=True,
            uid="1",
            wished=world.replicas,
            current=len(world.pods),
            ready=world.ready,
        )
        decision = self._autoscaler.observe(self._spec, workload, backlog, now=world.now)
        if decision.needs_busy_count:
            busy = sum(_is_busy(pod, decision) for pod in world.alive)
            return keep_busy_workers(decision, busy)
        return decision

    def _write(self, world: World, decision: ScalingDecision) -> None:
        before, after = world.replicas, decision.replicas
        if after is None or after == before:
            return
        world.scale(after, _pending)  # controller.kubernetes.io/pod-deletion-cost
        self._autoscaler.record_write(before=before, after=after, now=world.now)


def _is_busy(pod: Pod, decision: ScalingDecision) -> bool:
    if decision.only_at_work:  # it asks for more between two entries
        return pod.current is not None and pod.kind.rate * AT_WORK_S < 1
    return pod.pending > 0


def _pending(pod: Pod) -> float:
    return pod.pending


def observe(world: World) -> StreamObservation:
    """What the look at a group would report this world."""
    group = world.group
    state = GroupState()
    return StreamObservation(
        server_time=_BEGAN + timedelta(seconds=world.now),
        exists=True,
        length=group.length,
        last_generated_id=EntryId(group.end),
        first_id=EntryId(group.first) if group.length else None,
        entries_added=group.added,
        groups=1,
        group=_observe_group(world) if group.exists else None,
        dead_letters=world.dead_letters,
        dead_letter_exists=True,
        ledger_exists=True,
        ownership=None,
        max_deleted_id=EntryId(group.max_deleted),
        state=replace(state, totals=replace(state.totals, requeued=world.requeued)),
    )


def _observe_group(world: World) -> GroupObservation:
    group = world.group
    reported = group.reported_lag
    ahead = _count_ahead(group)
    lag = decide_lag(
        reported,
        last_delivered_id=EntryId(group.delivered),
        last_generated_id=EntryId(group.end),
        length=group.length,
        ahead=ahead,
    )
    is_right = reported == lag and (lag != 0 or group.entries_read == group.added)
    can_repair = group.max_deleted == 0 or group.max_deleted < group.delivered
    return GroupObservation(
        last_delivered_id=EntryId(group.delivered),
        pending=world.pending,
        lag=lag,
        consumers=len(world.pods),
        entries_read=group.entries_read,
        lowest_pending=None,
        holding=world.holding,
        at_least=ahead.counted,
        is_lag_repairable=lag is not None and not is_right and can_repair,
    )


def _count_ahead(group: StreamGroup) -> Ahead:
    """As the scripts count: when many entries are ahead, few may be behind."""
    reported = group.reported_lag
    is_plausible = reported is not None and 0 <= reported <= group.length
    limit = COUNTED if is_plausible else COUNTED_DEEP
    if group.undelivered < limit or group.length - group.undelivered < limit // 4:
        return Ahead(group.undelivered, is_all=True)
    return Ahead(limit, is_all=False)
