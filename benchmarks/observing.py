"""What one look at a group costs the Redis server, however long the stream is.

The look is the operator's own. Times are the server's, of streams of three lengths in turn; the
longest has 50 million entries, which take 10 GiB of memory.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, TypeAlias

from benchmarks.numbers import describe, percentile
from benchmarks.observing_cases import CASES, SHORTEST, Case, Stage, fill, set_up
from benchmarks.pending import BODY, body_bytes, require
from benchmarks.raw_redis import RawRedis
from benchmarks.recovery_ways import operators_server
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.server_time import prefer, read_commandstats
from local_cluster.progress import step
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group

NAME = "observing"
MAX_LOOK_MS = 2.0
MAX_RATIO = 1.5
MOST = 50_000_000
MOST_IN_QUICK = 2_000_000
MOST_FIELDS = 50
MEMORY_SHARE = 0.7  # of what is available
WARM_UP = 5

Times: TypeAlias = dict[int, list[float]]  # milliseconds of each look, by the stream's length


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much, and how often."""

    lengths: Sequence[int]  # the shortest first
    looks: int  # at each stream in each case
    body: Sequence[str] = BODY  # of every entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured."""

    by_case: dict[str, Times]
    memory_gib: float
    is_preferred: bool  # whether the server had precedence over all else on this machine

    @property
    def longest_p99_ms(self) -> float:
        """The greatest 99th percentile of any case and stream."""
        looks = [times for case in self.by_case.values() for times in case.values()]
        return max(percentile(times, 99) or 0.0 for times in looks)

    @property
    def worst_ratio(self) -> float:
        """The greatest ratio of any case."""
        return max(map(long_to_short, self.by_case.values()))


def long_to_short(times: Times) -> float:
    """What a look at the longest stream takes by what it takes at the shortest, in the median."""
    return median(times[max(times)]) / median(times[min(times)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    scale = _scale(given.entries, _body(given.fields), is_quick=given.quick)
    with start_standalone(given.server) as servers:
        outcome = asyncio.run(_measure(servers, scale))
        report = _report(servers, scale, outcome)
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    entries = "of the longest stream; default: 50 million, or what the memory holds"
    parser.add_argument("--entries", type=int, metavar="N", help=entries)
    fields = f"of every entry, up to {MOST_FIELDS}, 8 bytes each; default: 3 fields of 200 bytes"
    parser.add_argument("--fields", type=int, metavar="N", help=fields)
    given = parser.parse_args(arguments)
    if given.entries is not None and given.entries <= SHORTEST:
        parser.error(f"--entries must be more than {SHORTEST:,}, which the shortest stream has")
    if given.fields is not None and not 1 <= given.fields <= MOST_FIELDS:
        parser.error(f"--fields must be 1 to {MOST_FIELDS}")
    return given


def _body(fields: int | None) -> Sequence[str]:
    if fields is None:
        return BODY
    return [part for number in range(fields) for part in (f"field-{number}", "x" * 8)]


def _scale(entries: int | None, body: Sequence[str], *, is_quick: bool) -> Scale:
    longest = entries or min(MOST, _most_that_fit(body))
    if is_quick:
        longest = min(longest, MOST_IN_QUICK)
    between = 100_000 if is_quick else 1_000_000
    lengths = sorted({SHORTEST, min(between, longest), longest})
    return Scale(lengths=lengths, looks=200 if is_quick else 1000, body=body)


def _most_that_fit(body: Sequence[str]) -> int:
    each = body_bytes(body) + 2 * len(body) + 20  # in memory, and a little more
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(int(kib) * 1024 * MEMORY_SHARE / each)


async def _measure(servers: StandaloneServers, scale: Scale) -> Outcome:
    with RawRedis(servers.server.port) as raw:
        for length in scale.lengths:
            with step(f"adding {length:,} entries"):
                fill(raw, length, scale.body)
        # Not before: what fills a stream would keep others from a whole core.
        is_preferred = servers.server.process is not None and prefer(servers.server.process.pid)
        by_case: dict[str, Times] = {}
        async with operators_server(servers.server.port) as server:
            with step("looking at groups") as shown:
                for case in CASES:
                    shown.detail = case.name
                    by_case[case.name] = await _look_at(server, raw, case, scale)
        memory_gib = int(servers.server.info("memory")["used_memory"]) / 2**30
    return Outcome(by_case=by_case, memory_gib=memory_gib, is_preferred=is_preferred)


async def _look_at(server: Server, raw: RawRedis, case: Case, scale: Scale) -> Times:
    """One case in every stream, the streams in turn: what slows one slows all."""
    random = Random(1)
    stages = [await set_up(server, raw, case, length) for length in scale.lengths]
    times: Times = {length: [] for length in scale.lengths}
    for number in range(WARM_UP + scale.looks):
        for stage in stages:
            took_ms = await _look(server, stage, random)
            if number >= WARM_UP:
                times[stage.length].append(took_ms)
    for stage in stages:
        stage.end()
    return times


async def _look(server: Server, stage: Stage, random: Random) -> float:
    ahead = stage.place(random)
    stage.raw.call("CONFIG", "RESETSTAT")
    seen = await observe_group(server, stage.keys)
    stats = read_commandstats(stage.raw)
    calls, took_ms = stats["eval" if "eval" in stats else "evalsha"]  # eval: the very first time
    require(calls, 1, "scripts that a look ran")
    stage.check(seen, ahead)
    return took_ms


def _report(servers: StandaloneServers, scale: Scale, outcome: Outcome) -> Report:
    return Report(
        benchmark=NAME,
        server=describe_server(servers),
        targets=[
            Target(name="longest_look_p99_ms", value=outcome.longest_p99_ms, target=MAX_LOOK_MS),
            Target(name="long_vs_short", value=outcome.worst_ratio, target=MAX_RATIO),
        ],
        figures={
            "server_had_precedence": outcome.is_preferred,
            "entries": list(scale.lengths),
            "fields_of_an_entry": len(scale.body) // 2,
            "bytes_of_an_entry": body_bytes(scale.body),
            "memory_gib": outcome.memory_gib,
            "cases": {case.name: _figures(case, outcome.by_case[case.name]) for case in CASES},
        },
    )


def _figures(case: Case, times: Times) -> dict[str, Any]:
    looks_ms = {f"look_ms_of_{length}": describe(times[length]) for length in times}
    return {"what": case.what, "long_vs_short": long_to_short(times), **looks_ms}


if __name__ == "__main__":
    main()
