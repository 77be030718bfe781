"""The part of an operator replica that scans, in this process, put together as a replica does it.

It gets from here what a watch would report; it asks a real API server about pods that may be dead,
and a real Redis about everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pelops.controller.group.group_observer import GroupObserver
from pelops.controller.recovery.pod_evidence import LivenessEvidence, NodeClocks
from pelops.controller.recovery.scan_loop import ScanLoop
from pelops.controller.recovery.scanner import ScanAdapters, Scanner
from pelops.controller.runtime.connections import Connections, Secrets
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.gate import Progress
from pelops.controller.runtime.leases import Members, MembershipView
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import Trigger
from pelops.kube.client import DEPLOYMENT, POD, STREAM_CONSUMER_GROUP, KubeApi, Manifest
from pelops.policy.membership import rank_of
from pelops.redis_core.pool import ServerPool

NAMESPACE = "default"
WORKERS = "order-workers"
LABELS = {"app": WORKERS}
SKEW = timedelta(seconds=2)
END_S = 1.0
BORN = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanningReplica:
    """Scans on request, or by its own clock while `sweeping`."""

    identity: str
    cache: WorkloadCache
    pool: ServerPool
    scanner: Scanner
    loop: ScanLoop

    def declare(self, keys: GroupKeys, url: str, **recovery: Any) -> None:
        """Let it know a resource for this group, whose name is the group's."""
        self.cache.put(STREAM_CONSUMER_GROUP, build_resource(keys, url, recovery))
        self.cache.put(DEPLOYMENT, _deployment())

    def wake(self, keys: GroupKeys) -> None:
        """Wake the loop as if a pod of this group had died."""
        self.loop.wake((NAMESPACE, keys.group), Trigger.POD_DEATH)

    def meet(self, consumers: Collection[str]) -> None:
        """Let it know live pods that these consumers are the processes of."""
        for consumer in consumers:
            self.cache.put(POD, _pod(consumer, {"running": {"startedAt": BORN}}))

    def bury(self, consumer: str) -> None:
        """Let it see that the pod of this consumer ended, and went."""
        ended = {"exitCode": 137, "startedAt": BORN, "finishedAt": BORN}
        last = _pod(consumer, {"terminated": ended}, phase="Failed")
        name, uid = last["metadata"]["name"], last["metadata"]["uid"]
        self.cache.remove(POD, (NAMESPACE, name), uid, last=last)

    async def scan(self, keys: GroupKeys) -> None:
        """One scan, at once."""
        await self.scanner.scan((NAMESPACE, keys.group), Trigger.POD_DEATH)

    @asynccontextmanager
    async def scanning(self) -> AsyncIterator[None]:
        """Scan whatever is due, within the block."""
        task = asyncio.create_task(self.loop.run())
        try:
            yield
        finally:
            # Without resources nothing is scanned, also by a task that overhears its cancellation.
            for name in list(self.cache.resources):
                self.cache.remove(STREAM_CONSUMER_GROUP, name)
            task.cancel()
            await asyncio.wait([task], timeout=END_S)


@asynccontextmanager
async def start_replicas(kubeconfig: str, count: int) -> AsyncIterator[list[ScanningReplica]]:
    """Replicas that know of each other, and end with the block."""
    api = await KubeApi.connect(kubeconfig)
    identities = frozenset(f"replica-{number}" for number in range(count))
    replicas = [_build(api, identity, identities) for identity in sorted(identities)]
    try:
        yield replicas
    finally:
        for replica in replicas:
            await replica.pool.close()
        await api.close()


class Ranked(Members):
    """A replica that knows all others from the beginning."""

    def __init__(self, identity: str, alive: frozenset[str]) -> None:
        self.identity = identity
        self._replicas = alive

    @property
    def alive(self) -> frozenset[str]:
        return self._replicas

    @property
    def standing(self) -> MembershipView:
        return MembershipView(joins=1, is_admitted=True, members=self.alive)

    def rank(self, key: str) -> int:
        return rank_of(self.identity, self.alive, key)


def _build(api: KubeApi, identity: str, alive: frozenset[str]) -> ScanningReplica:
    clock = asyncio.get_running_loop().time
    cache, pool = WorkloadCache(), ServerPool()
    targets = Targets(api, cache, clock)
    members = Ranked(identity, alive)
    connections = Connections(pool, Secrets(api, clock))
    parts = ScanAdapters(
        cache=cache,
        observer=GroupObserver(cache, connections, targets, cluster=""),
        members=members,
        evidence=LivenessEvidence(api, cache, clocks=NodeClocks(api, clock)),
        targets=targets,
        skew=SKEW,
        reporter=Reporter(api, STREAM_CONSUMER_GROUP, identity=identity),
        listening_problem=lambda _: None,
        identity=identity,
        make_due=lambda _: None,
        is_settled=lambda _: False,
    )
    scanner = Scanner(parts, clock)
    loop = ScanLoop(scanner, cache, members, Progress(), clock)
    return ScanningReplica(identity=identity, cache=cache, pool=pool, scanner=scanner, loop=loop)


def worker_names(count: int, *, of: str = WORKERS) -> list[str]:
    """Consumers as the operator names them: a pod's name and its uid."""
    return [f"{of}-{number}:{uuid5(NAMESPACE_URL, f'{of}-{number}')}" for number in range(count)]


def build_resource(keys: GroupKeys, url: str, recovery: Mapping[str, Any]) -> Manifest:
    """A resource as the API server would show it; its uid is its name with `uid-` before it."""
    return {
        "apiVersion": STREAM_CONSUMER_GROUP.api_version,
        "kind": STREAM_CONSUMER_GROUP.kind,
        "metadata": {
            "name": keys.group,
            "namespace": NAMESPACE,
            "uid": uid_of(keys),
            "generation": 1,
            "creationTimestamp": BORN,
        },
        "spec": {
            "redis": {"url": url},
            "stream": keys.stream,
            "targetRef": {"name": WORKERS},
            "recovery": dict(recovery),
        },
    }


def uid_of(keys: GroupKeys) -> str:
    """The uid of a group's resource."""
    return f"uid-{keys.group}"


def _deployment() -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": WORKERS, "namespace": NAMESPACE, "uid": "uid-of-the-deployment"},
        "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}},
    }


def _pod(consumer: str, state: Mapping[str, Any], *, phase: str = "Running") -> Manifest:
    name, _, uid = consumer.partition(":")
    report = {"name": "worker", "state": dict(state), "restartCount": 0}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "labels": LABELS,
            "creationTimestamp": BORN,
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "worker"}]},
        "status": {"phase": phase, "containerStatuses": [report]},
    }
