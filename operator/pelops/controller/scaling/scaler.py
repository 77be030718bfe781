"""Scales resources by the backlog of their groups.

- Observe: all groups of one Redis that are due, together.
- Decide: a pure function of the observation and the memory.
- Write: the replicas, if they differ and the decision is not outdated.
- Wake: the next entry of a group without workers and backlog starts a worker (`IdleGroups`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.clock import with_jitter
from pelops.controller.group.group_observer import GroupObserver, RedisObservation
from pelops.controller.group.group_status import measure_group
from pelops.controller.group.victims import Fleet
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.leases import Members
from pelops.controller.scaling.scale_writes import ScaleWrites, WriteContext
from pelops.controller.scaling.scaled_resources import Scaled, ScaledResources
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.entry_id import EntryId
from pelops.domain.workload import WorkloadObservation
from pelops.errors import PelopsError
from pelops.metrics import BACKLOG, SCALING_DECISIONS, SCALING_FACTS, forget_scaling
from pelops.policy.scaling.decision import (
    OtherGroups,
    ScalingDecision,
    ScalingMemory,
    decide_replicas,
    decide_unchanged,
    next_observation,
)
from pelops.policy.scaling.demand import judge_backlog
from pelops.policy.scaling.measurement import Backlog
from pelops.policy.scaling.sharing import Contribution, Role, contribute, merge_known, watch_group
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server
from pelops.redis_streams.group.maintenance import repair_lag
from pelops.redis_streams.scaling.idle_streams import Waker

log = logging.getLogger(__name__)


_Nap = tuple[Server, dict[str, EntryId]]


class IdleGroups:
    """Has the waker watch what is idle."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._naps: dict[Name, _Nap] = {}

    def watch(self, name: Name, redis: RedisObservation) -> bool:
        """Be woken by the next entry; whether that works already. To be asked at each look."""
        nap = _nap(redis)
        if nap is None:
            self.rouse(name)
            return False
        if self._naps.get(name) == nap and self._waker.is_watched(name):
            return True
        server, streams = nap
        if self._waker.watch(name, server, streams):
            self._naps[name] = nap
        else:
            self._naps.pop(name, None)
        return False  # it takes a moment until the server is asked: look once more before

    def rouse(self, name: Name) -> None:
        """Want to be woken no more: it is looked at often, or by others."""
        if self._naps.pop(name, None) is not None:
            self._waker.unwatch(name)


def _nap(redis: RedisObservation) -> _Nap | None:
    """Where what is undelivered would appear. A position, not the end: between them is nothing."""
    stream, keys = redis.stream, redis.keys
    if redis.server is None or keys is None or stream is None or stream.group is None:
        return None
    streams = {keys.stream: stream.group.last_delivered_id}
    if stream.retry is not None:
        streams[keys.retry] = stream.retry.last_delivered_id
    return redis.server, streams


# A look costs the process somewhat less than a millisecond.
BUSY_PER_S: Final = 400
IDLE_PER_S: Final = 80
MOST_FOR_IDLE: Final = 3  # times as long; then the process may become busy


class ObservedGroups:
    """Counts the groups that are observed often, and those that are observed seldom."""

    def __init__(self) -> None:
        self._busy: set[Name] = set()
        self._idle: set[Name] = set()

    def stretch(self, name: Name, wait_s: float, *, is_idle: bool) -> float:
        """How long the next look at this group should wait, instead of this."""
        joined, left = (self._idle, self._busy) if is_idle else (self._busy, self._idle)
        left.discard(name)
        joined.add(name)
        if is_idle:
            return max(wait_s, min(len(joined) / IDLE_PER_S, MOST_FOR_IDLE * wait_s))
        return max(wait_s, len(joined) / BUSY_PER_S)

    def forget(self, name: Name) -> None:
        """It is looked at no more."""
        self._busy.discard(name)
        self._idle.discard(name)


