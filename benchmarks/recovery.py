"""How fast the entries of a dead worker move, beside a loop, a pipeline, and what Redis can do.

One worker of twenty died with 10,000 of 200,000 pending entries of 200 bytes. Each round moves them
by the operator's own code and by three other ways in turn, each time on a new data set; the targets
are ratios of the entries per second within a round, and their median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from benchmarks.numbers import describe, ratios
from benchmarks.pending import (
    add_entries,
    body_bytes,
    count_pending,
    deliver_in_turn,
    require,
)
from benchmarks.raw_redis import RawRedis
from benchmarks.recovery_ways import (
    BATCH,
    PAGE,
    Scene,
    Way,
    move_by_operator,
    move_one_by_one,
    move_pipelined,
    move_raw,
    operators_server,
    provision,
)
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from local_cluster.progress import step
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.domain.naming import derive_keys

NAME = "recovery"
MIN_VS_LOOP = 40.0
MIN_VS_PIPELINED = 8.0
MIN_OF_CEILING = 0.35
KEYS = derive_keys("orders:events", "order-processing")
DEAD = "order-workers-7:uid-7"
OTHER_READS = (1, 10)
WAYS: dict[str, Way] = {
    "operator": move_by_operator,
    "pipelined": move_pipelined,
    "ceiling": move_raw,
    "loop": move_one_by_one,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much, and how often."""

    pending: int = 200_000
    workers: int = 20  # of which one died
    read: int = 100  # entries that a worker reads at once, so that they lie together
    loop: int = 10_000  # entries that the loop moves: its speed does not depend on it
    rounds: int = 5

    @property
    def stuck(self) -> int:
        return self.pending // self.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Entries per second, by way, round by round."""

    by_way: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    # The operator's, when workers had read so many at once.
    by_read: dict[int, list[float]] = field(default_factory=lambda: {n: [] for n in OTHER_READS})

    def against(self, way: str) -> list[float]:
        """The operator's speeds by those of the other way."""
        return ratios(self.by_way["operator"], self.by_way[way])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    usual = Scale(rounds=3, loop=2000) if given.quick else Scale()
    scale = Scale(rounds=given.rounds or usual.rounds, loop=usual.loop, read=given.read)
    with start_standalone(given.server) as servers:
        speeds = asyncio.run(_measure(servers, scale))
        report = _report(servers, scale, speeds)
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    add = parser.add_argument
    add("--rounds", type=int, metavar="N", help="default: 5, with --quick 3")
    read = "entries that a worker reads at once; default: %(default)s"
    add("--read", type=int, default=Scale().read, metavar="N", help=read)
    return parser.parse_args(arguments)


async def _measure(servers: StandaloneServers, scale: Scale) -> Speeds:
    speeds = Speeds()
    with RawRedis(servers.server.port) as raw, step("moving entries") as shown:
        await _run(servers, raw, "operator", Scale(pending=20_000))  # the scripts are loaded now
        for number in range(scale.rounds):
            for way in in_turn(list(WAYS), number):
                shown.detail = f"round {number + 1} of {scale.rounds}, {way}"
                speeds.by_way[way].append(await _run(servers, raw, way, scale))
            for read, found in speeds.by_read.items():
                shown.detail = f"round {number + 1} of {scale.rounds}, read {read} at once"
                found.append(await _run(servers, raw, "operator", replace(scale, read=read)))
    return speeds


def in_turn(ways: list[str], number: int) -> list[str]:
    """Each round begins with another way: none always comes first."""
    start = number % len(ways)
    return ways[start:] + ways[:start]


async def _run(servers: StandaloneServers, raw: RawRedis, way: str, scale: Scale) -> float:
    """Entries per second."""
    port = servers.server.port
    await _set_up(port, raw, scale)
    moved = scale.loop if way == "loop" else scale.stuck
    took_s = await WAYS[way](Scene(port=port, keys=KEYS, owner=DEAD, limit=moved))
    require(count_pending(raw, KEYS), scale.pending - moved, f"pending after {way}")
    require(raw.call("XLEN", KEYS.stream), scale.pending + moved, f"entries after {way}")
    return moved / took_s


async def _set_up(port: int, raw: RawRedis, scale: Scale) -> None:
    raw.call("FLUSHALL")
    async with operators_server(port) as server:
        await provision(server, KEYS)
    add_entries(raw, KEYS.stream, scale.pending)
    workers = [DEAD, *(f"order-workers-{n}:uid-{n}" for n in range(100, 99 + scale.workers))]
    deliver_in_turn(raw, KEYS, workers, scale.pending, each=scale.read)
    require(count_pending(raw, KEYS), scale.pending, "pending at first")


def _report(servers: StandaloneServers, scale: Scale, speeds: Speeds) -> Report:
    def target(name: str, way: str, least: float) -> Target:
        value = median(speeds.against(way))
        return Target(name=name, value=value, target=least, better="higher")

    return Report(
        benchmark=NAME,
        server=describe_server(servers),
        targets=[
            target("vs_loop", "loop", MIN_VS_LOOP),
            target("vs_pipelined", "pipelined", MIN_VS_PIPELINED),
            target("of_ceiling", "ceiling", MIN_OF_CEILING),
        ],
        figures=_figures(scale, speeds),
    )


def _figures(scale: Scale, speeds: Speeds) -> dict[str, Any]:
    return {
        "pending": scale.pending,
        "stuck": scale.stuck,
        "entry_bytes": body_bytes(),
        "read_together": scale.read,
        "rounds": scale.rounds,
        "ways": {
            "operator": f"recover_owner, {BATCH} entries per script, ledger written",
            "pipelined": f"redis-py asyncio, the loop's commands in pipelines of {PAGE} entries",
            "ceiling": "prebuilt XADD and XACK for each entry on one raw connection",
            "loop": f"redis-py asyncio, five awaited commands per entry, {scale.loop} entries",
        },
        "entries_per_s": {way: describe(found) for way, found in speeds.by_way.items()},
        "operator_entries_per_s_by_read": {
            str(read): describe(found) for read, found in speeds.by_read.items()
        },
        "ratios": {way: speeds.against(way) for way in WAYS if way != "operator"},
    }


if __name__ == "__main__":
    main()
