"""Scales resources by the backlog of their groups.

- Observe: all groups of one Redis that are due, together.
- Decide: by the observation and the autoscaler of the resource.
- Write: the replicas, if they differ and the decision is not outdated.
- Wait: until the next observation, or until the next entry of an idle group (`Pace`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.clock import with_jitter
from pelops.controller.group.group_observer import GroupObserver, RedisObservation
from pelops.controller.group.group_status import measure_group
from pelops.controller.runtime.cache import Name
from pelops.controller.scaling.lag_repair import correct_lag
from pelops.controller.scaling.pace import Pace
from pelops.controller.scaling.scale_writes import ScaleWrites
from pelops.controller.scaling.scaled_resources import Scaled, ScaledResources
from pelops.domain.workload import WorkloadObservation
from pelops.metrics import BACKLOG, SCALING_DECISIONS, SCALING_FACTS
from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import measure_backlog, merge_known
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.scaling.demand import GroupDemand, measure_demand
from pelops.policy.scaling.sharing import Role
from pelops.policy.status.reasons import Reason

log = logging.getLogger(__name__)

OTHERS_S: Final = 5.0  # another replica decides, or there is no workload
UNFINISHED_S: Final = 1.0  # the group is being made
DEEP_S: Final = 30.0  # how often a lag that may be true is counted further
DEEP_FROM: Final = 64  # entries; fewer are counted at every observation
LATE_S: Final = 10.0  # a demand counts for so long after the next observation should have come


class Scaler:
    """Observes, decides, and writes the replicas of one resource after the other."""

    def __init__(
        self,
        resources: ScaledResources,
        observer: GroupObserver,
        writes: ScaleWrites,
        pace: Pace,
        clock: Callable[[], float],
        *,
        make_due: Callable[[Name], None],
        note: Callable[[StreamConsumerGroup, RedisObservation], None],
        wake: Callable[[Name], None],
    ) -> None:
        """`make_due` requests a pass, because the status of a resource changes. `note` keeps an
        observation for others. `wake` has a resource observed at once.
        """
        self._resources = resources
        self._observer = observer
        self._writes = writes
        self._pace = pace
        self._clock = clock
        self._make_due = make_due
        self._note = note
        self._wake = wake

    def endpoint_queue(self, name: Name) -> str | None:
        """Names the Redis that is observed; None: this replica does not scale the resource."""
        scaled = self._resources.admit(name)
        return None if scaled is None else scaled.endpoint_queue

    def decision(self, name: Name) -> ScalingDecision | None:
        """The last decision; None if there is none, or not by this replica."""
        scaled = self._resources.get(name)
        return None if scaled is None else scaled.decision

    def demands(self, name: Name) -> Mapping[str, float | None] | None:
        """The demand of each group of the workload that this resource leads, by resource; None for
        one: not known.

        None: this replica does not decide for the workload.
        """
        leader = self._resources.get(name)
        if leader is None or leader.decision is None:
            return None
        others = self._resources.demands_of_others(leader, now=self._clock())
        demands = {demand.name: demand.workers for demand in others}
        return {**demands, leader.name[1]: leader.decision.demand}

    async def observe(self, names: Sequence[Name]) -> dict[Name, RedisObservation]:
        """What Redis shows of resources that were admitted, all of one queue."""
        scaled = [one for name in names if (one := self._resources.get(name)) is not None]
        deep = {one.resource.metadata.uid for one in scaled if self._is_deep(one)}
        seen = await self._observer.observe_redis([one.resource for one in scaled], deep=deep)
        return {one.name: redis for one, redis in zip(scaled, seen, strict=True)}

    async def scale(self, name: Name, redis: RedisObservation) -> float | None:
        """Decide and write after an observation. Return the seconds until the next one, or None if
        there is none.

        Raises KubernetesUnavailable when the workers cannot be seen.
        """
        scaled = self._resources.get(name)
        if scaled is None:
            return None
        spec = scaled.resource.spec
        self._note(scaled.resource, redis)
        workload, problem = await self._observer.observe_workload(scaled.resource)
        if self._resources.get(name) is not scaled:
            return None
        if redis.problem is not None and redis.problem.reason == Reason.CONFLICT:
            problem = redis.problem
        scaled.is_foreign = problem is not None and problem.reason == Reason.CONFLICT
        follows = scaled.sharing.role is Role.FOLLOWS
        if problem is not None or (follows and workload.autoscaler is not None):
            return self._leave_to_others(scaled)
        is_unfinished = _is_unfinished(redis) and not spec.recovery.dry_run
        scaled.backlog = None
        if redis.stream is not None and not is_unfinished:
            scaled.backlog = measure_backlog(redis.stream, recovers=spec.recovery.is_enabled)
        if is_unfinished and not scaled.sharing.is_shared:
            return UNFINISHED_S
        if not spec.recovery.dry_run:  # its scans leave nothing in Redis: the passes count for it
            measure_group(scaled.name, redis.stream)
        if follows:
            wait_s = self._offer_demand(scaled, redis, workload)
            return UNFINISHED_S if is_unfinished else wait_s
        return await self._decide(scaled, redis, workload)

    async def correct_lag(self, name: Name, redis: RedisObservation) -> None:
        """Correct the lag that Redis reports, if this observation counted for a decision."""
        scaled = self._resources.get(name)
        if scaled is not None and scaled.backlog is not None:
            await correct_lag(scaled, redis, self._clock)

    async def _decide(
        self, scaled: Scaled, redis: RedisObservation, workload: WorkloadObservation
    ) -> float | None:
        """Decide and write for all groups with these workers."""
        now, others = self._clock(), self._resources.demands_of_others(scaled, now=self._clock())
        decision = scaled.autoscaler.observe(
            scaled.resource.spec,
            workload,
            scaled.backlog,
            now=now,
            name=scaled.name[1],
            others=others,
        )
        resource = {"resource": "/".join(scaled.name)}
        log.debug("%s: %s", decision.reason, decision.message, extra=resource)
        decision = await self._writes.carry_out(scaled, decision, workload, redis)
        if self._resources.get(scaled.name) is not scaled:
            return None
        before, scaled.decision = scaled.decision, decision
        SCALING_DECISIONS.labels(decision.reason).inc()
        _measure(scaled, decision.demand)
        if before is None or (before.reason, before.replicas) != (
            decision.reason,
            decision.replicas,
        ):
            self._make_due(scaled.name)
        if decision.replicas is None:
            self._pace.forget(scaled.name)
            return with_jitter(OTHERS_S)
        backlog = merge_known([scaled.backlog, *(demand.backlog for demand in others)])
        wait_s = self._pace.wait_s(
            scaled, redis, backlog, replicas=decision.replicas, least=scaled.min_replicas
        )
        if scaled.problem is not None:
            wait_s = min(wait_s, max(0.0, scaled.write_after - self._clock()))
        return with_jitter(wait_s, 0.15)

    def _offer_demand(
        self, scaled: Scaled, redis: RedisObservation, workload: WorkloadObservation
    ) -> float:
        """Keep the demand of a group for the resource that leads. Return the seconds until the next
        observation.
        """
        now, before, wished = self._clock(), scaled.demand, workload.wished or 0
        backlog, meter = scaled.backlog, scaled.autoscaler.meter
        meter.observe(backlog, ready=workload.ready, workers=wished, now=now)
        demand = scaled.demand = measure_demand(
            scaled.resource.spec,
            backlog,
            meter,
            name=scaled.name[1],
            ready=workload.ready,
            now=now,
        )
        _measure(scaled, demand.workers)
        leader = self._resources.leader_of(scaled)
        least = 0 if leader is None else leader.min_replicas
        wait_s = self._pace.wait_s(scaled, redis, backlog, replicas=wished, least=least)
        scaled.counts_until = now + wait_s + LATE_S
        if leader is not None and (before is None or _is_news(before, demand)):
            self._wake(leader.name)
        return with_jitter(wait_s, 0.15)

    def _leave_to_others(self, scaled: Scaled) -> float:
        """Leave the workers to others."""
        scaled.autoscaler, scaled.backlog = Autoscaler(), None
        scaled.decision = scaled.demand = None
        self._resources.forget(scaled.name)
        return OTHERS_S

    def _is_deep(self, scaled: Scaled) -> bool:
        """Whether to count the entries of this group further than usual."""
        backlog, now = scaled.backlog, self._clock()
        if backlog is None or backlog.undelivered < DEEP_FROM or now < scaled.deep_after:
            return False
        scaled.deep_after = now + DEEP_S
        return True


def _is_unfinished(redis: RedisObservation) -> bool:
    """Whether the group exists, and something that belongs to it is still to be made."""
    stream = redis.stream
    return stream is not None and stream.group is not None and not stream.is_provisioned


def _is_news(before: GroupDemand, after: GroupDemand) -> bool:
    """Whether the resource that leads should not wait until its own next observation."""
    return (before.is_idle, before.is_exact) != (after.is_idle, after.is_exact)


def _measure(scaled: Scaled, demand: float | None) -> None:
    backlog, rates = scaled.backlog, scaled.autoscaler.meter.rates
    counts = {
        "undelivered": backlog.undelivered if backlog else math.nan,
        "pending": backlog.held if backlog else math.nan,
        "waiting": backlog.waiting if backlog else math.nan,
    }
    for label, count in counts.items():
        BACKLOG.labels(*scaled.name, label).set(count)
    known = {"arrivals": rates.arrivals, "acknowledged": rates.acknowledged, "demand": demand}
    for fact, rate in known.items():
        SCALING_FACTS[fact].labels(*scaled.name).set(math.nan if rate is None else rate)