OTHERS_S: Final = 5.0  # another replica decides, or there is no workload
UNFINISHED_S: Final = 1.0  # the group is being made
FREED_S: Final = 2.0  # entries wait for recovery, which may free them without a new entry
DEEP_S: Final = 30.0  # how often a lag that may be true is counted further
DEEP_FROM: Final = 64  # entries; fewer are counted at every look
REPAIR_S: Final = 10.0
DENIED_S: Final = 300.0
LATE_S: Final = 10.0  # what a group asks for counts for so long after it should be seen again


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerParts:
    """What scaling works with."""

    cache: WorkloadCache
    members: Members
    observer: GroupObserver
    writes: ScaleWrites
    idle_groups: IdleGroups
    make_due: Callable[[Name], None]  # the status of this resource is worth a pass
    note: Callable[[StreamConsumerGroup, RedisObservation], None]  # keeps what a look found
    wake: Callable[[Name], None]  # has a resource looked at now: one that follows it has news


class Scaler:
    """Observes, decides, and writes the replicas of one resource after the other."""

    def __init__(self, parts: ScalerParts, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._clock = clock
        self._resources = ScaledResources(parts.cache, parts.members, self._forget)
        self._observed_groups = ObservedGroups()

    def endpoint_queue(self, name: Name) -> str | None:
        """Names the Redis that a look goes to; None: this replica does not scale the resource."""
        scaled = self._resources.admit(name)
        return None if scaled is None else scaled.endpoint_queue

    def decision(self, name: Name) -> ScalingDecision | None:
        """What was decided last; None when nothing was, or not by this replica."""
        scaled = self._resources.get(name)
        return None if scaled is None else scaled.decision

    async def look(self, names: Sequence[Name]) -> dict[Name, RedisObservation]:
        """What Redis shows of resources that were admitted. Those of one queue belong together."""
        found = [one for name in names if (one := self._resources.get(name)) is not None]
        deep = {one.resource.metadata.uid for one in found if self._looks_deep(one)}
        views = await self._parts.observer.observe_redis([one.resource for one in found], deep=deep)
        return {one.name: view for one, view in zip(found, views, strict=True)}

    async def follow(self, name: Name, redis: RedisObservation) -> float | None:
        """Decide and act upon a look: seconds until the next, or None when there is none.

        Raises KubernetesUnavailable when the workers cannot be seen.
        """
        scaled = self._resources.get(name)
        if scaled is None:
            return None
        spec = scaled.resource.spec
        self._parts.note(scaled.resource, redis)
        workload, problem = await self._parts.observer.observe_workload(scaled.resource)
        unchanged = decide_unchanged(spec, redis_problem=redis.problem, workload_problem=problem)
        scaled.is_foreign = unchanged is not None and unchanged.reason is Reason.CONFLICT
        if unchanged is not None:
            return self._leave_unchanged(scaled)
        is_unfinished = _is_unfinished(redis) and not spec.recovery.dry_run
        if is_unfinished and not scaled.part.is_shared:
            return UNFINISHED_S
        scaled.backlog = None if is_unfinished else _judge(scaled, redis)
        if scaled.part.role is Role.FOLLOWS:
            if workload.autoscaler is not None:
                return self._leave_unchanged(scaled)
            wait_s = self._contribute(scaled, redis, workload)
            await self._repair(scaled, redis)
            return UNFINISHED_S if is_unfinished else wait_s
        sharing = self._resources.sharing(scaled, now=self._clock())
        decision, scaled.memory = decide_replicas(
            spec, workload, scaled.backlog, scaled.memory, now=self._clock(), sharing=sharing
        )
        context = WriteContext(
            workload=workload,
            fleet=_fleet(scaled, redis, workload),
            is_current=partial(self._resources.is_current, scaled),
            left_s=self._resources.left_s,
        )
        log.debug("%s: %s", decision.reason, decision.message, extra={"resource": "/".join(name)})
        decision = await self._parts.writes.carry_out(scaled, decision, context)
        if self._resources.get(name) is not scaled:
            return None
        self._note(scaled, decision)
        if not spec.recovery.dry_run:  # of its scans nothing is in Redis: the passes know it
            measure_group(scaled.name, redis.stream)
        await self._repair(scaled, redis)
        return self._next(scaled, redis, sharing)

    def demands(self, name: Name) -> Mapping[str, float | None] | None:
        """What each group of the workload that this resource leads asks for, by resource; None for
        one: not known.

        None: this replica does not decide for the workload.
        """
        leader = self._resources.get(name)
        if leader is None or leader.decision is None:
            return None
        sharing = self._resources.sharing(leader, now=self._clock())
        found = {one.name: one.workers for one in sharing.others}
        return {**found, leader.name[1]: leader.decision.demand}

    def _contribute(
        self, scaled: Scaled, redis: RedisObservation, workload: WorkloadObservation
    ) -> float:
        """Keep what a group that follows asks for: seconds until the next look at it."""
        now, before, wished = self._clock(), scaled.contribution, workload.wished or 0
        spec, backlog, memory = scaled.resource.spec, scaled.backlog, scaled.memory
        watched = watch_group(memory.watched, backlog, workload, workers=wished, now=now)
        scaled.memory = memory.with_watched(watched)
        contribution = contribute(spec, backlog, watched, ready=workload.ready, now=now)
        contribution = scaled.contribution = replace(contribution, name=scaled.name[1])
        _measure(scaled, contribution.workers)
        measure_group(scaled.name, redis.stream)
        leader = self._resources.leader_of(scaled)
        leads = leader.resource.spec.scaling if leader is not None else None
        least = leads.min_replicas if leads is not None else 0
        wait = self._pace(scaled, redis, backlog, replicas=wished, least=least)
        if backlog is not None and backlog.waiting:
            wait = min(wait, FREED_S)
        scaled.counts_until = now + wait + LATE_S
        if leader is not None and (before is None or _is_news(before, contribution)):
            self._parts.wake(leader.name)
        return with_jitter(wait, 0.15)

    def _leave_unchanged(self, scaled: Scaled) -> float:
        scaled.memory, scaled.backlog, scaled.decision = ScalingMemory(), None, None
        scaled.contribution = None
        self._forget(scaled.name)
        return OTHERS_S

    def _note(self, scaled: Scaled, decision: ScalingDecision) -> None:
        before, scaled.decision = scaled.decision, decision
        SCALING_DECISIONS.labels(decision.reason).inc()
        _measure(scaled, decision.demand)
        reported = (before.reason, before.replicas) if before is not None else None
        if reported != (decision.reason, decision.replicas):
            self._parts.make_due(scaled.name)

    def _next(self, scaled: Scaled, redis: RedisObservation, sharing: OtherGroups) -> float:
        """Seconds until the next look."""
        decision, backlog = scaled.decision, scaled.backlog
        if decision is None or decision.replicas is None:
            self._parts.idle_groups.rouse(scaled.name)
            self._observed_groups.forget(scaled.name)
            return with_jitter(OTHERS_S)
        scaling = scaled.resource.spec.scaling
        least = scaling.min_replicas if scaling is not None else 0
        overall = merge_known(backlog, sharing.others)
        wait = self._pace(scaled, redis, overall, replicas=decision.replicas, least=least)
        if backlog is not None and backlog.waiting:
            wait = min(wait, FREED_S)
        if scaled.problem is not None:
            wait = min(wait, max(0.0, scaled.write_after - self._clock()))
        return with_jitter(wait, 0.15)

    def _pace(
        self,
        scaled: Scaled,
        redis: RedisObservation,
        backlog: Backlog | None,
        *,
        replicas: int,
        least: int,
    ) -> float:
        """How long the group may be left alone, by the backlog and how many others ask.

        `backlog` is that of all groups that are decided for.
        """
        own = scaled.backlog
        is_idle = backlog is not None and backlog.is_empty and replicas <= least
        is_asleep = own is not None and own.is_empty and replicas == 0
        is_watched = self._watch_idle(scaled, redis, is_asleep=is_asleep)
        scaled.idle_observations = scaled.idle_observations + 1 if is_idle else 0
        wait = next_observation(
            backlog,
            replicas=replicas,
            least=least,
            idle_observations=scaled.idle_observations,
            is_watched=is_watched,
        )
        is_seen = backlog is not None and backlog.exists
        stretched = self._observed_groups.stretch(scaled.name, wait, is_idle=is_idle or not is_seen)
        # Only an observation detects the first entry of a group at zero that is not watched.
        return wait if is_asleep and not is_watched else stretched

    def _watch_idle(self, scaled: Scaled, redis: RedisObservation, *, is_asleep: bool) -> bool:
        if is_asleep:
            return self._parts.idle_groups.watch(scaled.name, redis)
        self._parts.idle_groups.rouse(scaled.name)
        return False

    def _looks_deep(self, scaled: Scaled) -> bool:
        backlog, now = scaled.backlog, self._clock()
        if backlog is None or backlog.undelivered < DEEP_FROM or now < scaled.deep_after:
            return False
        scaled.deep_after = now + DEEP_S
        return True

    async def _repair(self, scaled: Scaled, redis: RedisObservation) -> None:
        """Repair the lag that the server reports, which other programs read too."""
        stream, server, keys = redis.stream, redis.server, redis.keys
        if stream is None or server is None or keys is None or stream.group is None:
            return
        wanted = {
            False: stream.group.is_lag_repairable,
            True: stream.retry is not None and stream.retry.is_lag_repairable,
        }
        if not any(wanted.values()) or self._clock() < scaled.repair_after:
            return
        scaled.repair_after = self._clock() + REPAIR_S
        uid = scaled.resource.metadata.uid
        try:
            for of_retry in (one for one, is_wanted in wanted.items() if is_wanted):
                await repair_lag(server, keys, uid, of_retry=of_retry)
        except PelopsError as error:
            scaled.repair_after = self._clock() + DENIED_S
            log.info(
                "Could not correct the lag that Redis reports: %s",
                error,
                extra={"resource": "/".join(scaled.name)},
            )

    def _forget(self, name: Name) -> None:
        self._parts.idle_groups.rouse(name)
        self._observed_groups.forget(name)
        forget_scaling(*name)


def _is_unfinished(redis: RedisObservation) -> bool:
    """Whether the group is there and what belongs to it is about to be made."""
    stream = redis.stream
    return stream is not None and stream.group is not None and not stream.is_provisioned


def _judge(scaled: Scaled, redis: RedisObservation) -> Backlog | None:
    if redis.stream is None:
        return None
    recovers = scaled.resource.spec.recovery.is_enabled
    return judge_backlog(redis.stream, recovers=recovers)


def _fleet(scaled: Scaled, redis: RedisObservation, workload: WorkloadObservation) -> Fleet | None:
    if redis.server is None or redis.keys is None or redis.stream is None:
        return None
    return Fleet(
        resource=scaled.resource,
        server=redis.server,
        keys=redis.keys,
        workload=workload,
        has_former_retry=redis.has_former_retry,
    )


def _is_news(before: Contribution, after: Contribution) -> bool:
    """Whether who decides should not wait until it looks by itself."""
    return (before.is_idle, before.is_exact) != (after.is_idle, after.is_exact)


def _measure(scaled: Scaled, demand: float | None) -> None:
    backlog, rates = scaled.backlog, scaled.memory.meter.rates
    parts = {
        "undelivered": backlog.undelivered if backlog else math.nan,
        "pending": backlog.held if backlog else math.nan,
        "waiting": backlog.waiting if backlog else math.nan,
    }
    for part, value in parts.items():
        BACKLOG.labels(*scaled.name, part).set(value)
    known = {"arrivals": rates.arrivals, "acknowledged": rates.acknowledged, "demand": demand}
    for fact, rate in known.items():
        SCALING_FACTS[fact].labels(*scaled.name).set(math.nan if rate is None else rate)
