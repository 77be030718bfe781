"""What pods hold over all groups with the same workers, on a real Redis."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import GroupObserver
from pelops.controller.group.victims import GroupWorkers, Victims
from pelops.controller.workload.workload_cache import WorkloadCache, target_of
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.errors import RedisUnavailable
from pelops.kube.client import DEPLOYMENT, POD, STREAM_CONSUMER_GROUP, Address, KubeApi
from pelops.kube.workload_observation import DELETION_COST
from pelops.redis_core.server import Server
from tests.builders import manifest
from tests.cached_objects import deployment, known, pod
from tests.integration.redis_adapter import add, connected, deliver, endpoint_of, provision

PODS = [f"w-{number}" for number in range(4)]
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}


class Marked(KubeApi):
    """Remembers which pods were given which cost."""

    def __init__(self) -> None:
        self.costs: dict[str, str] = {}

    async def merge(
        self, address: Address, body: dict[str, Any], *, manager: str = ""
    ) -> dict[str, Any]:
        self.costs[address.name] = body["metadata"]["annotations"][DELETION_COST]
        return a_pod(address.name, version=2)


@dataclass
class Reached(GroupObserver):
    """All groups are on one server; some cannot be reached."""

    server: Server
    missing: set[str] = field(default_factory=set)

    async def connect(self, resource: StreamConsumerGroup) -> tuple[Server, GroupKeys]:
        if resource.metadata.name in self.missing:
            raise RedisUnavailable("nothing answers")
        return self.server, derive_keys(resource.spec.stream, resource.group_name)

    async def has_former_retry(
        self, resource: StreamConsumerGroup, server: Server, keys: GroupKeys
    ) -> bool:
        return False


def a_pod(name: str, version: int = 1) -> dict[str, Any]:
    """A worker that runs and is ready."""
    return {**pod(name, {"app": "w"}, version=version), "status": READY}


@dataclass(kw_only=True)
class Scene:
    """Four pods of one Deployment, and the resources that name it."""

    server: Server
    prefix: str
    cache: WorkloadCache = field(default_factory=WorkloadCache)
    api: Marked = field(default_factory=Marked)

    def __post_init__(self) -> None:
        self.observer = Reached(self.server)
        self.cache.put(DEPLOYMENT, deployment("workers", {"app": "w"}))
        for name in PODS:
            self.cache.put(POD, a_pod(name))

    async def declare(self, name: str, mode: str | None, *, stream: str = "") -> GroupWorkers:
        """A resource whose workers these are, and its group."""
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
        scaling = {} if mode is None else {"scaling": {"mode": mode}}
        asked = manifest(
            metadata=metadata,
            stream=stream or f"{self.prefix}{name}",
            group="workers",
            target_ref=None,
            targetRef={"name": "workers"},
            **scaling,
        )
        self.cache.put(STREAM_CONSUMER_GROUP, asked)
        resource = StreamConsumerGroup.parse(asked)
        keys = derive_keys(resource.spec.stream, "workers")
        if not stream:
            await provision(self.server, keys)
        workload = replace(known(self.cache, target_of(asked)), wished=len(PODS))
        return GroupWorkers(resource=resource, server=self.server, keys=keys, workload=workload)

    async def hold(self, fleet: GroupWorkers, name: str, entries: int = 1) -> None:
        """Have a pod read entries of a group, under its one name."""
        for _ in range(entries):
            await add(self.server, fleet.keys.stream)
        await deliver(self.server, fleet.keys, entries, f"{name}:uid-{name}")

    def victims(self) -> Victims:
        """With no memory of what was seen."""
        return Victims(self.api, self.cache, self.observer)


@pytest.fixture
async def scene(redis_86: StandaloneServers) -> AsyncIterator[Scene]:
    async with connected(endpoint_of(redis_86)) as server:
        yield Scene(server=server, prefix=f"{uuid.uuid4().hex}:")


async def test_the_pods_go_that_hold_least_over_all_groups(scene: Scene) -> None:
    lead, mailing = await scene.declare("lead", "Auto"), await scene.declare("mailing", "Follow")
    for fleet, name, entries in (
        (lead, "w-0", 3),
        (lead, "w-1", 2),
        (mailing, "w-1", 2),
        (mailing, "w-2", 5),
        (lead, "w-3", 3),
        (mailing, "w-3", 3),
    ):
        await scene.hold(fleet, name, entries)
    await scene.victims().name_victims(lead, 2)
    # Three and four entries; of its own group alone w-2 holds none.
    assert scene.api.costs == {"w-0": "-1", "w-1": "-1"}


async def test_pods_are_kept_that_hold_entries_of_any_group_that_is_counted(scene: Scene) -> None:
    lead, mailing = await scene.declare("lead", "Auto"), await scene.declare("mailing", "Follow")
    other = await scene.declare("other", None)
    assert await scene.victims().count_busy(lead) == 0
    await scene.hold(lead, "w-0")
    await scene.hold(mailing, "w-0")
    assert await scene.victims().count_busy(lead) == 1
    await scene.hold(mailing, "w-1")
    assert await scene.victims().count_busy(lead) == 2
    await scene.hold(other, "w-2")
    assert await scene.victims().count_busy(lead) == 2, "nobody counts it"
    await scene.victims().name_victims(lead, 1)
    assert scene.api.costs == {"w-3": "-1"}, "it still goes last"


async def test_a_group_that_cannot_be_seen_keeps_all_and_hinders_no_naming(scene: Scene) -> None:
    lead, mailing = await scene.declare("lead", "Auto"), await scene.declare("mailing", "Follow")
    await scene.hold(lead, "w-0")
    await scene.hold(mailing, "w-1")
    scene.observer.missing = {"mailing"}
    assert await scene.victims().count_busy(lead) is None
    await scene.victims().name_victims(lead, 3)
    assert set(scene.api.costs.values()) == {"1"} and scene.api.costs.keys() == {"w-0"}


async def test_an_unreachable_group_with_scaling_disabled_keeps_no_pods(scene: Scene) -> None:
    lead = await scene.declare("lead", "Auto")
    await scene.declare("other", "Disabled")
    scene.observer.missing = {"other"}
    await scene.hold(lead, "w-0")
    assert await scene.victims().count_busy(lead) == 1


async def test_a_group_that_two_resources_name_is_counted_once(scene: Scene) -> None:
    lead = await scene.declare("lead", "Auto")
    await scene.declare("twin", "Follow", stream=lead.keys.stream)
    mailing = await scene.declare("mailing", "Follow")
    for name, entries in (("w-0", 2), ("w-1", 3), ("w-2", 4), ("w-3", 5)):
        await scene.hold(lead, name, entries)
    await scene.hold(mailing, "w-0", 2)
    await scene.victims().name_victims(lead, 1)
    assert scene.api.costs == {"w-1": "-1"}, "w-0 holds four entries, not six"
