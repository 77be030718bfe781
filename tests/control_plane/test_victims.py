"""Who goes in a scale-in, on a real API server: pods that run, and a Redis that says who holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.controller.group.victims import GroupWorkers, Victims
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.naming import derive_keys
from pelops.domain.workload import Target
from pelops.kube.client import DEPLOYMENT, POD, KubeApi
from pelops.kube.workload_observation import DELETION_COST
from pelops.policy.scaling.victims import AT_WORK_S
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import list_consumers
from tests.api_objects import list_objects
from tests.builders import resource
from tests.cluster_fixtures import own_node
from tests.e2e.declaring import a_workload
from tests.integration.redis_adapter import add, connected, deliver, endpoint_of, provision
from tests.operators import Resources

WAIT_S = 60.0
NAME = "orders"


@dataclass(slots=True, kw_only=True)
class Scene:
    """A Deployment of the user's own whose pods run, its group, and a replica that knows both."""

    resources: Resources
    api: KubeApi
    server: Server
    cache: WorkloadCache
    fleet: GroupWorkers
    victims: Victims

    def pods(self) -> list[dict[str, Any]]:
        """The pods that are ready and stay, by name."""
        items = list_objects(self.resources.plane, self.resources.namespace, "pod")
        staying = [one for one in items if "deletionTimestamp" not in one["metadata"]]
        return sorted(filter(_is_ready, staying), key=lambda one: str(one["metadata"]["name"]))

    async def look(self) -> None:
        """Have the replica observe the Deployment and its pods."""
        for kind in (DEPLOYMENT, POD):
            for manifest in await self.api.list_all(kind, self.resources.namespace):
                self.cache.put(kind, manifest)
        workload = self.cache.workload(self.fleet.workload.target)
        assert workload is not None
        self.fleet = replace(self.fleet, workload=workload)

    async def settle(self, replicas: int) -> list[str]:
        """Scale to this number: the names of the pods, once so many are left."""
        where = ("-n", self.resources.namespace, f"--replicas={replicas}")
        self.resources.plane.kubectl("scale", "deployment", NAME, *where)
        wait_until(lambda: len(self.pods()) == replicas, timeout_s=WAIT_S, what=f"{replicas} pods")
        await self.look()
        return [one["metadata"]["name"] for one in self.pods()]

    async def hold(self, name: str, entries: int, *, retried: bool = False) -> None:
        """Have a pod read so many entries, of the stream or of the retry stream."""
        keys = self.fleet.keys
        if retried:
            keys = replace(keys, stream=keys.retry)
            create = ("XGROUP", "CREATE", keys.stream, keys.group, "0", "MKSTREAM")
            await self.server.execute(*create, key=keys.stream, writes=True)
        uid = next(pod.uid for pod in self.fleet.workload.pods if pod.name == name)
        for _ in range(entries):
            await add(self.server, keys.stream)
        await deliver(self.server, keys, entries, f"{name}:{uid}")

    def costs(self) -> dict[str, str]:
        """The deletion costs of the pods that have one."""
        found = {p["metadata"]["name"]: p["metadata"].get("annotations") or {} for p in self.pods()}
        return {
            name: notes[DELETION_COST] for name, notes in found.items() if DELETION_COST in notes
        }


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with own_node(plane, tmp_path_factory.mktemp("node")) as started:
        yield started


@pytest.fixture
async def scene(
    plane: ControlPlane, node: Node, namespace: str, redis_86: StandaloneServers, key_prefix: str
) -> AsyncIterator[Scene]:
    resources = Resources(plane, namespace)
    resources.apply_raw(a_workload("Deployment", NAME, 4))
    api = await KubeApi.connect(str(plane.kubeconfig))
    cache = WorkloadCache(asyncio.get_running_loop().time)
    keys = derive_keys(f"{key_prefix}orders", "workers")
    target = Target(api_version="apps/v1", kind="Deployment", namespace=namespace, name=NAME)
    async with connected(endpoint_of(redis_86)) as server:
        await provision(server, keys)
        owner = resource(metadata={"namespace": namespace}, recovery={"strategy": "RetryStream"})
        await _await_deployment(api, cache, target)
        workload = cache.workload(target)
        assert workload is not None
        fleet = GroupWorkers(resource=owner, server=server, keys=keys, workload=workload)
        scene = Scene(
            resources=resources,
            api=api,
            server=server,
            cache=cache,
            fleet=fleet,
            victims=Victims(api, cache),
        )
        await scene.settle(4)
        yield scene
    await api.close()


async def test_exactly_the_idle_pods_go(scene: Scene) -> None:
    busy = await _two_busy(scene)
    assert await scene.victims.count_busy(scene.fleet) == 2
    await scene.victims.name_victims(scene.fleet, 2)
    assert set(scene.costs().values()) == {"-1"}
    assert not scene.costs().keys() & busy
    assert set(await scene.settle(2)) == busy


@pytest.mark.full
async def test_a_worker_that_asks_for_more_is_not_at_work(scene: Scene) -> None:
    names = [one["metadata"]["name"] for one in scene.pods()]
    await _two_busy(scene)
    assert await scene.victims.count_busy(scene.fleet, only_at_work=True) == 0
    await _await_silence(scene)
    victims = Victims(scene.api, scene.cache)
    assert await victims.count_busy(scene.fleet, only_at_work=True) == 2
    await scene.hold(names[1], 1)
    victims = Victims(scene.api, scene.cache)
    assert await victims.count_busy(scene.fleet, only_at_work=True) == 1
    await victims.name_victims(scene.fleet, 3)
    assert await scene.settle(1) == [names[2]]


