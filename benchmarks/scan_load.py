"""What scanning costs the server with three replicas, against one: idle, and while they recover.

Everything that replicas of one operator do beside each other happens here: each has its own loop,
its own connections, and its own rank among the members. Their processes are the only thing shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.pending import add_entries, deliver_in_turn
from benchmarks.raw_redis import RawRedis
from benchmarks.recovery_ways import operators_server, provision
from benchmarks.scanning_replica import (
    ScanningReplica,
    start_replicas,
    uid_of,
    worker_names,
)
from benchmarks.server_time import scanning_ms
from pelops.domain.naming import GroupKeys, derive_keys

GROUPS = 10
PENDING = 10_000  # of each group
INTERVAL_S = 1  # the shortest: what a replica does once in an interval is the same in any
SETTLE_S = 2.2  # scans at the start are spread over 2 s
AFTER_S = 0.7  # replicas of lower rank look up to 0.4 s after a death
WORKERS = 10
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Milliseconds of server time by the number of replicas, round by round."""

    idle: dict[int, list[float]] = field(default_factory=lambda: {1: [], 3: []})
    recovering: dict[int, list[float]] = field(default_factory=lambda: {1: [], 3: []})

    @property
    def worst_ratio(self) -> float:
        """Three against one over all rounds, in the worse of the two cases."""
        return max(sum(load[3]) / sum(load[1]) for load in (self.idle, self.recovering))

    def figures(self) -> dict[str, Any]:
        """For the report."""
        return {
            name: {
                "server_ms_of_1": load[1],
                "server_ms_of_3": load[3],
                "ratio": sum(load[3]) / sum(load[1]),
            }
            for name, load in (("idle", self.idle), ("recovering", self.recovering))
        }


async def measure_load(port: int, kubeconfig: str, *, rounds: int, window_s: float) -> Load:
    """Let one replica scan, then three, `rounds` times."""
    load = Load()
    groups = [derive_keys(f"orders:{n}", f"processing-{n}") for n in range(GROUPS)]
    with RawRedis(port) as raw:
        for number in range(rounds):
            for count in (1, 3) if number % 2 == 0 else (3, 1):
                await _set_up(port, raw, groups)
                async with start_replicas(kubeconfig, count) as replicas:
                    idle, busy = await _measure(port, raw, groups, replicas, window_s)
                load.idle[count].append(idle)
                load.recovering[count].append(busy)
    return load


async def _set_up(port: int, raw: RawRedis, groups: Sequence[GroupKeys]) -> None:
    raw.call("FLUSHALL")
    async with operators_server(port) as server:
        for keys in groups:
            await provision(server, keys, uid_of(keys))
    for keys in groups:
        add_entries(raw, keys.stream, PENDING)
        deliver_in_turn(raw, keys, _workers(keys), PENDING, each=100)


async def _measure(
    port: int,
    raw: RawRedis,
    groups: Sequence[GroupKeys],
    replicas: Sequence[ScanningReplica],
    window_s: float,
) -> tuple[float, float]:
    for replica in replicas:
        for keys in groups:
            url = f"redis://127.0.0.1:{port}"
            replica.declare(keys, url, scanPeriodSeconds=INTERVAL_S)
            replica.meet(_workers(keys))
    async with AsyncExitStack() as running:
        for replica in replicas:
            await running.enter_async_context(replica.scanning())
        await asyncio.sleep(SETTLE_S)
        raw.call("CONFIG", "RESETSTAT")
        await asyncio.sleep(window_s)
        idle = scanning_ms(raw)
        raw.call("CONFIG", "RESETSTAT")
        await _let_one_die_each(raw, groups, replicas)
        return idle, scanning_ms(raw)


async def _let_one_die_each(
    raw: RawRedis, groups: Sequence[GroupKeys], replicas: Sequence[ScanningReplica]
) -> None:
    """In every group a worker dies, and all replicas hear of it at once."""
    for keys in groups:
        for replica in replicas:
            replica.bury(_workers(keys)[0])
            replica.wake(keys)
    async with asyncio.timeout(TIMEOUT_S):
        while any(_owns(raw, keys) for keys in groups):
            await asyncio.sleep(0.1)
    await asyncio.sleep(AFTER_S)


def _owns(raw: RawRedis, keys: GroupKeys) -> bool:
    dead = _workers(keys)[0]
    return bool(raw.call("XPENDING", keys.stream, keys.group, "-", "+", 1, dead))


def _workers(keys: GroupKeys) -> list[str]:
    return worker_names(WORKERS, of=keys.group)
