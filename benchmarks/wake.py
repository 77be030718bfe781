"""From an entry to the write of the replicas, for a group at zero among a thousand idle ones.

A control plane, one Redis and one operator replica run on this machine; no worker ever starts, as
only the write counts. All groups have zero replicas and no backlog. Again and again an entry is
added to another one of them, and the API server's audit log shows when the operator's write was
answered. A few other groups are on a Redis whose ACL forbids the operator to wait for entries
(XREAD), so that it looks every 2 s instead. They show what polling costs, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis

from benchmarks.numbers import describe, percentile
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from local_cluster.audit import AuditTrail, Request
from local_cluster.operators import SERVICE_ACCOUNT, Operators, install
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.progress import step
from local_cluster.redis_servers import RedisServers, start_standalone
from pelops.kube.client import NAMESPACE, STREAM_CONSUMER_GROUP, KubeApi, Manifest

NAME = "wake"
WAKE_P99_MS = 100.0
VERSUS_POLLING = 0.1
NAMESPACES = ("woken", "polled")
SETTLE_TIMEOUT_S = 600.0
WAIT_S = 20.0
POLLED = 100  # groups
ASLEEP_S = 6.0  # all are waited for by then, which the second look at a group at zero makes sure of


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that runs."""

    plane: ControlPlane
    redis: Mapping[str, RedisServers]  # by namespace
    groups: Mapping[str, int]  # by namespace
    trail: AuditTrail
    written: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def read(self) -> None:
        """Take in what the audit log reports scale writes."""
        for one in self.trail.read():
            if _is_scale(one):
                self.written.setdefault((one.namespace, one.name), one.answered)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    groups = given.groups or (200 if given.quick else 1000)
    rounds = given.rounds or (10 if given.quick else 40)
    with tempfile.TemporaryDirectory(prefix="pelops-wake-") as state, ExitStack() as running:
        ground = _set_up(running, Path(state), groups, given.server)
        with step("waking") as shown:
            waits: dict[str, list[float]] = {name: [] for name in NAMESPACES}
            for number, name in enumerate(_rounds(rounds)):
                shown.detail = f"{number} of {rounds * len(NAMESPACES)}"
                waits[name].append(_wake_one(ground, name, number))
        publish(_report(ground, waits), as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    parser.add_argument(
        "--groups", type=int, metavar="N", help="that are woken; default: 1000, with --quick 200"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="of each way; default: 40, with --quick 10"
    )
    return parser.parse_args(arguments)


def _rounds(rounds: int) -> Iterator[str]:
    for _ in range(rounds):
        yield from NAMESPACES


def _set_up(running: ExitStack, state: Path, groups: int, server: str) -> Ground:
    plane = ControlPlane.start(state / "control-plane")
    running.callback(plane.stop)
    install(plane)
    servers = {name: running.enter_context(start_standalone(server)) for name in NAMESPACES}
    servers["polled"].cli("ACL", "SETUSER", "default", "-xread")
    operators = running.enter_context(Operators(plane, state))
    operators.start(1)
    ground = Ground(
        plane=plane,
        redis=servers,
        groups={"woken": groups, "polled": POLLED},
        trail=AuditTrail(plane, SERVICE_ACCOUNT),
    )
    with step(f"creating {groups + POLLED} resources"):
        asyncio.run(_declare(ground))
    with step("waiting until all groups stand at zero"):
        wait_until(
            lambda: all(_are_asleep(ground, name) for name in NAMESPACES),
            timeout_s=SETTLE_TIMEOUT_S,
            what="all groups to be idle",
            every_s=2.0,
        )
        time.sleep(ASLEEP_S)
    return ground


async def _declare(ground: Ground) -> None:
    api = await KubeApi.connect(str(ground.plane.kubeconfig))
    try:
        for namespace in NAMESPACES:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await api.create(NAMESPACE, "", body)
            groups = ground.groups[namespace]
            for start in range(0, groups, 20):
                numbers = range(start, min(start + 20, groups))
                manifests = [_manifest(ground, namespace, number) for number in numbers]
                await asyncio.gather(
                    *(api.create(STREAM_CONSUMER_GROUP, namespace, one) for one in manifests)
                )
    finally:
        await api.close()


def _manifest(ground: Ground, namespace: str, number: int) -> Manifest:
    container = {"name": "worker", "image": "local/worker", "command": ["worker"]}
    return {
        "apiVersion": STREAM_CONSUMER_GROUP.api_version,
        "kind": STREAM_CONSUMER_GROUP.kind,
        "metadata": {"name": f"orders-{number}", "namespace": namespace},
        "spec": {
            "redis": {"url": ground.redis[namespace].url},
            "stream": f"orders:events:{number}",
            "template": {"spec": {"containers": [container]}},
            "recovery": {"strategy": "Disabled"},
            "scaling": {
                "cooldownSeconds": 1,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}},
            },
        },
    }


def _are_asleep(ground: Ground, namespace: str) -> bool:
    path = f"{STREAM_CONSUMER_GROUP.path(namespace)}?resourceVersion=0"
    # Names of reasons are all that is looked for: to parse thousands of objects takes its time.
    return ground.plane.get(path).count(b'"reason":"Idle"') >= ground.groups[namespace]


def _wake_one(ground: Ground, namespace: str, number: int) -> float:
    """Milliseconds from the entry to the answer to the write."""
    index = number % ground.groups[namespace]
    name = f"orders-{index}"
    key = (namespace, f"{name}-workers")
    ground.read()
    ground.written.pop(key, None)
    client: Any = redis.Redis.from_url(ground.redis[namespace].url)
    # Where within a pause between two looks it falls must be chance.
    time.sleep(random.uniform(0.0, 2.0))
    stream = f"orders:events:{index}"
    added = datetime.now(UTC)
    client.xadd(stream, {"n": "1"})
    client.close()

    def is_written() -> bool:
        ground.read()
        return key in ground.written

    wait_until(is_written, timeout_s=WAIT_S, what=f"the write of {name}", every_s=0.05)
    return (ground.written[key] - added).total_seconds() * 1000


def _is_scale(request: Request) -> bool:
    return request.resource == "deployments/scale" and request.verb == "patch"


def _report(ground: Ground, waits: dict[str, list[float]]) -> Report:
    woken, polled = (describe(waits[name]) for name in NAMESPACES)
    return Report(
        benchmark=NAME,
        server=describe_server(ground.redis["woken"]),
        targets=[
            Target(name="wake_p99_ms", value=percentile(waits["woken"], 99), target=WAKE_P99_MS),
            Target(
                name="wake_vs_polling",
                value=woken["median"] / polled["median"],
                target=VERSUS_POLLING,
            ),
        ],
        figures={
            "groups": dict(ground.groups),
            "woken_ms": woken,
            "polled_ms": polled,
        },
    )


if __name__ == "__main__":
    main()
