"""Thousands of resources, three operator replicas: do they converge, and what do they cost then?

A control plane, light nodes (their pods turn Ready without a process), 20 Redis servers and the
replicas all run on this machine. Each resource has its own stream and a worker of its own template.

Converged: every resource is Ready and the operator has written nothing for 10 s, its Leases aside.
Idle: a window without any traffic. Active: each tenth group has traffic; pods are deleted then, one
replica is replaced, and finally all replicas are killed together and started again.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.fleet import Convergence, Fleet, await_convergence, declare
from benchmarks.fleet_faults import Deaths, Start, end_pods, kill_all, replace_one
from benchmarks.fleet_ground import Ground, Use, Window, knows_all
from benchmarks.fleet_traffic import Traffic
from benchmarks.numbers import describe, percentile
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.usage import MemoryUse, observe_memory
from local_cluster.audit import AuditTrail, Request, writes
from local_cluster.node.settings import NodeSettings
from local_cluster.nodes import start_nodes
from local_cluster.operators import SERVICE_ACCOUNT, Operators, install
from local_cluster.plane import ControlPlane
from local_cluster.processes import wait_until
from local_cluster.progress import step
from local_cluster.redis_servers import start_standalone

NAME = "operator_scale"
MAX_IDLE_WRITES = 0
MAX_IDLE_CPU_SHARE = 0.05
MAX_ACTIVE_CPU_SHARE = 0.5
MAX_RSS_MIB = 200.0
MAX_CONVERGE_S = 300.0
MAX_WRITES_PER_RESOURCE = 6.0
MAX_DEATH_P99_S = 1.0
MAX_START_S = 20.0
MAX_STORM_S = 60.0
MEMBERS_TIMEOUT_S = 60.0
ACTIVE_EVERY = 10
SERVERS_FOR = 250  # resources that one Redis has, of the largest number of servers at most
MOST_SERVERS = 20
WARM_UP_S = 30.0  # between the first traffic and the active window


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large and how long."""

    resources: int
    replicas: int
    window_s: float
    converge_timeout_s: float
    deaths: int  # of pods: amid traffic, and again after all replicas were killed

    @property
    def servers(self) -> int:
        """How many of Redis."""
        return min(MOST_SERVERS, max(1, self.resources // SERVERS_FOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured."""

    began: datetime
    convergence: Convergence
    converging: Use
    idle: Use
    active: Use
    memory: dict[str, MemoryUse]  # of each replica, at the end of the active window
    deaths: Deaths
    start: Start
    storm: Start
    deaths_after: Deaths
    premature: int
    lost: int

    @property
    def converge_s(self) -> float | None:
        """From the first resource created to the operator's last write; None: not in time."""
        last = self.convergence.last_write
        if not self.convergence.is_quiet or last is None:
            return None
        return (last - self.began).total_seconds()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    small = given.quick
    scale = Scale(
        resources=given.resources or (500 if small else 5000),
        replicas=given.replicas,
        window_s=given.window or (20.0 if small else 60.0),
        converge_timeout_s=given.timeout,
        deaths=4 if small else 10,
    )
    with tempfile.TemporaryDirectory(prefix="pelops-scale-") as state, ExitStack() as running:
        ground = _set_up(running, Path(state), scale, given.server)
        outcome = _measure(ground, scale)
        report = _report(ground, scale, outcome)
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    add = parser.add_argument
    add("--resources", type=int, metavar="N", help="default: 5000, with --quick 500")
    add("--replicas", type=int, default=3, metavar="N", help="default: %(default)s")
    windows = "the idle and the active window; default: 60, with --quick 20"
    add("--window", type=float, metavar="S", help=windows)
    limit = "give up on convergence after this; default: %(default)s"
    add("--timeout", type=float, default=1200.0, metavar="S", help=limit)
    return parser.parse_args(arguments)


def _set_up(running: ExitStack, state: Path, scale: Scale, server: str) -> Ground:
    plane = ControlPlane.start(state / "control-plane")
    running.callback(plane.stop)
    install(plane)
    per_node = NodeSettings(name="any", state=state, light=True).max_pods
    nodes = start_nodes(plane, -(-scale.resources // per_node), state / "nodes", light=True)
    for node in nodes:
        running.callback(node.process.kill)  # nothing of what its pods leave is looked at
    redis = [running.enter_context(start_standalone(server)) for _ in range(scale.servers)]
    operators = running.enter_context(Operators(plane, state))
    with step(f"starting {scale.replicas} operator replicas"):
        operators.start(scale.replicas)
        for port in operators.ports:
            wait_until(
                functools.partial(knows_all, port, scale.replicas),
                timeout_s=MEMBERS_TIMEOUT_S,
                what="every replica to know the others",
                every_s=0.5,
            )
    return Ground(plane=plane, nodes=nodes, redis=redis, operators=operators)


def _measure(ground: Ground, scale: Scale) -> Outcome:
    fleet = Fleet(size=scale.resources, redis_urls=[one.url for one in ground.redis])
    trail = AuditTrail(ground.plane, SERVICE_ACCOUNT)
    window, began = Window(ground), datetime.now(UTC)
    with step(f"creating {scale.resources} resources"):
        asyncio.run(declare(ground.plane, fleet))
    with step("converging") as shown:
        convergence = await_convergence(
            ground.plane, fleet, trail, shown, timeout_s=scale.converge_timeout_s
        )
    converging = window.close()
    idle = _use_of(ground, "idle", scale.window_s)
    traffic = Traffic(ground.plane, fleet, ground.redis_ports, ACTIVE_EVERY)
    traffic.start()
    with step("beginning traffic"):
        time.sleep(WARM_UP_S)
    active = _use_of(ground, "active", scale.window_s)
    memory = {one.name: observe_memory(one.pid) for one in ground.operators.processes}
    first = fleet.namespaces[0]
    with step("ending pods"):
        deaths = end_pods(ground, traffic, first, scale.deaths)
    with step("replacing one replica"):
        start = replace_one(ground)
    with step("killing all replicas, and starting them again"):
        storm = kill_all(ground)
    with step("ending pods again"):
        deaths_after = end_pods(ground, traffic, first, scale.deaths)
    traffic.stop()
    return Outcome(
        began=began,
        convergence=convergence,
        converging=converging,
        idle=idle,
        active=active,
        memory=memory,
        deaths=deaths,
        start=start,
        storm=storm,
        deaths_after=deaths_after,
        premature=traffic.count_premature(),
        lost=traffic.count_lost(),
    )


def _use_of(ground: Ground, name: str, seconds: float) -> Use:
    window = Window(ground)
    with step(name):
        time.sleep(seconds)
    return window.close()


def _report(ground: Ground, scale: Scale, outcome: Outcome) -> Report:
    return Report(
        benchmark=NAME,
        server=describe_server(ground.redis[0]),
        targets=list(_targets(scale, outcome)),
        figures=_figures(scale, outcome),
    )


def _targets(scale: Scale, outcome: Outcome) -> Iterator[Target]:
    replicas = outcome.memory
    idle = max(outcome.idle.shares[name] for name in replicas)
    active = max(outcome.active.shares[name] for name in replicas)
    rss = max(use.rss_mib for use in replicas.values())
    per_resource = len(outcome.convergence.writes) / scale.resources
    deaths = [*outcome.deaths.latencies_s, *outcome.deaths_after.latencies_s]
    is_any_missing = outcome.deaths.missing or outcome.deaths_after.missing
    death_p99 = None if is_any_missing else percentile(deaths, 99)
    yield Target(
        name="idle_writes", value=len(writes(outcome.idle.requests)), target=MAX_IDLE_WRITES
    )
    yield Target(name="idle_cpu_share", value=idle, target=MAX_IDLE_CPU_SHARE)
    yield Target(name="active_cpu_share", value=active, target=MAX_ACTIVE_CPU_SHARE)
    yield Target(name="rss_mib", value=rss, target=MAX_RSS_MIB)
    yield Target(name="converge_s", value=outcome.converge_s, target=MAX_CONVERGE_S)
    yield Target(name="writes_per_resource", value=per_resource, target=MAX_WRITES_PER_RESOURCE)
    yield Target(name="pod_death_p99_s", value=death_p99, target=MAX_DEATH_P99_S)
    yield Target(name="start_s", value=outcome.start.ready_s, target=MAX_START_S)
    yield Target(name="storm_s", value=outcome.storm.settled_s, target=MAX_STORM_S)
    yield Target(name="premature", value=outcome.premature, target=0)
    yield Target(name="lost", value=outcome.lost, target=0)


def _figures(scale: Scale, outcome: Outcome) -> dict[str, Any]:
    convergence = outcome.convergence
    return {
        "resources": scale.resources,
        "resources_are": "each with a stream of its own and a template for one worker",
        "active": -(-scale.resources // ACTIVE_EVERY),
        "redis_servers": scale.servers,
        "replicas": scale.replicas,
        "cores": os.cpu_count(),
        "converged": {
            "ready": convergence.ready,
            "is_quiet": convergence.is_quiet,
            "writes_by_kind": _count(convergence.writes),
            **_describe_use(outcome.converging, scale),
        },
        "idle": _describe_use(outcome.idle, scale),
        "active_window": _describe_use(outcome.active, scale),
        "pod_deaths": _describe_deaths(outcome.deaths),
        "pod_deaths_after_all_replicas_were_killed": _describe_deaths(outcome.deaths_after),
        "replica_replaced": _describe_start(outcome.start, scale),
        "all_replicas_killed": _describe_start(outcome.storm, scale),
        "memory": {name: asdict(use) for name, use in outcome.memory.items()},
    }


def _describe_use(use: Use, scale: Scale) -> dict[str, Any]:
    return {
        "seconds": use.seconds,
        "cpu_share_of_a_core": use.shares,
        "others_cpu_share": use.others_share,
        "requests_by_kind": _count(use.requests),
        "requests_in_the_busiest_second": use.busiest_second(),
        # A script's own commands count beside EVALSHA.
        "redis_commands_per_resource_and_minute": {
            name: round(calls / scale.resources * 60 / use.seconds, 2)
            for name, calls in sorted(use.commands.items())
        },
    }


def _describe_deaths(deaths: Deaths) -> dict[str, Any]:
    return {"missing": deaths.missing, **describe(deaths.latencies_s)}


def _describe_start(start: Start, scale: Scale) -> dict[str, Any]:
    return {
        "ready_s": start.ready_s,
        "settled_s": start.settled_s,
        **_describe_use(start.use, scale),
    }


def _count(requests: Iterable[Request]) -> dict[str, int]:
    return dict(Counter(f"{one.verb} {one.resource} {one.code}" for one in requests).most_common())


if __name__ == "__main__":
    main()
