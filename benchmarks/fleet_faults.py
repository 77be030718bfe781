"""Pods of a fleet that end, and operator replicas that are replaced or killed, amid traffic."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.fleet_ground import Ground, Use, Window, knows_all
from benchmarks.fleet_traffic import ROUND_S, ActiveGroup, Traffic, await_recovery
from benchmarks.pod_watch import PodWatch, ends_shown
from local_cluster.operators import is_ready, metrics
from local_cluster.processes import wait_until
from pelops.kube.client import POD

TIMEOUT_S = 120.0
SETTLE_TIMEOUT_S = 300.0
EVERY_S = 0.25
QUEUE_DEPTH = "pelops_queue_depth"
MOST_DUE = 10  # passes of one replica: among thousands of groups, some always are


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """Pods that ended, each while it held entries."""

    latencies_s: Sequence[float]  # from the end that the API server shows to the last entry
    missing: int  # pods whose entries were not recovered in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Replicas that were started, and what was used until they had settled."""

    ready_s: float  # until each was ready
    settled_s: float | None  # until at most `MOST_DUE` passes of each were due; None: not in time
    use: Use


def end_pods(ground: Ground, traffic: Traffic, namespace: str, count: int) -> Deaths:
    """Delete pods of a namespace, one after the other."""
    watch = PodWatch(ground.plane, namespace)
    latencies, missing = list[float](), 0
    for group in traffic.take_out(namespace, count):
        time.sleep(2 * ROUND_S)
        ended_at = _end(ground, watch, group)
        recovered_at = await_recovery(group, TIMEOUT_S)
        if recovered_at is None:
            missing += 1
        else:
            latencies.append(recovered_at - ended_at)
    return Deaths(latencies_s=latencies, missing=missing)


def replace_one(ground: Ground) -> Start:
    """End one replica as a rollout does, and start another."""
    ground.operators.processes.pop(0).stop()
    return _start(ground, 1)


def kill_all(ground: Ground) -> Start:
    """Kill all replicas at once, and start as many."""
    killed = list(ground.operators.processes)
    for process in killed:
        process.kill()
    ground.operators.processes.clear()
    return _start(ground, len(killed))


def _end(ground: Ground, watch: PodWatch, group: ActiveGroup) -> float:
    """Delete a group's pod: when the API server showed that it had ended (Unix time)."""
    number, metadata = ends_shown(group.pod) + 1, group.pod["metadata"]
    path = POD.path(group.namespace, metadata["name"])
    ground.plane.request("DELETE", path, timeout_s=TIMEOUT_S)
    return watch.await_end(metadata["uid"], number, TIMEOUT_S)


def _start(ground: Ground, count: int) -> Start:
    operators, began = ground.operators, time.monotonic()
    operators.start(count, wait=False)
    window = Window(ground)
    ports, replicas = operators.ports[-count:], len(operators.processes)
    for port in ports:
        wait_until(
            functools.partial(_is_settling_in, port, replicas),
            timeout_s=TIMEOUT_S,
            what="a replica to be ready and to know the others",
            every_s=EVERY_S,
        )
    ready_s = time.monotonic() - began
    settled_s = None
    with contextlib.suppress(TimeoutError):
        wait_until(
            lambda: max(map(_count_due, ports)) <= MOST_DUE,
            timeout_s=SETTLE_TIMEOUT_S,
            what="the replicas to have little due",
            every_s=EVERY_S,
        )
        settled_s = time.monotonic() - began
    return Start(ready_s=ready_s, settled_s=settled_s, use=window.close())


def _is_settling_in(port: int, replicas: int) -> bool:
    """Whether a replica is ready, and knows so many."""
    try:
        return is_ready(port) and knows_all(port, replicas)
    except OSError:
        return False  # it does not answer yet


def _count_due(port: int) -> int:
    """Resources that a replica has to pass now."""
    lines = (line for line in metrics(port, QUEUE_DEPTH).splitlines() if line[0] != "#")
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))
