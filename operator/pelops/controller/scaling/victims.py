"""Which pods hold entries, and the naming of those that a scale-in should take.

    Redis    pending entries by consumer, of the stream and of its retry stream: one look for both
    cache    the pods that are, and what their names say about consumers
    policy   who goes: those that hold least, then the youngest
    pods     the annotation pod-deletion-cost, on as few of them as possible

It is an optimisation: what a pod holds that goes nevertheless is recovered. So nothing here fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.cache import Recent
from pelops.controller.workload.cache import WorkloadCache
from pelops.domain.naming import GroupKeys
from pelops.domain.workload import PodObservation, WorkloadObservation
from pelops.errors import Conflict, NotFound, PelopsError
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.observation import DELETION_COST
from pelops.kube.resources import POD
from pelops.kube.worker_deployment import SCALE_MANAGER
from pelops.policy.group.provisioning import needs_retry_stream
from pelops.policy.recovery.owners import Owners
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

FRESH_S: Final = 1.0  # how long a look serves: one decision and what follows from it
NAMING_S: Final = 3.0  # how long a scale-in waits for its victims to be named
REMEMBERED: Final = 1_000  # looks
# They make their pods with ReplicaSets, which heed deletion costs.
_HEEDING: Final = frozenset({"Deployment", "ReplicaSet", "Rollout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The workers of one resource, and where to see what they hold."""

    resource: StreamConsumerGroup
    server: Server
    keys: GroupKeys
    workload: WorkloadObservation
    has_former_retry: bool = False  # a retry stream that the resource no longer asks for

    def __str__(self) -> str:
        return self.resource.metadata.key


@dataclass(frozen=True, slots=True)
class _Held:
    """Entries by consumer: all that it holds, and those of one that is still busy with them."""

    pending: Counter[str] = field(default_factory=Counter)
    at_work: Counter[str] = field(default_factory=Counter)

    def add(self, one: ObservedConsumer) -> None:
        self.pending[one.name] += one.pending
        if one.idle.total_seconds() >= AT_WORK_S:
            self.at_work[one.name] += one.pending


class Victims:
    """Sees which pods hold entries, and names those that should go."""

    def __init__(self, api: KubeApi, cache: WorkloadCache) -> None:
        self._api = api
        self._cache = cache
        self._looks: Recent[str, tuple[float, _Held]] = Recent(REMEMBERED)

    async def count_busy(self, fleet: Fleet, *, only_at_work: bool = False) -> int | None:
        """The fewest replicas with which no pod has to go that holds entries; with `only_at_work`,
        none whose consumers are still busy with them.

        For a Deployment the number of pods that hold any; for a StatefulSet, whose highest pods go
        first, the place of the last that does. A consumer that no pod matches may be any of them.
        Pods on their way out do not count. None: nobody can tell (Redis does not answer, or there
        are too many consumers to list).
        """
        pods, owners = self._pods(fleet)
        try:
            held = await self._see_held(fleet)
        except PelopsError as error:
            _report(fleet, f"cannot see which pods hold entries: {error}")
            return None
        if held is None:
            return None
        counted = held.at_work if only_at_work else held.pending
        return count_kept(
            list_holdings(filter(is_active, pods), owners, counted, held.at_work),
            unknown=count_unknown(owners, counted),
            by_ordinal=fleet.workload.target.kind == "StatefulSet",
        )

    async def name_victims(self, fleet: Fleet, leaving: int) -> None:
        """Have those pods go first that should, when `leaving` of the replicas wished now go.

        Call it just before the scale-in. It never fails and takes seconds at most: a scale-in with
        other victims is better than none.
        """
        try:
            costs, uids = await self._rank(fleet, leaving)
            async with asyncio.timeout(NAMING_S):
                outcomes = await asyncio.gather(
                    *(self._mark(fleet, name, uids[name], cost) for name, cost in costs.items())
                )
            problem = next((str(error) for error in outcomes if error is not None), None)
        except PelopsError as error:
            problem = str(error)
        except TimeoutError:
            problem = "the API server takes too long"
        if problem is not None:
            _report(fleet, f"cannot name the pods that should go first: {problem}")

    async def _rank(self, fleet: Fleet, leaving: int) -> tuple[dict[str, int], dict[str, str]]:
        """The costs to write, and the uids of their pods. Raises PelopsError."""
        pods, owners = self._pods(fleet)
        wished = fleet.workload.wished
        if wished is not None:
            # Pods that were never made need not go, and those of an earlier scale-in still have to.
            leaving += sum(map(is_active, pods)) - wished
        contested, leaving = find_contested(pods, leaving)
        if leaving == 0 or fleet.workload.target.kind not in _HEEDING:
            return {}, {}
        held = await self._see_held(fleet)
        if held is None:
            return {}, {}
        holdings = list_holdings(contested, owners, held.pending, held.at_work)
        return rank(holdings, leaving), {one.pod: one.uid for one in holdings}

    def _pods(self, fleet: Fleet) -> tuple[list[PodObservation], Owners]:
        pods, gone = self._cache.pods_of(fleet.workload)
        namespace = fleet.workload.target.namespace

        def is_pod(name: str) -> bool:
            return self._cache.pods.get((namespace, name)) is not None

        return pods, Owners(pods, gone, is_stranger=is_pod)

    async def _see_held(self, fleet: Fleet) -> _Held | None:
        """What consumers hold; None when there are too many to list. Raises PelopsError."""
        uid, now = fleet.resource.metadata.uid, self._cache.clock()
        known = self._looks.get(uid)
        if known is not None and now - known[0] < FRESH_S:
            return known[1]
        keys, held = fleet.keys, _Held()
        with_retry = fleet.has_former_retry or needs_retry_stream(fleet.resource.spec)
        for stream in (keys.stream, keys.retry) if with_retry else (keys.stream,):
            count = await count_consumers(fleet.server, stream, keys.group)
            if count > LISTABLE:
                return None
            for one in await list_consumers(fleet.server, stream, keys.group) if count else ():
                held.add(one)
        self._looks[uid] = (now, held)
        return held

    async def _mark(self, fleet: Fleet, name: str, uid: str, cost: int) -> PelopsError | None:
        """Write one pod's cost: what kept it from being written, unless the pod is gone."""
        address = Address(kind=POD, namespace=fleet.workload.target.namespace, name=name)
        metadata: Manifest = {"uid": uid, "annotations": {DELETION_COST: str(cost)}}
        try:
            answer = await self._api.merge(address, {"metadata": metadata}, manager=SCALE_MANAGER)
        except PelopsError as error:
            return None if isinstance(error, NotFound | Conflict) else error
        self._cache.put(POD, answer)
        return None


def _report(fleet: Fleet, what: str) -> None:
    log.warning("%s", what, extra={"resource": str(fleet)})
