"""What is known of the workers' number between Pelops' own write and the event that reports it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from local_cluster.plane import ControlPlane
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.workload.targets import LAGGING_S, Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import DEPLOYMENT, Address, KubeApi
from tests.builders import resource
from tests.e2e.declaring import a_deployment
from tests.operators import Resources

NAME = "workers"


@dataclass
class Scene:
    """A Deployment, and a replica of the operator whose watch reports only on `hear`."""

    resources: Resources
    api: KubeApi
    cache: WorkloadCache
    targets: Targets
    asked: StreamConsumerGroup
    now: float = 0.0

    async def wished(self) -> int | None:
        """What the replica takes for the number of replicas that is wished."""
        workload, problem = await self.targets.observe(self.asked)
        assert problem is None
        return workload.wished

    async def write(self, replicas: int) -> None:
        """Have the replica write the number."""
        workload, _ = await self.targets.observe(self.asked)
        await self.targets.scale(workload.target, replicas)

    async def read(self) -> dict[str, Any]:
        """The Deployment as it is."""
        address = Address(kind=DEPLOYMENT, namespace=self.resources.namespace, name=NAME)
        return await self.api.get(address)

    async def hear(self) -> None:
        """Have the watch report the Deployment as it is."""
        self.cache.put(DEPLOYMENT, await self.read())


@pytest.fixture
async def scene(plane: ControlPlane, namespace: str) -> AsyncIterator[Scene]:
    resources = Resources(plane, namespace)
    resources.apply_raw(a_deployment(NAME, 1))
    api = await KubeApi.connect(str(plane.kubeconfig))
    cache = WorkloadCache()
    asked = resource(
        metadata={"namespace": namespace}, target_ref={"name": NAME}, scaling={"mode": "Auto"}
    )
    made: Scene
    made = Scene(resources, api, cache, Targets(api, cache, lambda: made.now), asked)
    await made.hear()
    yield made
    await api.close()


async def test_a_number_that_was_just_written_counts_before_the_watch_reports_it(
    scene: Scene,
) -> None:
    await scene.write(3)
    assert await scene.wished() == 3
    await scene.hear()
    assert await scene.wished() == 3


async def test_an_old_event_that_comes_late_does_not_hide_what_was_written(scene: Scene) -> None:
    await scene.write(2)
    old = await scene.read()
    await scene.write(3)
    scene.cache.put(DEPLOYMENT, old)
    assert await scene.wished() == 3


async def test_a_later_scale_by_another_writer_is_seen(scene: Scene) -> None:
    await scene.write(3)
    where = ("-n", scene.resources.namespace)
    scene.resources.plane.kubectl("scale", "deployment", NAME, "--replicas=5", *where)
    await scene.hear()
    assert await scene.wished() == 5


async def test_a_watch_that_reports_nothing_for_seconds_is_not_waited_for(scene: Scene) -> None:
    await scene.write(3)
    where = ("-n", scene.resources.namespace)
    scene.resources.plane.kubectl("scale", "deployment", NAME, "--replicas=5", *where)
    assert await scene.wished() == 3
    scene.now += LAGGING_S + 1
    assert await scene.wished() == 5
