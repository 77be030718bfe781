"""Groups with one workload: the loops of one replica on a real Redis, without an API server."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from redis import Redis

from local_cluster.redis_servers import StandaloneServers
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import GroupMemory
from pelops.controller.kinds.group_wiring import build_group_kind
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.connections import Connections, Secrets
from pelops.controller.runtime.kind import Pass, Services
from pelops.controller.runtime.leases import Members, MembershipView
from pelops.controller.runtime.settings import parse_settings
from pelops.domain.entry_id import EntryId
from pelops.errors import NotFound
from pelops.kube.client import DEPLOYMENT, POD, STREAM_CONSUMER_GROUP, Address, Kind, KubeApi
from pelops.policy.status.reasons import Reason
from pelops.redis_core.pool import ServerPool
from pelops.redis_streams.group.lifecycle import provision_group
from tests.builders import manifest
from tests.cached_objects import deployment, pod

WAIT_S = 30.0
LABELS = {"app": "w"}
BORN = "2026-01-01T00:00:00Z"
LONG_BEFORE_MS = 3_500  # more than clocks may differ (2 s), and than Kubernetes cuts off its times
AUTO = {
    "mode": "Auto",
    "backlogPerReplica": 5,
    "cooldownSeconds": 1,
    "maxReplicas": 6,
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}},
}
FOLLOW = {"mode": "Follow", "backlogPerReplica": 5}
BY_DEATH_ALONE = {"processingTimeoutSeconds": 3600, "scanPeriodSeconds": 3600}
Object = dict[str, Any]


class Alone(Members):
    """The only replica."""

    def __init__(self) -> None:
        self.identity = "one"

    @property
    def alive(self) -> frozenset[str]:
        return frozenset({"one"})

    @property
    def standing(self) -> MembershipView:
        return MembershipView(joins=1, is_admitted=True, members=self.alive)

    def rank(self, key: str) -> int:
        return 0

    def decides(self, key: str) -> bool:
        return True

    def left_s(self) -> float:
        return 1_000.0


class Cluster(KubeApi):
    """A cluster that runs the requested number of pods at once."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.version = 0
        self.pods: dict[str, Object] = {}

    def run(self, replicas: int) -> None:
        """Show the Deployment with so many replicas, and its pods."""
        self.version += 1
        shown = deployment("workers", LABELS, version=self.version)
        shown["spec"]["replicas"] = replicas
        shown["status"] = {"readyReplicas": replicas, "replicas": replicas}
        self.cache.hear(DEPLOYMENT, shown, False)
        for number in range(replicas):
            self._show(f"w-{number}", "Running", {"running": {"startedAt": BORN}})

    def kill(self, name: str) -> None:
        """End the container of a pod."""
        self.version += 1
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {"startedAt": BORN, "finishedAt": now, "exitCode": 137, "reason": "Error"}
        self._show(name, "Failed", {"terminated": ended})

    def _show(self, name: str, phase: str, state: Object) -> None:
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(phase == "Running")}],
            "containerStatuses": [{"name": "worker", "restartCount": 0, "state": state}],
        }
        self.pods[name] = {**pod(name, LABELS, version=self.version), "status": status}
        self.cache.hear(POD, self.pods[name], False)

    async def get(self, address: Address) -> Object:
        if address.kind != POD or address.name not in self.pods:
            raise NotFound(address.name)
        return self.pods[address.name]

    async def merge(self, address: Address, body: Object, *, manager: str = "") -> Object:
        if address.subresource != "scale":
            return self.pods[address.name]
        self.run(body["spec"]["replicas"])
        return {"metadata": {"resourceVersion": str(self.version)}, "spec": body["spec"]}

    async def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        return body


