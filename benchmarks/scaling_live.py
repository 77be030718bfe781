"""Scaling on a real API server: workers of an exact speed, and how many of them there are.

A control plane, an operator, a Redis and a light node run on this machine. A light node starts no
process, so this one plays the workers. Each running pod has a consumer that reads 25 entries at a
time, takes 20 ms for each, and acknowledges them together. Every other one blocks while nothing is
there, the others ask again after a second; all read first 3 s after their pod is ready.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis.asyncio

from benchmarks.plot import Line, Panel, draw
from benchmarks.pod_watch import PodWatch
from benchmarks.report import Report, Target, describe_server
from local_cluster.nodes import start_nodes
from local_cluster.operators import Operators, install
from local_cluster.plane import ControlPlane
from local_cluster.progress import step
from local_cluster.redis_servers import RedisServers, start_standalone
from pelops.kube.client import (
    DEPLOYMENT,
    NAMESPACE,
    STREAM_CONSUMER_GROUP,
    Address,
    KubeApi,
    Manifest,
)

SHOP: Final = "shop"
RATE: Final = 50.0  # entries per second of one worker
BATCH: Final = 25
FIRST_READ_S: Final = 3.0
ASKS_EVERY_S: Final = 1.0
ADDS_EVERY_S: Final = 0.1
SETTLED_S: Final = 180.0  # a burst is over, and the window of the last scale-in as well
LATE_MS: Final = 10_000
MOST_ABOVE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What comes for one resource."""

    name: str
    what: str
    at_once: int  # at the beginning
    per_second: int
    needed: int  # workers that serve it with some room


TRAFFIC: Final = (
    Traffic(name="steady", what="120/s", at_once=0, per_second=120, needed=3),
    Traffic(
        name="plateau", what="6,000 at once, then 400/s", at_once=6000, per_second=400, needed=9
    ),
)


@dataclass(slots=True)
class Course:
    """What became of one resource."""

    replicas: list[tuple[float, float]] = field(default_factory=list)  # second, wished
    late: int = 0  # entries that waited longer than 10 s, after it had settled
    longest_ms: int = 0
    served: int = 0

    def most(self, from_s: float) -> int | None:
        """The most replicas since then."""
        return max((int(count) for at, count in self.replicas if at >= from_s), default=None)

    def replica_seconds(self) -> float:
        """The replicas that were wished, over time."""
        pairs = zip(self.replicas, self.replicas[1:], strict=False)
        return sum(count * (after - at) for (at, count), (after, _) in pairs)


def measure(seconds: float, server: str, plot: Path | None) -> Report:
    """Let the traffic flow for so long, and report."""
    with tempfile.TemporaryDirectory(prefix="pelops-scaling-") as state, ExitStack() as running:
        plane = ControlPlane.start(Path(state) / "control-plane")
        running.callback(plane.stop)
        install(plane)
        for node in start_nodes(plane, 1, Path(state) / "nodes", light=True):
            running.callback(node.stop)
        servers = running.enter_context(start_standalone(server))
        running.enter_context(Operators(plane, Path(state))).start(1)
        courses = asyncio.run(_play(plane, servers, seconds))
        report = _report(servers, courses, seconds)
    if plot is not None:
        plot.mkdir(parents=True, exist_ok=True)
        draw(_panels(courses), plot / "live.svg", title="replicas over time, on a real API server")
    return report


async def _play(plane: ControlPlane, servers: RedisServers, seconds: float) -> dict[str, Course]:
    api = await KubeApi.connect(str(plane.kubeconfig))
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}}
    await api.create(NAMESPACE, "", body)
    for traffic in TRAFFIC:
        await api.create(STREAM_CONSUMER_GROUP, SHOP, _manifest(traffic, servers.url))
    client = redis.asyncio.Redis.from_url(servers.url)
    watch = await asyncio.to_thread(PodWatch, plane, SHOP)
    with step("waiting for the groups"):
        for traffic in TRAFFIC:
            while not await client.exists(_stream(traffic)):
                await asyncio.sleep(0.5)
    began = time.monotonic()
    courses = {traffic.name: Course() for traffic in TRAFFIC}
    with step(f"traffic for {seconds:g} s") as shown:
        async with asyncio.TaskGroup() as tasks:
            flows = [tasks.create_task(_add(client, one, seconds)) for one in TRAFFIC]
            fleet = tasks.create_task(_run_workers(tasks, client, watch, courses))
            while not all(flow.done() for flow in flows):
                at = time.monotonic() - began
                for traffic in TRAFFIC:
                    count = await _replicas(api, traffic)
                    courses[traffic.name].replicas.append((at, count))
                shown.detail = ", ".join(
                    f"{name} {course.replicas[-1][1]:g}" for name, course in courses.items()
                )
                await asyncio.sleep(1.0)
            fleet.cancel()
    await client.aclose()
    await api.close()
    return courses


def _stream(traffic: Traffic) -> str:
    return f"{traffic.name}:events"


def _manifest(traffic: Traffic, url: str) -> Manifest:
    container = {"name": "worker", "image": "local/worker", "command": ["worker"]}
    return {
        "apiVersion": STREAM_CONSUMER_GROUP.api_version,
        "kind": STREAM_CONSUMER_GROUP.kind,
        "metadata": {"name": traffic.name, "namespace": SHOP},
        "spec": {
            "redis": {"url": url},
            "stream": _stream(traffic),
            "group": traffic.name,
            "template": {"spec": {"containers": [container]}},
            "scaling": {"mode": "Auto", "maxReplicas": 20},
        },
    }


