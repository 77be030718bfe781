"""Thousands of resources, three operator replicas: do they converge, and what do they cost then?

A control plane, light nodes (their pods turn Ready without a process), one Redis and the replicas
all run on this machine. Each resource has its own stream and a worker of its own template. It has
converged when every resource is Ready and the operator has written nothing for 10 s, its Leases
aside. Then, in an idle window: writes by the audit log, CPU time and memory of the worst replica.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.fleet import Convergence, Fleet, await_convergence, declare
from benchmarks.raw_redis import RawRedis
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.server_time import read_commandstats
from benchmarks.usage import CpuUse, MemoryUse, observe_cpu, observe_memory
from local_cluster.audit import AuditTrail, Request, writes
from local_cluster.node.settings import NodeSettings
from local_cluster.nodes import Node, start_nodes
from local_cluster.operators import SERVICE_ACCOUNT, Operators, install, metrics
from local_cluster.parts import SERVERS
from local_cluster.plane import ControlPlane
from local_cluster.processes import Process, wait_until
from local_cluster.progress import step
from local_cluster.redis_servers import RedisServers, start_standalone

NAME = "operator_scale"
MAX_IDLE_WRITES = 0
MAX_IDLE_CPU_SHARE = 0.05
MAX_RSS_MIB = 200.0
MEMBERS_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large and how long."""

    resources: int
    replicas: int
    idle_s: float
    converge_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that runs, except for the operator."""

    plane: ControlPlane
    nodes: Sequence[Node]
    redis: RedisServers
    operators: Operators

    def processes(self) -> dict[str, Process]:
        """Every process that was started, by name."""
        parts = [self.plane.process(part) for part in SERVERS]
        nodes = [node.process for node in self.nodes]
        running = [*parts, *nodes, *self.operators.processes]
        return {one.name: one for one in running} | {"redis": self.redis.processes[0]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time, by what was used at both ends of it."""

    before: CpuUse
    after: CpuUse

    def shares(self, processes: Mapping[str, Process]) -> dict[str, float]:
        """Of one core, by process."""
        return {name: self.after.share(self.before, one.pid) for name, one in processes.items()}

    def others_share(self) -> float:
        """Of one core: what had nothing to do with this benchmark."""
        return self.after.others_share(self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured."""

    began: datetime
    convergence: Convergence
    converging: Window
    idle: Window
    idle_requests: list[Request]
    idle_commands: dict[str, int]  # of all clients of Redis in the idle window, by name
    memory: dict[str, MemoryUse]  # of each replica, at the end

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
        idle_s=given.idle or (20.0 if small else 60.0),
        converge_timeout_s=given.timeout,
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
    add("--idle", type=float, metavar="S", help="the idle window; default: 60, with --quick 20")
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
    redis = running.enter_context(start_standalone(server))
    operators = running.enter_context(Operators(plane, state))
    with step(f"starting {scale.replicas} operator replicas"):
        operators.start(scale.replicas)
        for port in operators.ports:
            wait_until(
                functools.partial(_knows_all, port, scale.replicas),
                timeout_s=MEMBERS_TIMEOUT_S,
                what="every replica to know the others",
                every_s=0.5,
            )
    return Ground(plane=plane, nodes=nodes, redis=redis, operators=operators)


def _knows_all(port: int, replicas: int) -> bool:
    return f"pelops_members {replicas:.1f}" in metrics(port)


def _measure(ground: Ground, scale: Scale) -> Outcome:
    fleet = Fleet(size=scale.resources, redis_url=ground.redis.url)
    trail = AuditTrail(ground.plane, SERVICE_ACCOUNT)
    pids = [os.getpid(), *(one.pid for one in ground.processes().values())]
    start, began = observe_cpu(pids), datetime.now(UTC)
    with step(f"creating {scale.resources} resources"):
        asyncio.run(declare(ground.plane, fleet))
    with step("converging") as shown:
        convergence = await_convergence(
            ground.plane, fleet, trail, shown, timeout_s=scale.converge_timeout_s
        )
    trail.read()
    with RawRedis(ground.redis.master().port) as raw:
        raw.call("CONFIG", "RESETSTAT")
        settled = observe_cpu(pids)
        with step("idle"):
            time.sleep(scale.idle_s)
        end = observe_cpu(pids)
        commands = {name: calls for name, (calls, _) in read_commandstats(raw).items()}
    return Outcome(
        began=began,
        convergence=convergence,
        converging=Window(before=start, after=settled),
        idle=Window(before=settled, after=end),
        idle_requests=trail.read(),
        idle_commands=commands,
        memory={one.name: observe_memory(one.pid) for one in ground.operators.processes},
    )


def _report(ground: Ground, scale: Scale, outcome: Outcome) -> Report:
    replicas = {one.name: one for one in ground.operators.processes}
    idle = outcome.idle.shares(replicas)
    worst_rss = max(use.rss_mib for use in outcome.memory.values())
    return Report(
        benchmark=NAME,
        server=describe_server(ground.redis),
        targets=[
            Target(
                name="idle_writes",
                value=len(writes(outcome.idle_requests)),
                target=MAX_IDLE_WRITES,
            ),
            Target(name="idle_cpu_share", value=max(idle.values()), target=MAX_IDLE_CPU_SHARE),
            Target(name="rss_mib", value=worst_rss, target=MAX_RSS_MIB),
            Target(name="converge_s", value=outcome.converge_s),
        ],
        figures=_figures(ground, scale, outcome),
    )


def _figures(ground: Ground, scale: Scale, outcome: Outcome) -> dict[str, Any]:
    everything = ground.processes()
    convergence = outcome.convergence
    return {
        "resources": scale.resources,
        "resources_are": "each with a stream of its own and a template for one worker",
        "replicas": scale.replicas,
        "cores": os.cpu_count(),
        "converged": {
            "ready": convergence.ready,
            "is_quiet": convergence.is_quiet,
            "writes": len(convergence.writes),
            "writes_per_resource": len(convergence.writes) / scale.resources,
            "writes_by_kind": _count(convergence.writes),
            "cpu_share_of_a_core": outcome.converging.shares(everything),
            "others_cpu_share": outcome.converging.others_share(),
        },
        "idle": {
            "seconds": scale.idle_s,
            "requests_by_kind": _count(outcome.idle_requests),
            # A script's own commands count beside EVALSHA.
            "redis_commands_per_resource_and_minute": {
                name: round(calls / scale.resources * 60 / scale.idle_s, 2)
                for name, calls in sorted(outcome.idle_commands.items())
            },
            "cpu_share_of_a_core": outcome.idle.shares(everything),
            "others_cpu_share": outcome.idle.others_share(),
        },
        "memory": {name: asdict(use) for name, use in outcome.memory.items()},
    }


def _count(requests: Iterable[Request]) -> dict[str, int]:
    return dict(Counter(f"{one.verb} {one.resource} {one.code}" for one in requests).most_common())


if __name__ == "__main__":
    main()
