"""Putting a phase's world together; what is started is added to `ends`, which end it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers, ServerOptions, start_servers
from tests.faults.collecting import Findings, measure_offset
from tests.faults.fleet import Fleet
from tests.faults.groups_under_fault import Place
from tests.faults.producing import Producer
from tests.faults.proxy import Proxy
from tests.faults.skewing import skewed_environment, skewed_start
from tests.faults.upgrading import Upgrade
from tests.faults.world import Ground, Setting, World, connect_to
from tests.operators import Resources, install
from tests.versions import extract_former

READY_S = 90.0
# Times in the append-only file show how much of it a lost sync could take.
AOF = {
    "aof-timestamp-enabled": "yes",
    "aof-load-truncated": "yes",
    "auto-aof-rewrite-percentage": "0",  # a rewritten file holds less
}
Ends = list[Callable[[], None]]

_numbers = itertools.count(1)


@contextmanager
def open_world(ground: Ground, setting: Setting) -> Iterator[World]:
    """A phase's world, at work; everything in it ends with the block."""
    directory = ground.directory / setting.name
    directory.mkdir(parents=True)
    ends: Ends = []
    try:
        yield _build_world(ground, setting, directory, ends)
    finally:
        for end in reversed(ends):
            end()


def _build_world(ground: Ground, setting: Setting, directory: Path, ends: Ends) -> World:
    """A world at work: workers run, and producers have begun."""
    number = next(_numbers)
    namespace = f"faults-{number}"
    ground.plane.kubectl("create", "namespace", namespace)
    servers = start_redis(setting, ends)
    to_redis = {"operator": Proxy(servers.master().port), **start_wires(setting, servers)}
    to_api = Proxy(int(ground.plane.url.rpartition(":")[2]))
    ends += [proxy.close for proxy in (*to_redis.values(), to_api)]
    place = Place(
        topology=setting.topology,
        redis_spec=_redis_spec(servers, to_redis["operator"]),
        worker_urls=worker_urls(to_redis),
        history=directory / "history",
        python_path=setting.worker_path,
        nodes=_start_nodes(ground, setting, directory, number, ends),
    )
    world = World(
        ground=ground,
        setting=setting,
        servers=servers,
        place=place,
        to_redis=to_redis,
        to_api=to_api,
        fleets=[],
        resources=Resources(ground.plane, namespace),
        producers=make_producers(setting, servers),
        findings={lane.name: Findings() for lane in setting.lanes},
        offset_ns=measure_offset_of(servers),
    )
    _start_operators(world, directory, ends)
    _start_workers(world, ends)
    return world


def start_redis(setting: Setting, ends: Ends) -> RedisServers:
    """The servers of a phase, with an append-only file that records all they did."""
    options = ServerOptions(append_only=setting.fsync, config=AOF)
    servers = start_servers(setting.version, setting.topology, options=options)
    ends.append(servers.stop)
    return servers


def start_wires(setting: Setting, servers: RedisServers) -> dict[str, Proxy]:
    """What workers reach Redis through."""
    names = ["workers", *(f"workers-{number}" for number in range(2, setting.wires + 1))]
    return {name: Proxy(servers.master().port) for name in names}


def worker_urls(to_redis: Mapping[str, Proxy]) -> tuple[str, ...]:
    """The address of each wire, in their order."""
    wires = (proxy for name, proxy in to_redis.items() if name != "operator")
    return tuple(f"redis://127.0.0.1:{proxy.port}" for proxy in wires)


def measure_offset_of(servers: RedisServers) -> int:
    """This machine's clock less that of Redis, in ns."""
    return measure_offset(connect_to(servers), time.time_ns)


def make_producers(setting: Setting, servers: RedisServers) -> dict[str, Producer]:
    """A producer for each lane."""
    return {
        lane.name: Producer(lane, lambda: connect_to(servers), setting.seed)
        for lane in setting.lanes
    }


