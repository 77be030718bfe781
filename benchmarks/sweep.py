"""What a scan costs the Redis server: with nothing stuck, in odd shapes, and with three replicas.

Times are the server's own. A scan is the operator's, in this process: its scripts and commands
against a real Redis, its questions about pods against a real API server.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.finding import Found, compare
from benchmarks.numbers import describe
from benchmarks.raw_redis import RawRedis
from benchmarks.recovery_ways import operators_server, provision
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.scan_load import Load, measure_load
from benchmarks.scan_shapes import IDLE, SHAPES, TIMEOUT_S, Shape, Stage, build, workers_of
from benchmarks.scanning_replica import ScanningReplica, start_replicas, uid_of
from benchmarks.server_time import Call, CallMeter, longest_of, prefer, scanning_ms, total_ms
from local_cluster.plane import ControlPlane
from local_cluster.progress import step
from local_cluster.redis_servers import RedisServer, StandaloneServers, start_standalone
from pelops.domain.naming import derive_keys

NAME = "sweep"
MAX_IDLE_MS = 0.3
MAX_CALL_MS = 2.0
MAX_LOAD = 1.3
WARM_UP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much, and how long."""

    pending: int  # while nothing is stuck
    shaped: int  # pending, in other shapes
    scans: int  # with nothing stuck
    per_shape_s: float
    load_rounds: int
    load_window_s: float
    find_rounds: int


FULL = Scale(
    pending=1_000_000,
    shaped=1_000_000,
    scans=100,
    per_shape_s=10.0,
    load_rounds=6,
    load_window_s=10.0,
    find_rounds=50,
)
QUICK = Scale(
    pending=1_000_000,
    shaped=100_000,
    scans=30,
    per_shape_s=0.5,
    load_rounds=2,
    load_window_s=2.0,
    find_rounds=10,
)