async def _replicas(api: KubeApi, traffic: Traffic) -> int:
    address = Address(kind=DEPLOYMENT, namespace=SHOP, name=f"{traffic.name}-workers")
    found: Mapping[str, Any] = await api.get(address)
    return int(found["spec"]["replicas"])


async def _add(client: Any, traffic: Traffic, seconds: float) -> None:
    """Add entries at an even pace, whatever the machine does."""
    began, added = time.monotonic(), -traffic.at_once
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * traffic.per_second) - added
        pipeline = client.pipeline(transaction=False)
        for _ in range(due):
            pipeline.xadd(_stream(traffic), {"order": "1"})
        await pipeline.execute()
        added += due
        await asyncio.sleep(ADDS_EVERY_S)


async def _run_workers(
    tasks: asyncio.TaskGroup, client: Any, watch: PodWatch, courses: Mapping[str, Course]
) -> None:
    """One worker for each running pod, until the pod is terminating."""
    running: set[str] = set()
    began = time.monotonic()
    workers: list[asyncio.Task[None]] = []
    try:
        while True:
            pods = {str(pod["metadata"]["uid"]): pod for pod in watch.running()}
            for uid in pods.keys() - running:
                name = str(pods[uid]["metadata"]["name"])
                traffic = next(one for one in TRAFFIC if name.startswith(f"{one.name}-"))
                worker = _Worker(client, traffic, f"{name}:{uid}", courses[traffic.name], began)
                is_wanted = _is_running(running, uid)
                workers.append(
                    tasks.create_task(worker.run(is_wanted, blocks=len(workers) % 2 == 0))
                )
            running.update(pods)
            running.intersection_update(pods)
            await asyncio.sleep(0.2)
    finally:
        for one in workers:
            one.cancel()


def _is_running(running: set[str], uid: str) -> Callable[[], bool]:
    return lambda: uid in running


class _Worker:
    """A consumer of an exact speed."""

    def __init__(
        self, client: Any, traffic: Traffic, consumer: str, course: Course, began: float
    ) -> None:
        self._client = client
        self._stream, self._group = _stream(traffic), traffic.name
        self._consumer = consumer
        self._course = course
        self._began = began

    async def run(self, is_wanted: Callable[[], bool], *, blocks: bool) -> None:
        """Read, handle and acknowledge while it is wanted."""
        await asyncio.sleep(FIRST_READ_S)
        free_at = time.monotonic()
        while is_wanted():
            entries = await self._read(blocks=blocks)
            if not entries:
                await asyncio.sleep(0 if blocks else ASKS_EVERY_S)
                free_at = time.monotonic()
                continue
            self._note(entries)
            free_at = max(free_at, time.monotonic() - 0.1) + len(entries) / RATE
            await asyncio.sleep(max(0.0, free_at - time.monotonic()))
            await self._client.xack(self._stream, self._group, *entries)

    async def _read(self, *, blocks: bool) -> list[bytes]:
        wait_ms = int(ASKS_EVERY_S * 1000) if blocks else None
        wanted = {self._stream: ">"}
        answer = await self._client.xreadgroup(
            self._group, self._consumer, wanted, count=BATCH, block=wait_ms
        )
        return [entry_id for _, entries in answer for entry_id, _ in entries]

    def _note(self, entries: list[bytes]) -> None:
        now_ms = time.time() * 1000
        waits = [int(now_ms - int(one.split(b"-")[0])) for one in entries]
        self._course.served += len(entries)
        if time.monotonic() - self._began >= SETTLED_S:
            self._course.late += sum(wait > LATE_MS for wait in waits)
            self._course.longest_ms = max(self._course.longest_ms, *waits, 0)


def _report(servers: RedisServers, courses: Mapping[str, Course], seconds: float) -> Report:
    targets, figures = [], {}
    for traffic in TRAFFIC:
        course, name = courses[traffic.name], traffic.name
        most = course.most(SETTLED_S)
        above = None if most is None else float(most - traffic.needed)
        targets += [
            Target(name=f"{name}_most_above_needed", value=above, target=MOST_ABOVE),
            Target(name=f"{name}_late", value=float(course.late), target=0),
        ]
        figures[name] = {
            "traffic": traffic.what,
            "needed": traffic.needed,
            "replica_seconds": round(course.replica_seconds()),
            "replica_seconds_needed": round(traffic.needed * seconds),
            "most_settled": most,
            "longest_settled_ms": course.longest_ms,
            "served": course.served,
            "replicas_every_30_s": _every(course, 30.0),
        }
    return Report(
        benchmark="scaling --live",
        server=describe_server(servers),
        targets=targets,
        figures={"seconds": seconds, **figures},
    )


def _every(course: Course, seconds: float) -> list[int]:
    found, due = [], 0.0
    for at, count in course.replicas:
        if at >= due:
            found.append(int(count))
            due += seconds
    return found


def _panels(courses: Mapping[str, Course]) -> list[Panel]:
    panels = []
    for traffic in TRAFFIC:
        points = courses[traffic.name].replicas
        ends = [(points[0][0], float(traffic.needed)), (points[-1][0], float(traffic.needed))]
        lines = [
            Line(label="replicas", points=points, is_step=True),
            Line(label="needed", points=ends),
        ]
        panels.append(Panel(title=f"{traffic.name}: {traffic.what}", lines=lines))
    return panels