async def test_named_once_the_pods_are_not_written_to_again(scene: Scene) -> None:
    await _two_busy(scene)
    await scene.victims.name_victims(scene.fleet, 2)
    before = [one["metadata"]["resourceVersion"] for one in scene.pods()]
    await scene.look()
    await scene.victims.name_victims(scene.fleet, 2)
    assert [one["metadata"]["resourceVersion"] for one in scene.pods()] == before


async def test_a_scale_in_that_was_called_off_does_not_mislead_the_next(scene: Scene) -> None:
    names = [one["metadata"]["name"] for one in scene.pods()]
    await scene.hold(names[0], 1)
    await scene.victims.name_victims(scene.fleet, 2)
    (once_idle, *_) = scene.costs()
    await scene.look()
    await scene.hold(once_idle, 5)
    await Victims(scene.api, scene.cache).name_victims(scene.fleet, 2)
    assert set(await scene.settle(2)) == {names[0], once_idle}


async def test_without_redis_no_pods_are_counted_or_named_and_nothing_fails(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        servers = stack.enter_context(start_standalone("8.6"))
        async with connected(endpoint_of(servers)) as server:
            stack.close()
            fleet = replace(scene.fleet, server=server)
            assert await scene.victims.count_busy(fleet) is None
            await scene.victims.name_victims(fleet, 2)
    assert "Could not list the pods that hold pending entries" in caplog.text
    assert "Could not choose the pods to remove first" in caplog.text
    assert scene.costs() == {}


async def test_a_group_that_is_gone_has_no_busy_pods(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.server.execute(
        "DEL", scene.fleet.keys.stream, key=scene.fleet.keys.stream, writes=True
    )
    assert await scene.victims.count_busy(scene.fleet) == 0
    await scene.victims.name_victims(scene.fleet, 2)
    assert len(scene.costs()) == 2
    assert caplog.text == ""


async def test_a_refusal_to_patch_pods_is_reported_and_does_not_fail(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await _two_busy(scene)
    nobody = await KubeApi.connect(str(scene.resources.plane.kubeconfig_for("nobody")))
    try:
        await Victims(nobody, scene.cache).name_victims(scene.fleet, 2)
    finally:
        await nobody.close()
    assert 'cannot patch resource "pods"' in caplog.text
    assert scene.costs() == {}


async def test_an_api_server_that_hangs_does_not_keep_the_scale_in_waiting(
    scene: Scene, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await _two_busy(scene)
    hangs = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hangs.wait()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        plane, path = scene.resources.plane, tmp_path / "kubeconfig"
        path.write_text(
            plane.kubeconfig.read_text().replace(plane.url, f"https://127.0.0.1:{port}")
        )
        api = await KubeApi.connect(str(path))
        await Victims(api, scene.cache).name_victims(scene.fleet, 2)
        await api.close()
        hangs.set()
    assert "Could not choose the pods to remove first: the API server did not answer" in caplog.text
    assert scene.costs() == {}


async def test_a_pod_that_went_meanwhile_is_nothing_to_report(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    busy = await _two_busy(scene)
    gone = next(p["metadata"]["name"] for p in scene.pods() if p["metadata"]["name"] not in busy)
    force = ("--grace-period=0", "--force", "--wait=true", "-n", scene.resources.namespace)
    scene.resources.plane.kubectl("delete", "pod", gone, *force)
    await scene.victims.name_victims(scene.fleet, 2)
    assert len(scene.costs()) == 1
    assert caplog.text == ""


async def test_too_many_consumers_are_not_listed(scene: Scene) -> None:
    keys = scene.fleet.keys
    await _two_busy(scene)
    for number in range(2_001):
        create = ("XGROUP", "CREATECONSUMER", keys.stream, keys.group, f"c-{number}")
        await scene.server.execute(*create, key=keys.stream, writes=True)
    assert await scene.victims.count_busy(scene.fleet) is None
    await scene.victims.name_victims(scene.fleet, 2)
    assert scene.costs() == {}


async def _two_busy(scene: Scene) -> set[str]:
    """Have one pod hold an entry of the stream, and one of the retry stream."""
    names = [one["metadata"]["name"] for one in scene.pods()]
    await scene.hold(names[1], 1)
    await scene.hold(names[2], 1, retried=True)
    return {names[1], names[2]}


async def _await_silence(scene: Scene) -> None:
    """Wait until every consumer has been idle for so long that it must be at work."""
    keys = scene.fleet.keys
    for stream in (keys.stream, keys.retry):
        while any(
            one.idle.total_seconds() < AT_WORK_S
            for one in await list_consumers(scene.server, stream, keys.group)
        ):
            await asyncio.sleep(0.2)


async def _await_deployment(api: KubeApi, cache: WorkloadCache, target: Target) -> None:
    while cache.workload(target) is None:
        for manifest in await api.list_all(DEPLOYMENT, target.namespace):
            cache.put(DEPLOYMENT, manifest)


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
