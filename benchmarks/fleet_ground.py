"""What a fleet runs on, and what all its parts use in a stretch of time."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.raw_redis import RawRedis
from benchmarks.server_time import read_commandstats
from benchmarks.usage import CpuUse, observe_cpu
from local_cluster.audit import AuditTrail, Request
from local_cluster.nodes import Node
from local_cluster.operators import SERVICE_ACCOUNT, Operators, metrics
from local_cluster.parts import SERVERS
from local_cluster.plane import ControlPlane
from local_cluster.processes import Process
from local_cluster.redis_servers import StandaloneServers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that runs, except for the resources."""

    plane: ControlPlane
    nodes: Sequence[Node]
    redis: Sequence[StandaloneServers]
    operators: Operators

    @property
    def redis_ports(self) -> list[int]:
        """One of each server."""
        return [one.server.port for one in self.redis]

    def processes(self) -> dict[str, Process]:
        """Every process that runs, by name."""
        parts = [self.plane.process(part) for part in SERVERS]
        nodes = [node.process for node in self.nodes]
        running = [*parts, *nodes, *self.operators.processes]
        servers = {f"redis-{number}": one.processes[0] for number, one in enumerate(self.redis)}
        return {one.name: one for one in running} | servers


def knows_all(port: int, replicas: int) -> bool:
    """Whether a replica knows so many, itself among them."""
    return f"pelops_members {replicas:.1f}" in metrics(port, "pelops_members")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What was used in a window."""

    seconds: float
    shares: Mapping[str, float]  # of one core, by process; all servers of Redis as one
    others_share: float  # of one core: what had nothing to do with this benchmark
    requests: Sequence[Request]  # of the operator
    commands: Mapping[str, int]  # of all clients of all servers of Redis, by name

    def busiest_second(self) -> int:
        """Requests to the API server in the busiest second."""
        by_second = Counter(int(one.answered.timestamp()) for one in self.requests)
        return max(by_second.values(), default=0)


class Window:
    """A stretch of time that begins now, of processes that run throughout."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._processes = ground.processes()
        self._trail = AuditTrail(ground.plane, SERVICE_ACCOUNT)
        self._commands = self._read_commands()
        self._before, self._began = self._observe(), time.monotonic()

    def close(self) -> Use:
        """What was used since the window began."""
        after, seconds = self._observe(), time.monotonic() - self._began
        shares: dict[str, float] = defaultdict(float)
        for name, process in self._processes.items():
            if process.pid not in after.by_pid_s:
                continue  # it has ended meanwhile
            key = "redis" if name.startswith("redis-") else name
            shares[key] += after.share(self._before, process.pid)
        return Use(
            seconds=seconds,
            shares=shares,
            others_share=after.others_share(self._before),
            requests=self._trail.read(),
            commands=self._read_commands() - self._commands,
        )

    def _observe(self) -> CpuUse:
        alive = [one.pid for one in self._processes.values() if one.is_alive()]
        return observe_cpu([os.getpid(), *alive])

    def _read_commands(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for port in self._ground.redis_ports:
            with RawRedis(port) as raw:
                for name, (calls, _) in read_commandstats(raw).items():
                    found[name] += calls
        return found