@dataclass(slots=True, kw_only=True)
class Played:
    """What the scans of one shape cost."""

    scans_ms: list[float] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    full_pass: list[Call] = field(default_factory=list)  # of XAUTOCLAIM, over what is left

    @property
    def worst_ms(self) -> float:
        """The greatest of the 99th percentiles of each kind of call."""
        return max(longest_of(self.calls, 99).values())

    def figures(self, shape: Shape, pending: int) -> dict[str, Any]:
        """For the report."""
        return {
            "what": shape.what,
            "pending": pending,
            "sweeps": len(self.scans_ms),
            "sweep_ms": describe(self.scans_ms),
            "calls": len(self.calls),
            "call_p99_ms": longest_of(self.calls, 99),
            "call_longest_ms": longest_of(self.calls),
            "xautoclaim_full_pass_ms": total_ms(self.full_pass),
            "xautoclaim_longest_call_ms": longest_of(self.full_pass).get("xautoclaim", 0.0),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured."""

    idle_ms: list[float]
    played: dict[str, Played]
    load: Load
    found: Found
    is_preferred: bool  # whether the server had precedence over all else on this machine


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    scale = QUICK if given.quick else FULL
    with tempfile.TemporaryDirectory(prefix="pelops-sweep-") as state:
        plane = ControlPlane.start(Path(state) / "control-plane", controllers=False)
        try:
            with start_standalone(given.server) as servers:
                outcome = asyncio.run(_measure(servers, str(plane.kubeconfig), scale))
                report = _report(servers, scale, outcome)
        finally:
            plane.stop()
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    return build_parser(NAME, __doc__).parse_args(arguments)


async def _measure(servers: StandaloneServers, kubeconfig: str, scale: Scale) -> Outcome:
    server, port = servers.server, servers.server.port
    is_preferred = servers.server.process is not None and prefer(servers.server.process.pid)
    with step("finding what is idle"):
        has_claim = servers.flavour == "redis" and servers.version >= "8.4"
        found = await compare(port, rounds=scale.find_rounds, has_claim=has_claim)
    played: dict[str, Played] = {}
    with step(f"scanning {scale.pending:,} entries of which none is stuck"):
        idle_ms = await _play_idle(server, kubeconfig, scale)
    with step("scanning entries in other shapes") as shown:
        for shape in SHAPES:
            shown.detail = shape.name
            played[shape.name] = await _play(server, kubeconfig, shape, scale)
    with step("scanning with one replica, and with three"):
        load = await measure_load(
            port, kubeconfig, rounds=scale.load_rounds, window_s=scale.load_window_s
        )
    return Outcome(
        idle_ms=idle_ms, played=played, load=load, found=found, is_preferred=is_preferred
    )


async def _play_idle(server: RedisServer, kubeconfig: str, scale: Scale) -> list[float]:
    """The server time of each scan, while no log makes it longer."""
    with RawRedis(server.port) as raw:
        async with start_replicas(kubeconfig, 1) as (replica,):
            stage = await _set_up(server, raw, replica, IDLE, scale.pending)
            for _ in range(WARM_UP):
                await replica.scan(stage.keys)
            times = []
            for _ in range(scale.scans):
                raw.call("CONFIG", "RESETSTAT")
                await replica.scan(stage.keys)
                times.append(scanning_ms(raw))
            return times


async def _play(server: RedisServer, kubeconfig: str, shape: Shape, scale: Scale) -> Played:
    played = Played()
    with RawRedis(server.port) as raw:
        meter = CallMeter(raw)
        async with start_replicas(kubeconfig, 1) as (replica,):
            stage = await _set_up(server, raw, replica, shape, scale.shaped)
            await replica.scan(stage.keys)  # what is done only once is done now
            until = time.monotonic() + scale.per_shape_s
            while not played.scans_ms or time.monotonic() < until:
                if shape.scans is not None and len(played.scans_ms) >= shape.scans:
                    break
                shape.prepare(stage, len(played.scans_ms))
                meter.start()
                await replica.scan(stage.keys)
                calls = meter.stop()
                played.calls += calls
                played.scans_ms.append(total_ms(calls))
        played.full_pass = _pass_by_xautoclaim(stage)
    return played


async def _set_up(
    server: RedisServer, raw: RawRedis, replica: ScanningReplica, shape: Shape, pending: int
) -> Stage:
    raw.call("FLUSHALL")
    keys = derive_keys("orders:events", shape.name)
    async with operators_server(server.port) as adapter:
        await provision(adapter, keys, uid_of(keys))
    stage = Stage(
        raw=raw,
        keys=keys,
        replica=replica,
        workers=workers_of(shape),
        pending=min(pending, shape.most_pending or pending),
    )
    build(shape, stage)
    replica.declare(keys, f"redis://127.0.0.1:{server.port}", processingTimeoutSeconds=TIMEOUT_S)
    replica.meet(stage.workers)
    return stage


def _pass_by_xautoclaim(stage: Stage) -> list[Call]:
    """Look at everything that is left as claimers do, without claiming it."""
    meter = CallMeter(stage.raw, plain=("xautoclaim",))
    meter.start()
    cursor = b"0-0"
    while True:
        words = ("XAUTOCLAIM", stage.keys.stream, stage.keys.group, "nobody", 2**40, cursor)
        cursor = stage.raw.call(*words, "COUNT", 1000, "JUSTID")[0]
        if cursor == b"0-0":
            return meter.stop()


def _report(servers: StandaloneServers, scale: Scale, outcome: Outcome) -> Report:
    worst_ms = max(played.worst_ms for played in outcome.played.values())
    return Report(
        benchmark=NAME,
        server=describe_server(servers),
        targets=[
            Target(name="idle_ms", value=median(outcome.idle_ms), target=MAX_IDLE_MS),
            Target(name="longest_call_p99_ms", value=worst_ms, target=MAX_CALL_MS),
            Target(name="load_3_vs_1", value=outcome.load.worst_ratio, target=MAX_LOAD),
            Target(
                name="find_vs_xautoclaim",
                value=median(outcome.found.advantage()),
                better="higher",
            ),
        ],
        figures={
            "server_had_precedence": outcome.is_preferred,
            "pending_while_idle": scale.pending,
            "idle_sweep_ms": describe(outcome.idle_ms),
            "shapes": {
                shape.name: outcome.played[shape.name].figures(
                    shape, min(scale.shaped, shape.most_pending or scale.shaped)
                )
                for shape in SHAPES
            },
            "load": outcome.load.figures(),
            "finding": outcome.found.figures(),
        },
    )


if __name__ == "__main__":
    main()