def _start_nodes(
    ground: Ground, setting: Setting, directory: Path, number: int, ends: Ends
) -> dict[str, str]:
    """A node for each clock; the name of each lane's."""
    names: dict[float, str] = {}
    for skew_s in sorted({setting.skew_of(lane) for lane in setting.lanes}):
        names[skew_s] = f"faults-node-{number}" + ("-wrong" if skew_s else "")
        _start_node(ground, directory / names[skew_s], skew_s, ends)
    return {lane.name: names[setting.skew_of(lane)] for lane in setting.lanes}


def _start_node(ground: Ground, state: Path, skew_s: float, ends: Ends) -> None:
    with skewed_start(skew_s):
        node = Node.start(ground.plane, state.name, state)
    # At the very end its pods are of no more use: no grace for them.
    ends.append(node.process.kill)
    ends.append(lambda: _remove_node(ground.plane, state.name))
    node.await_ready()


def _remove_node(plane: ControlPlane, name: str) -> None:
    plane.kubectl("delete", "node", name, "--wait=false", check=False)


def _redis_spec(servers: RedisServers, proxy: Proxy) -> dict[str, object]:
    if servers.topology == "sentinel":
        nodes = [f"{host}:{port}" for host, port in servers.sentinel_nodes]
        sentinel = {"masterName": servers.sentinel_master, "nodes": nodes}
        return {"url": "redis://sentinel", "sentinel": sentinel}
    if servers.topology == "cluster":
        return {"url": servers.url}
    return {"url": f"redis://127.0.0.1:{proxy.port}"}


def _start_operators(world: World, directory: Path, ends: Ends) -> None:
    setting, ground = world.setting, world.ground
    skew = skewed_environment(setting.operator_skews_s[0])
    fleet = Fleet(
        ground.plane,
        directory / "operators",
        api_port=world.to_api.port,
        namespace=world.namespace,
        environment={**ground.operator_environment, **_allowed_skew(setting), **skew},
    )
    ends.append(fleet.stop)
    if setting.upgrades:
        former = extract_former(directory)
        world.upgrade = Upgrade(world.resources, former, world.place.redis_spec)
        fleet.start(**world.upgrade.former_environment)
        world.upgrade.declare_quiet()
    else:
        fleet.start()
    world.fleets.append(fleet)


def _allowed_skew(setting: Setting) -> dict[str, str]:
    allowed = setting.allowed_skew_s
    return {} if allowed is None else {"PELOPS_CLOCK_SKEW": f"{allowed:g}"}


def _start_workers(world: World, ends: Ends) -> None:
    for lane in world.lanes:
        world.resources.apply(lane.name, lane.spec(world.place))
    for lane in world.lanes:
        wait_until(
            lambda lane=lane: len(world.living(lane)) >= lane.replicas,  # type: ignore[misc]
            timeout_s=READY_S,
            what=f"the workers of {lane.name}: {world.resources.condition(lane.name)}",
            every_s=0.2,
        )
    for producer in world.producers.values():
        ends.append(producer.stop)
        producer.start()
    if world.setting.twins:
        _start_twin(world, ends)


def _start_twin(world: World, ends: Ends) -> None:
    """An operator of another cluster, with resources of the same groups and no workers."""
    directory = world.ground.directory / f"{world.setting.name}-twin"
    plane = ControlPlane.start(directory / "control-plane")
    ends.append(plane.stop)
    install(plane)
    plane.kubectl("create", "namespace", world.namespace)
    resources = Resources(plane, world.namespace)
    fleet = Fleet(
        plane,
        directory / "operators",
        namespace=world.namespace,
        environment={**world.ground.operator_environment, **_allowed_skew(world.setting)},
    )
    ends.append(fleet.stop)
    fleet.start()
    world.fleets.append(fleet)
    for lane in world.lanes:
        resources.apply(lane.name, lane.spec(world.place))
