"""A worker's pod dies with 1,000 entries among a million: how soon can others read them?

Three operator replicas, a real API server, a node whose pods are processes, and no keyspace
notifications. The time begins when a watch of this benchmark shows that the container has ended,
and ends when the last copy is in the stream, on one clock. Some entries are counted apart, as
either of two processes may have them: those delivered less than the clock skew allowance and a
second before a process restarts in place.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.holdings import Holdings
from benchmarks.hunt import RIPE_S, Hunt, Kills, Outcome
from benchmarks.numbers import describe, percentile
from benchmarks.pending import add_entries, count_pending, deliver_in_turn, require
from benchmarks.pod_watch import PodWatch, consumer_of
from benchmarks.raw_redis import RawRedis
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from local_cluster.nodes import start_nodes
from local_cluster.operators import Operators, install
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.progress import Step, step
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.domain.naming import derive_keys

NAME = "pod_death"
MAX_P99_S = 1.0
MAX_PREMATURE = 0
NAMESPACE = "shop"
KEYS = derive_keys("orders:events", "order-processing")
START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much, and how often."""

    pending: int
    kills: int  # of each kind
    replicas: int
    owned: int = 1000  # by each victim
    bystanders: int = 10  # pods that live on, and own all the rest
    victims: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that runs."""

    plane: ControlPlane
    redis: StandaloneServers
    operators: Operators
    watch: PodWatch


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    scale = Scale(
        pending=given.pending,
        kills=given.kills or (6 if given.quick else 50),
        replicas=given.replicas,
    )
    with tempfile.TemporaryDirectory(prefix="pelops-death-") as state, ExitStack() as running:
        ground = _set_up(running, Path(state), scale, given.server)
        outcome = _measure(ground, scale)
        report = _report(ground, scale, outcome)
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    add = parser.add_argument
    kills = "how many pods are restarted, and how many deleted; default: 50, with --quick 6"
    add("--kills", type=int, metavar="N", help=kills)
    add("--pending", type=int, default=1_000_000, metavar="N", help="default: %(default)s")
    add("--replicas", type=int, default=3, metavar="N", help="default: %(default)s")
    return parser.parse_args(arguments)


def _set_up(running: ExitStack, state: Path, scale: Scale, server: str) -> Ground:
    plane = ControlPlane.start(state / "control-plane")
    running.callback(plane.stop)
    install(plane)
    for node in start_nodes(plane, 1, state / "nodes"):
        running.callback(node.process.stop, 10.0)
    redis = running.enter_context(start_standalone(server))
    plane.kubectl("create", "namespace", NAMESPACE)
    watch = PodWatch(plane, NAMESPACE)
    operators = running.enter_context(Operators(plane, state))
    with step(f"starting {scale.replicas} operator replicas and the workers"):
        _declare(plane, redis, scale)
        operators.start(scale.replicas)
        _await_everything(plane, watch, scale)
    return Ground(plane=plane, redis=redis, operators=operators, watch=watch)


def _declare(plane: ControlPlane, redis: StandaloneServers, scale: Scale) -> None:
    items = [_deployment(scale.bystanders + scale.victims), _resource(redis.url)]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    plane.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(listed))


def _deployment(replicas: int) -> Mapping[str, Any]:
    labels = {"app": "order-workers"}
    # A worker that only lives: its entries are read and never acknowledged in its name.
    sleeping = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    container = {"name": "worker", "image": "local/worker", "command": sleeping}
    pod = {"terminationGracePeriodSeconds": 5, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "order-workers"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def _resource(url: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamConsumerGroup",
        "metadata": {"name": KEYS.group},
        "spec": {
            "redis": {"url": url},
            "stream": KEYS.stream,
            "targetRef": {"name": "order-workers"},
            # No entry gets stuck by itself: what moves was moved for its pod's sake.
            "recovery": {"processingTimeoutSeconds": 86_400},
        },
    }


def _await_everything(plane: ControlPlane, watch: PodWatch, scale: Scale) -> None:
    def is_ready() -> bool:
        found = plane.kubectl("get", "scg", KEYS.group, "-n", NAMESPACE, "-o", "json").stdout
        conditions = (json.loads(found).get("status") or {}).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    pods = scale.bystanders + scale.victims
    wait_until(
        lambda: len(watch.running()) == pods, timeout_s=START_TIMEOUT_S, what="all pods to run"
    )
    wait_until(is_ready, timeout_s=START_TIMEOUT_S, what="the resource to be Ready", every_s=0.5)


def _measure(ground: Ground, scale: Scale) -> Outcome:
    pods = [consumer_of(pod) for pod in ground.watch.running()]
    bystanders = pods[: scale.bystanders]
    with RawRedis(ground.redis.server.port) as raw:
        holdings = Holdings(raw, KEYS)
        with step(f"delivering {scale.pending:,} entries"):
            add_entries(raw, KEYS.stream, scale.pending)
            deliver_in_turn(raw, KEYS, bystanders, scale.pending, each=1000)
            require(count_pending(raw, KEYS), scale.pending, "pending entries")
        hunt = Hunt(ground.plane, NAMESPACE, ground.watch, holdings)
        with step("ending pods") as shown:
            _hunt(hunt, scale, bystanders, shown)
        hunt.count_premature_recoveries(holdings.moves(), bystanders)
        left = sum(holdings.held(consumer) for consumer in bystanders)
        hunt.outcome.robbed = max(hunt.outcome.robbed, scale.pending - left)
    return hunt.outcome


def _hunt(hunt: Hunt, scale: Scale, bystanders: Sequence[str], shown: Step) -> None:
    for number in range(scale.kills):
        hunt.adopt(scale.owned, except_for=bystanders)
        hunt.end_next(scale.owned)
        last_s = hunt.outcome.deletions.latencies_s[-1]
        shown.detail = f"{number + 1} of {scale.kills}, the last one in {last_s:.3f} s"
        time.sleep(0.1)


def latency_p99(kills: Kills) -> float | None:
    """Seconds to the last entry of a pod; None when one came too late, or no pod was ended."""
    found = percentile(kills.latencies_s, 99)
    return None if found is None or math.isinf(found) else found


def _report(ground: Ground, scale: Scale, outcome: Outcome) -> Report:
    restart_p99, p99 = latency_p99(outcome.restarts), latency_p99(outcome.deletions)
    return Report(
        benchmark=NAME,
        server=describe_server(ground.redis),
        targets=[
            Target(name="p99_s", value=p99, target=MAX_P99_S),
            Target(name="restart_p99_s", value=restart_p99, target=MAX_P99_S),
            Target(name="robbed", value=outcome.robbed, target=MAX_PREMATURE),
        ],
        figures=_figures(scale, outcome),
    )


def _figures(scale: Scale, outcome: Outcome) -> dict[str, Any]:
    return {
        "pending": scale.pending,
        "replicas": scale.replicas,
        "cores": os.cpu_count(),
        "owned_by_each_victim": scale.owned,
        "kubectl_delete_pod": _describe(outcome.deletions),
        "sigkill_and_restart_in_place": _describe(outcome.restarts),
        "younger_than_restart_allows": {
            "allowance_s": RIPE_S,
            "entries": outcome.young,
            "moved_before_the_pod_was_deleted": outcome.young_moved,
        },
    }


def _describe(kills: Kills) -> dict[str, Any]:
    return {
        "kills": len(kills.latencies_s),
        "not_in_time": sum(math.isinf(one) for one in kills.latencies_s),
        "entries_moved": kills.moved,
        "entries_unmoved": kills.unmoved,
        "to_the_last_entry_s": describe(kills.latencies_s),
    }


if __name__ == "__main__":
    main()
