"""The pods that a scale-in should delete, chosen by their pending entries.

- Redis: pending entries by consumer, of the stream and its retry stream, and of each other group
  with the same workers.
- Cache: the live pods, and the consumers that belong to them by name.
- Policy: the pods with the fewest pending entries are deleted first, then the youngest.
- Pods: the annotation pod-deletion-cost is written, on as few of them as possible.

This is an optimization, and never fails: pending entries of other deleted pods are recovered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import GroupObserver, RedisObservation
from pelops.controller.runtime.cache import Recent
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.naming import GroupKeys
from pelops.domain.workload import PodObservation, WorkloadObservation
from pelops.errors import Conflict, InvalidSpec, NotFound, PelopsError
from pelops.kube.client import POD, Address, KubeApi, Manifest
from pelops.kube.worker_deployment import SCALE_MANAGER
from pelops.kube.workload_observation import DELETION_COST
from pelops.policy.group.provisioning import needs_retry_stream
from pelops.policy.recovery.owners import Owners
from pelops.policy.scaling.decision import (
    is_measured,
)
from pelops.policy.scaling.victims import (
    AT_WORK_S,
    count_kept,
    count_unknown,
    find_contested,
    is_active,
    list_holdings,
    rank,
)
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import (
    LISTABLE,
    ObservedConsumer,
    count_consumers,
    list_consumers,
)

log = logging.getLogger(__name__)

FRESH_S: Final = 1.0  # how long an observation is used: one decision and what follows from it
NAMING_S: Final = 3.0  # how long a scale-in waits for its victims to be named
REMEMBERED: Final = 1_000  # observations
# Their pods belong to ReplicaSets, which use deletion costs.
_WITH_COSTS: Final = frozenset({"Deployment", "ReplicaSet", "Rollout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWorkers:
    """The workers of one resource, and where to read their pending entries."""

    resource: StreamConsumerGroup
    server: Server
    keys: GroupKeys
    workload: WorkloadObservation
    has_former_retry: bool = False  # a retry stream that the resource no longer asks for

    def __str__(self) -> str:
        return self.resource.metadata.key


def find_workers(
    resource: StreamConsumerGroup, redis: RedisObservation, workload: WorkloadObservation
) -> GroupWorkers | None:
    """Return the workers of a resource; None if Redis does not show what they hold."""
    if redis.server is None or redis.keys is None or redis.stream is None:
        return None
    return GroupWorkers(
        resource=resource,
        server=redis.server,
        keys=redis.keys,
        workload=workload,
        has_former_retry=redis.has_former_retry,
    )


@dataclass(frozen=True, slots=True)
class _ConsumerHoldings:
    """Entries by consumer: all that it holds, and those of one that is still busy with them."""

    pending: Counter[str] = field(default_factory=Counter)
    at_work: Counter[str] = field(default_factory=Counter)

    def add(self, consumer: ObservedConsumer) -> None:
        self.pending[consumer.name] += consumer.pending
        if consumer.idle.total_seconds() >= AT_WORK_S:
            self.at_work[consumer.name] += consumer.pending

    def merge(self, other: _ConsumerHoldings) -> None:
        self.pending.update(other.pending)
        self.at_work.update(other.at_work)


@dataclass(frozen=True, slots=True)
class _Holdings:
    """What consumers hold of all groups with the same workers."""

    everything: _ConsumerHoldings = field(default_factory=_ConsumerHoldings)  # says who goes first
    counted: _ConsumerHoldings = field(
        default_factory=_ConsumerHoldings
    )  # of groups that workers are kept for
    unseen: tuple[str, ...] = ()  # why one of those is not part of it


class Victims:
    """Sees which pods hold entries, and names those that should go."""

    def __init__(
        self, api: KubeApi, cache: WorkloadCache, observer: GroupObserver | None = None
    ) -> None:
        """`observer` reaches the other groups with the same workers; None: only one is seen."""
        self._api = api
        self._cache = cache
        self._observer = observer
        self._observed: Recent[str, tuple[float, _Holdings]] = Recent(REMEMBERED)

    async def count_busy(self, workers: GroupWorkers, *, only_at_work: bool = False) -> int | None:
        """The fewest replicas with which no pod has to go that holds entries; with `only_at_work`,
        none whose consumers are still busy with them.

        For a Deployment, the number of pods with pending entries. For a StatefulSet, whose highest
        pods are deleted first, the position of the last such pod. A consumer without a matching pod
        may be any of them. Terminating pods do not count. None if it is not known: Redis does not
        answer, or there are too many consumers to list.
        """
        pods, owners = self._pods(workers)
        try:
            held = await self._observe_held(workers)
        except PelopsError as error:
            _report(workers, f"Could not list the pods that hold pending entries: {error}")
            return None
        if held is None:
            return None
        if held.unseen:
            _report(workers, f"Could not list the pods that hold pending entries: {held.unseen[0]}")
            return None
        kept = held.counted
        counted = kept.at_work if only_at_work else kept.pending
        return count_kept(
            list_holdings(filter(is_active, pods), owners, counted, kept.at_work),
            unknown=count_unknown(owners, counted),
            by_ordinal=workers.workload.target.kind == "StatefulSet",
        )

    async def name_victims(self, workers: GroupWorkers, leaving: int) -> None:
        """Write deletion costs so that a scale-in by `leaving` pods deletes the chosen ones.

        To be called right before the scale-in. It does not raise, and takes seconds at most.
        """
        try:
            costs, uids = await self._rank(workers, leaving)
            async with asyncio.timeout(NAMING_S):
                outcomes = await asyncio.gather(
                    *(self._mark(workers, name, uids[name], cost) for name, cost in costs.items())
                )
            problem = next((str(error) for error in outcomes if error is not None), None)
        except PelopsError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"the API server did not answer within {NAMING_S:g} s"
        if problem is not None:
            _report(workers, f"Could not choose the pods to remove first: {problem}")

    async def _rank(
        self, workers: GroupWorkers, leaving: int
    ) -> tuple[dict[str, int], dict[str, str]]:
        """The costs to write, and the uids of their pods. Raises PelopsError."""
        pods, owners = self._pods(workers)
        wished = workers.workload.wished
        if wished is not None:
            # Pods that were never made need not go, and those of an earlier scale-in still have to.
            leaving += sum(map(is_active, pods)) - wished
        contested, leaving = find_contested(pods, leaving)
        if leaving == 0 or workers.workload.target.kind not in _WITH_COSTS:
            return {}, {}
        held = await self._observe_held(workers)
        if held is None:
            return {}, {}
        every = held.everything
        holdings = list_holdings(contested, owners, every.pending, every.at_work)
        return rank(holdings, leaving), {one.pod: one.uid for one in holdings}

    def _pods(self, workers: GroupWorkers) -> tuple[list[PodObservation], Owners]:
        pods, gone = self._cache.pods_of(workers.workload)
        namespace = workers.workload.target.namespace

        def is_pod(name: str) -> bool:
            return self._cache.pods.get((namespace, name)) is not None

        return pods, Owners(pods, gone, is_stranger=is_pod)

    async def _observe_held(self, workers: GroupWorkers) -> _Holdings | None:
        """What consumers hold; None when there are too many to list. Raises PelopsError.

        A consumer that reads several streams has one name in all their groups, and the sum of their
        pending entries counts. Other groups that cannot be observed are left out.
        """
        uid, now = workers.resource.metadata.uid, self._cache.clock()
        known = self._observed.get(uid)
        if known is not None and now - known[0] < FRESH_S:
            return known[1]
        own = await _list_held(workers)
        if own is None:
            return None
        held = _Holdings()
        held.everything.merge(own)
        held.counted.merge(own)
        unseen = await self._add_others(workers, held) if self._observer is not None else []
        held = replace(held, unseen=tuple(unseen))
        self._observed[uid] = (now, held)
        return held

    async def _add_others(self, workers: GroupWorkers, held: _Holdings) -> list[str]:
        """Add the other groups with these workers, each once: why some are missing."""
        manifests = self._other_resources(workers)
        answers = await asyncio.gather(*(self._reach(workers, one) for one in manifests))
        groups = {_identify(one): one for one in answers if isinstance(one, GroupWorkers)}
        groups.pop(_identify(workers), None)
        unseen = [one for one in answers if isinstance(one, str)]
        for other, listed in zip(
            groups.values(), await asyncio.gather(*map(_try_list, groups.values())), strict=True
        ):
            if isinstance(listed, _ConsumerHoldings):
                held.everything.merge(listed)
            if not is_measured(other.resource.spec):
                continue
            if isinstance(listed, _ConsumerHoldings):
                held.counted.merge(listed)
            else:
                unseen.append(f"{other}: {listed}")
        return unseen

    def _other_resources(self, workers: GroupWorkers) -> list[Manifest]:
        names = sorted(self._cache.resources_of(workers.workload.target))
        manifests = (self._cache.resources.get(name) for name in names)
        own = workers.resource.metadata.uid
        return [one for one in manifests if one is not None and one["metadata"]["uid"] != own]

    async def _reach(self, workers: GroupWorkers, manifest: Manifest) -> GroupWorkers | str | None:
        """Another group with these workers, or why it cannot be reached; None: no matter."""
        observer = self._observer
        if observer is None:
            return None
        try:
            resource = StreamConsumerGroup.parse(manifest)
        except InvalidSpec:
            return None  # its group is not known
        try:
            async with asyncio.timeout(NAMING_S):
                server, keys = await observer.connect(resource)
                has_former = await observer.has_former_retry(resource, server, keys)
        except (PelopsError, TimeoutError) as error:
            return f"{resource.metadata.key}: {error}" if is_measured(resource.spec) else None
        return GroupWorkers(
            resource=resource,
            server=server,
            keys=keys,
            workload=workers.workload,
            has_former_retry=has_former,
        )

    async def _mark(
        self, workers: GroupWorkers, name: str, uid: str, cost: int
    ) -> PelopsError | None:
        """Write the cost of one pod. Returns the error; None also if the pod was deleted."""
        address = Address(kind=POD, namespace=workers.workload.target.namespace, name=name)
        metadata: Manifest = {"uid": uid, "annotations": {DELETION_COST: str(cost)}}
        try:
            answer = await self._api.merge(address, {"metadata": metadata}, manager=SCALE_MANAGER)
        except PelopsError as error:
            return None if isinstance(error, NotFound | Conflict) else error
        self._cache.put(POD, answer)
        return None


async def _list_held(workers: GroupWorkers) -> _ConsumerHoldings | None:
    """What the consumers of a group hold; None: there are too many to list. Raises PelopsError."""
    keys, held = workers.keys, _ConsumerHoldings()
    with_retry = workers.has_former_retry or needs_retry_stream(workers.resource.spec)
    for stream in (keys.stream, keys.retry) if with_retry else (keys.stream,):
        count = await count_consumers(workers.server, stream, keys.group)
        if count > LISTABLE:
            return None
        for consumer in await list_consumers(workers.server, stream, keys.group) if count else ():
            held.add(consumer)
    return held


async def _try_list(workers: GroupWorkers) -> _ConsumerHoldings | str:
    """What the consumers of another group hold, or why that cannot be seen."""
    try:
        async with asyncio.timeout(NAMING_S):
            held = await _list_held(workers)
    except (PelopsError, TimeoutError) as error:
        return str(error) or f"Redis did not answer within {NAMING_S:g} s"
    return held or f"the group has more than {LISTABLE} consumers"


def _identify(workers: GroupWorkers) -> tuple[str, str, str]:
    return workers.server.address, workers.keys.stream, workers.keys.group


def _report(workers: GroupWorkers, what: str) -> None:
    log.warning("%s", what, extra={"resource": str(workers)})
