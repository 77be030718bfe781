"""A hostile tenant declares hundreds of resources: what do the others notice, what does it cost?

Fifty healthy resources, operator replicas with the rights of the manifests, and a node whose pods
are processes. Beside them 80 resources of each sort: clusters of silent nodes, endless replies,
slot maps beyond all bounds, servers that are something else each time, and manifests of 1 MiB.
Measured before they come and beside them: the time from a new healthy resource to its group in
Redis; the time from the death of a healthy pod until others can read its entries. In the end a
replica is restarted, which reads all of it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.holdings import Holdings
from benchmarks.hostile_servers import HostileServersApart
from benchmarks.hunt import Hunt
from benchmarks.numbers import describe, percentile
from benchmarks.pod_watch import PodWatch
from benchmarks.raw_redis import RawRedis
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.usage import CpuUse, observe_cpu, observe_memory
from local_cluster.nodes import start_nodes
from local_cluster.operators import Operators, install, is_ready
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.progress import step
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.domain.naming import derive_keys
from pelops.kube.client import NAMESPACE, STREAM_CONSUMER_GROUP, Address, KubeApi, Manifest

NAME = "hostile_tenant"
MAX_DELAY_S = 1.0
MAX_DEATH_DELAY_S = 0.5
MAX_RSS_MIB = 300.0
HEALTHY = "shop"
KEYS = derive_keys("orders:events", "order-processing")
SORTS = ("silent_cluster", "endless_reply", "slot_bomb", "flapping")
LARGE = "large_manifest"
PARTS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")
CONNECTIONS = 8
GIVE_UP_S = 120.0
EVERY_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of everything."""

    healthy: int
    hostile: int  # of each sort
    probes: int
    kills: int
    replicas: int
    sorts: tuple[str, ...]
    settle_s: float  # between the arrival of the hostile resources and the measurement
    pods: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that runs."""

    plane: ControlPlane
    redis: StandaloneServers
    operators: Operators
    watch: PodWatch
    servers: HostileServersApart


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds in one phase, each by itself."""

    reconciles: list[float]
    creations: list[float]  # of these, until the API server had answered
    deaths: list[float]
    cores: dict[str, float]  # in use meanwhile, by process

    @property
    def reconcile_p99(self) -> float:
        """Of the time to a new group."""
        return percentile(self.reconciles, 99) or 0.0

    @property
    def death_p99(self) -> float:
        """Of the time from a pod's death to the recovery of all its entries."""
        return percentile(self.deaths, 99) or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured."""

    before: Measured
    beside: Measured
    rss_mib: dict[str, float]  # the peak of each replica
    restarts: int
    restart_s: float  # until a new replica was ready beside all of it
    not_ready: int  # times at which a replica was found not ready
    arrival_cores: dict[str, float]  # as in `Measured`, while the hostile resources arrive


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    scale = Scale(
        healthy=given.healthy,
        hostile=given.hostile or (20 if given.quick else 80),
        probes=12 if given.quick else 100,
        kills=4 if given.quick else 20,
        replicas=given.replicas,
        sorts=tuple(given.sorts),
        settle_s=10.0 if given.quick else 60.0,
    )
    with tempfile.TemporaryDirectory(prefix="pelops-hostile-") as state, ExitStack() as running:
        ground = _set_up(running, Path(state), scale, given.server)
        outcome = _measure(ground, scale)
        report = _report(ground, scale, outcome)
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    add = parser.add_argument
    add("--hostile", type=int, metavar="N", help="of each sort; default: 80, with --quick 20")
    add("--healthy", type=int, default=50, metavar="N", help="default: %(default)s")
    add("--replicas", type=int, default=2, metavar="N", help="default: %(default)s")
    sorts = (*SORTS, LARGE)
    add("--sorts", nargs="+", choices=sorts, default=sorts, help="default: all")
    return parser.parse_args(arguments)


def _set_up(running: ExitStack, state: Path, scale: Scale, server: str) -> Ground:
    plane = ControlPlane.start(state / "control-plane")
    running.callback(plane.stop)
    install(plane)
    for node in start_nodes(plane, 1, state / "nodes"):
        running.callback(node.process.stop, 10.0)
    redis = running.enter_context(start_standalone(server))
    servers = running.enter_context(HostileServersApart(state))
    plane.kubectl("create", "namespace", HEALTHY)
    watch = PodWatch(plane, HEALTHY)
    operators = running.enter_context(Operators(plane, state))
    with step(f"starting {scale.replicas} replicas, {scale.healthy} resources and the workers"):
        operators.start(scale.replicas)
        orders = {**_resource(KEYS.group, redis.url), "spec": _orders(redis.url)}
        plane.kubectl(
            *("apply", "-n", HEALTHY, "-f", "-"), stdin=_listed(_deployment(scale.pods), orders)
        )
        healthy = (_resource(f"healthy-{n}", redis.url) for n in range(scale.healthy))
        asyncio.run(_create(plane, HEALTHY, healthy))
        with RawRedis(redis.server.port) as raw:
            for name in (KEYS.stream, *(f"healthy-{n}" for n in range(scale.healthy))):
                _await_group(raw, name)
        wait_until(
            lambda: len(watch.running()) == scale.pods, timeout_s=GIVE_UP_S, what="all pods to run"
        )
    return Ground(plane=plane, redis=redis, operators=operators, watch=watch, servers=servers)


def _measure(ground: Ground, scale: Scale) -> Outcome:
    with step("measuring without hostile resources"):
        before = _measure_phase(ground, scale, "before")
    with step(f"creating {scale.hostile} hostile resources of each sort"):
        cpu = _Cpu(ground)
        asyncio.run(_create_hostile(ground, scale))
        time.sleep(scale.settle_s)
        arrival_cores = cpu.cores()
    with step("measuring beside them"):
        beside = _measure_phase(ground, scale, "beside")
    not_ready = sum(not is_ready(port) for port in ground.operators.ports)
    with step("starting one more replica"):
        began = time.monotonic()
        ground.operators.start(1)
        restart_s = time.monotonic() - began
        time.sleep(scale.settle_s / 2)
    not_ready += sum(not is_ready(port) for port in ground.operators.ports)
    replicas = ground.operators.processes
    return Outcome(
        before=before,
        beside=beside,
        rss_mib={
            one.name: observe_memory(one.pid).peak_rss_mib for one in replicas if one.is_alive()
        },
        restarts=sum(not one.is_alive() for one in replicas),
        restart_s=restart_s,
        not_ready=not_ready,
        arrival_cores=arrival_cores,
    )


class _Cpu:
    """What each process takes of the machine from now on."""

    def __init__(self, ground: Ground) -> None:
        self._names = {
            **{one.pid: one.name for one in ground.operators.processes},
            **{ground.plane.process(part).pid: part for part in PARTS},
            ground.servers.process.pid: "hostile-servers",
            os.getpid(): "benchmark",
        }
        if ground.redis.server.process is not None:
            self._names[ground.redis.server.process.pid] = "redis"
        self._before = self._observe()

    def cores(self) -> dict[str, float]:
        """Cores in use on average, by process."""
        before, now = self._before, self._observe()
        used = {name: now.share(before, pid) for pid, name in self._names.items()}
        return {**used, "all else": now.others_share(before)}

    def _observe(self) -> CpuUse:
        return observe_cpu(self._names)


def _measure_phase(ground: Ground, scale: Scale, phase: str) -> Measured:
    cpu = _Cpu(ground)
    probed = asyncio.run(_probe(ground, scale.probes, phase))
    with RawRedis(ground.redis.server.port) as raw:
        hunt = Hunt(ground.plane, HEALTHY, ground.watch, Holdings(raw, KEYS))
        for _ in range(scale.kills):
            hunt.adopt(50, except_for=())
            hunt.end_next(50)
            time.sleep(0.1)
    return Measured(
        reconciles=[whole for whole, _ in probed],
        creations=[creation for _, creation in probed],
        deaths=hunt.outcome.deletions.latencies_s,
        cores=cpu.cores(),
    )


async def _probe(ground: Ground, count: int, phase: str) -> list[tuple[float, float]]:
    """Seconds from the creation of each of so many resources to its group, and to the answer."""
    api = await KubeApi.connect(str(ground.plane.kubeconfig))
    found = []
    try:
        with RawRedis(ground.redis.server.port) as raw:
            for number in range(count):
                name = f"{phase}-{number}"
                began = time.monotonic()
                await api.create(STREAM_CONSUMER_GROUP, HEALTHY, _resource(name, ground.redis.url))
                creation_s = time.monotonic() - began
                await asyncio.to_thread(_await_group, raw, name)
                found.append((time.monotonic() - began, creation_s))
                await api.delete(Address(kind=STREAM_CONSUMER_GROUP, namespace=HEALTHY, name=name))
                await asyncio.sleep(0.1)
    finally:
        await api.close()
    return found


def _await_group(raw: RawRedis, stream: str) -> None:
    wait_until(
        lambda: raw.call("EXISTS", stream) == 1,
        timeout_s=GIVE_UP_S,
        what=f"the group of {stream}",
        every_s=EVERY_S,
    )


async def _create_hostile(ground: Ground, scale: Scale) -> None:
    api = await KubeApi.connect(str(ground.plane.kubeconfig))
    try:
        for sort in scale.sorts:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _space(sort)}}
            await api.create(NAMESPACE, "", body)
    finally:
        await api.close()
    for sort in (one for one in scale.sorts if one != LARGE):
        evil = (_resource(f"evil-{n}", ground.servers.url(sort, n)) for n in range(scale.hostile))
        await _create(ground.plane, _space(sort), evil)
    if LARGE not in scale.sorts:
        return
    url = ground.servers.url("silent", 0)
    large = (_large(f"evil-{number}", url, number) for number in range(scale.hostile))
    await _create(ground.plane, _space(LARGE), large)


def _space(sort: str) -> str:
    return f"hostile-{sort.replace('_', '-')}"


async def _create(plane: ControlPlane, namespace: str, manifests: Iterable[Manifest]) -> None:
    api = await KubeApi.connect(str(plane.kubeconfig))
    shared = iter(manifests)

    async def create_each() -> None:
        for manifest in shared:
            await api.create(STREAM_CONSUMER_GROUP, namespace, manifest)

    try:
        await asyncio.gather(*(create_each() for _ in range(CONNECTIONS)))
    finally:
        await api.close()


def _resource(name: str, url: str) -> Manifest:
    locks = {"locks": {}, "tuning": {"keyspaceNotifications": "127.77." in url}}
    return {
        "apiVersion": STREAM_CONSUMER_GROUP.api_version,
        "kind": STREAM_CONSUMER_GROUP.kind,
        "metadata": {"name": name},
        "spec": {
            "redis": {"url": url},
            "stream": name,
            "recovery": locks if "127.77." in url else {},
        },
    }


def _large(name: str, url: str, number: int) -> Manifest:
    """Nearly as large as etcd takes: small objects, which need the most memory as dicts."""
    pairs = [{"name": f"A{one}", "value": str(number)} for one in range(27_000)]
    container = {"name": "worker", "image": "local/worker", "env": pairs}
    manifest = _resource(name, url)
    manifest["spec"]["template"] = {"spec": {"containers": [container]}}
    return manifest


def _orders(url: str) -> Manifest:
    return {
        "redis": {"url": url},
        "stream": KEYS.stream,
        "targetRef": {"name": "order-workers"},
        # No entry gets stuck by itself: what moves was moved for its pod's sake.
        "recovery": {"processingTimeoutSeconds": 86_400},
    }


def _deployment(replicas: int) -> Manifest:
    labels = {"app": "order-workers"}
    # A worker that only lives: its entries are read and never acknowledged in its name.
    sleeping = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    container = {"name": "worker", "image": "local/worker", "command": sleeping}
    pod = {"terminationGracePeriodSeconds": 5, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "order-workers"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _listed(*items: Manifest) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _report(ground: Ground, scale: Scale, outcome: Outcome) -> Report:
    before, beside = outcome.before, outcome.beside
    return Report(
        benchmark=NAME,
        server=describe_server(ground.redis),
        targets=[
            Target(
                name="delay_p99_s",
                value=beside.reconcile_p99 - before.reconcile_p99,
                target=MAX_DELAY_S,
            ),
            Target(
                name="pod_death_delay_p99_s",
                value=beside.death_p99 - before.death_p99,
                target=MAX_DEATH_DELAY_S,
            ),
            Target(name="rss_mib", value=max(outcome.rss_mib.values()), target=MAX_RSS_MIB),
            Target(name="restarts", value=outcome.restarts, target=0),
        ],
        figures=_figures(scale, outcome),
    )


def _figures(scale: Scale, outcome: Outcome) -> dict[str, Any]:
    return {
        "healthy": scale.healthy,
        "hostile_of_each_sort": scale.hostile,
        "sorts": scale.sorts,
        "replicas": scale.replicas,
        "cores": os.cpu_count(),
        "new_resource_to_group_s": {
            "before": describe(outcome.before.reconciles),
            "beside": describe(outcome.beside.reconciles),
        },
        "of_which_creation_s": {
            "before": describe(outcome.before.creations),
            "beside": describe(outcome.beside.creations),
        },
        "pod_death_to_recovery_s": {
            "before": describe(outcome.before.deaths),
            "beside": describe(outcome.beside.deaths),
        },
        "cores_in_use": {
            "before": outcome.before.cores,
            "arrival": outcome.arrival_cores,
            "beside": outcome.beside.cores,
        },
        "peak_rss_mib": outcome.rss_mib,
        "new_replica_ready_s": outcome.restart_s,
        "found_not_ready": outcome.not_ready,
    }


if __name__ == "__main__":
    main()