class Replica:
    """One replica whose loops scan and scale, and what a user does."""

    def __init__(self, servers: StandaloneServers) -> None:
        self.url = servers.url
        self.redis: Any = Redis.from_url(servers.url, decode_responses=True)
        self.prefix = uuid.uuid4().hex
        self.cache = Cache()
        self.cluster = Cluster(self.cache)
        self.pool = ServerPool()
        services = Services(
            api=self.cluster,
            cache=self.cache,
            members=Alone(),
            connections=Connections(self.pool, Secrets(self.cluster, time.monotonic)),
            settings=parse_settings(["--identity", "one"], {}),
            clock=time.monotonic,
        )
        self.kind = build_group_kind(services, cluster="c", notices=lambda _: ())
        self.cache.listen(STREAM_CONSUMER_GROUP, self.kind.notice)
        self.cluster.run(0)
        self.version = 0

    def stream(self, name: str) -> str:
        """The stream of a resource."""
        return f"{self.prefix}:{name}"

    async def declare(self, name: str, scaling: Object | None) -> None:
        """Declare a resource whose workers these are; its group is there."""
        self.version += 1
        metadata = {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(self.version),
            "generation": self.version,
            "creationTimestamp": f"2026-05-04T03:02:{self.version:02}Z",
        }
        declared = manifest(
            metadata=metadata,
            redis={"url": self.url},
            stream=self.stream(name),
            group="workers",
            target_ref=None,
            targetRef={"name": "workers"},
            recovery=BY_DEATH_ALONE,
            **({} if scaling is None else {"scaling": scaling}),
        )
        resource = StreamConsumerGroup.parse(declared)
        observer = self.kind._observer
        server, keys = await observer.connect(resource)
        owner = observer.owner_of(resource)
        await provision_group(server, keys, start=EntryId.MIN, owner=owner)
        self.cache.hear(STREAM_CONSUMER_GROUP, declared, False)

    def delete(self, name: str) -> None:
        """Delete a resource."""
        gone = self.cache.objects(STREAM_CONSUMER_GROUP)["shop", name]
        self.cache.hear(STREAM_CONSUMER_GROUP, gone, True)

    def add(self, name: str, count: int) -> None:
        """Add entries to the stream of a resource."""
        for number in range(count):
            self.redis.xadd(self.stream(name), {"n": number})

    def pending(self, name: str) -> int:
        """Pending entries of its group."""
        return int(self.redis.xpending(self.stream(name), "workers")["pending"])

    @property
    def replicas(self) -> int:
        """The replicas that the Deployment requests."""
        return self.kind._cache.deployments["shop", "workers"].observation.wished or 0

    async def status(self, name: str) -> Object:
        """The status that a pass would write."""
        found = self.cache.objects(STREAM_CONSUMER_GROUP)["shop", name]
        resource = StreamConsumerGroup.parse(found)
        one = Pass(resource=resource, manifest=found, memory=GroupMemory(), rank=0)
        observed = await self.kind.observe(one)
        status: Object = self.kind.decide_status(observed, one, datetime.now(UTC)).status
        return status

    async def reason(self, name: str, kind: str = "ScalingActive") -> str:
        """The reason of a condition."""
        conditions = (await self.status(name))["conditions"]
        return str(next(one["reason"] for one in conditions if one["type"] == kind))

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Return once it is so."""
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await asyncio.sleep(0.02)
        assert is_so(), what

    async def await_replicas(self, count: int) -> None:
        """Return once so many workers are asked for."""
        await self.until(lambda: self.replicas == count, f"{count} replicas")


@pytest.fixture
async def replica(redis_86: StandaloneServers) -> AsyncIterator[Replica]:
    one = Replica(redis_86)
    await one.declare("lead", AUTO)
    await one.declare("mailing", FOLLOW)
    loops = [asyncio.create_task(run()) for run in one.kind.loops().values()]
    yield one
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    await one.pool.close()
    one.redis.close()


async def test_any_group_starts_workers_and_demands_are_summed_or_maximized(
    replica: Replica,
) -> None:
    replica.add("mailing", 6)
    await replica.await_replicas(2)
    replica.add("lead", 6)
    await replica.await_replicas(3)
    shown = {name: (await replica.status(name))["scaling"] for name in ("lead", "mailing")}
    assert shown["lead"] == {
        "leader": "lead",
        "demand": "1.2",
        "sharedWith": [{"name": "mailing", "mode": "Follow", "demand": "1.2"}],
    }
    assert shown["mailing"]["sharedWith"] == [{"name": "lead", "mode": "Auto", "demand": "1.2"}]
    assert await replica.reason("mailing") == Reason.FOLLOWING
    await replica.declare("lead", {**AUTO, "combine": "Max"})
    await replica.await_replicas(2)
    for name in ("lead", "mailing"):
        replica.redis.xgroup_setid(replica.stream(name), "workers", "$")
    await replica.await_replicas(0)


async def test_the_death_of_a_pod_frees_what_it_held_of_every_group(replica: Replica) -> None:
    await replica.declare("returns", None)
    names = ("lead", "mailing", "returns")
    for name in names:
        replica.add(name, 6)
    await replica.await_replicas(3)
    streams = {replica.stream(name): ">" for name in names}
    replica.redis.xreadgroup("workers", "w-0:uid-w-0", streams, 2)
    assert [replica.pending(name) for name in names] == [2, 2, 2]

    def is_old() -> bool:
        lines = [
            line
            for name in names
            for line in replica.redis.xpending_range(replica.stream(name), "workers", "-", "+", 9)
        ]
        return all(line["time_since_delivered"] > LONG_BEFORE_MS for line in lines)

    await replica.until(is_old, "entries that were read long before")
    replica.cluster.kill("w-0")
    await replica.until(lambda: not any(map(replica.pending, names)), "all to recover")


async def test_the_workers_stay_without_a_leader_and_the_next_one_goes_on(
    replica: Replica,
) -> None:
    replica.add("lead", 10)
    await replica.await_replicas(2)
    await replica.declare("younger", {**AUTO, "minReplicas": 4})
    assert await replica.reason("younger") == Reason.CONFLICT
    assert await replica.reason("younger", "GroupReady") == Reason.GROUP_EXISTS
    await replica.declare("younger", FOLLOW)
    replica.delete("lead")
    assert await replica.reason("mailing") == Reason.LEADER_MISSING
    replica.add("mailing", 20)
    assert replica.replicas == 2
    await replica.declare("younger", AUTO)
    await replica.await_replicas(4)
