"""How fast dead letters move back, beside a pipeline, and for how long a call holds the server.

Each round moves 10,000 dead letters of 200 bytes by the operator's own code and by redis-py in
turn, each time on a new data set. Both read and write the dead letters page by page. The operator
moves each of them once whatever dies, and writes the ledger; the pipeline does neither. The times
of calls are the server's own (SLOWLOG), of rounds that are not timed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from redis.asyncio import Redis

from benchmarks.numbers import describe, ratios
from benchmarks.pending import BODY, body_bytes, require
from benchmarks.raw_redis import RawRedis, pack
from benchmarks.recovery import in_turn
from benchmarks.recovery_ways import UID, operators_server, provision
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.server_time import Call, CallMeter, longest_of, prefer
from local_cluster.progress import step
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.api.group.recovery import DEFAULT_MAX_ENTRY_BYTES
from pelops.domain.naming import derive_keys
from pelops.domain.records.dead_letter import LetterAction
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.redis_streams.redrive.moves import (
    MOST_MOVED,
    RedriveContext,
    move_letters,
    read_letters,
    start_redrive,
)

NAME = "redrive"
MIN_OF_PIPELINED = 0.5
MOST_CALL_MS = 2.0
SCRIPTS = ("start_redrive", "move_dead_letters")
PAGE = 1000  # dead letters that the pipeline reads, and writes, at once
KEYS = derive_keys("orders:events", "order-processing")
CONTEXT = RedriveContext(
    keys=KEYS,
    owner_uid=UID,
    uid="5d1f-of-the-benchmark",
    name="after-fix",
    action=LetterAction.REDRIVE,
    to_retry_stream=False,
    field_prefix="_",
    actor="replica-1",
    requested_by="",
    max_entry_bytes=DEFAULT_MAX_ENTRY_BYTES,
)
Way = Callable[[int], Awaitable[float]]  # of a port; the seconds that it took


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much, and how often."""

    letters: int = 10_000
    rounds: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was measured."""

    by_way: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    calls: list[Call] = field(default_factory=list)
    is_preferred: bool = False  # whether the server had precedence over other processes


async def move_by_operator(port: int) -> float:
    """The operator's own code: read a page, move it."""
    async with operators_server(port) as server:
        began = time.perf_counter()
        progress = await start_redrive(server, CONTEXT)
        while not progress.is_at_end:
            after = progress.cursor
            page = await read_letters(server, CONTEXT, after=after, until=progress.until)
            ids = [letter.entry_id for letter in page.letters]
            moved = await move_letters(server, CONTEXT, ids, after=after, through=page.through)
            progress = moved.progress
        return time.perf_counter() - began


async def move_pipelined(port: int) -> float:
    """XRANGE of a page, then XADD and XDEL of each dead letter in one pipeline."""
    async with Redis(host="127.0.0.1", port=port) as redis:
        began = time.perf_counter()
        while True:
            page: Any = await redis.xrange(KEYS.dead_letter, count=PAGE)
            if not page:
                return time.perf_counter() - began
            writing = redis.pipeline(transaction=False)
            for entry_id, fields in page:
                own = list(fields.items())[: -len(LETTER_FIELDS)]
                writing.xadd(KEYS.stream, dict(own))
                writing.xdel(KEYS.dead_letter, entry_id)
            await writing.execute()


WAYS: dict[str, Way] = {"operator": move_by_operator, "pipelined": move_pipelined}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    given = _parse(arguments)
    usual = Scale(letters=4000, rounds=3) if given.quick else Scale()
    scale = Scale(letters=usual.letters, rounds=given.rounds or usual.rounds)
    with start_standalone(given.server) as servers:
        found = asyncio.run(_measure(servers, scale))
        report = _report(servers, scale, found)
    publish(report, as_json=given.json)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = build_parser(NAME, __doc__)
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 5, with --quick 3")
    return parser.parse_args(arguments)


async def _measure(servers: StandaloneServers, scale: Scale) -> Found:
    process, port = servers.server.process, servers.server.port
    found = Found(is_preferred=process is not None and prefer(process.pid))
    with RawRedis(port) as raw, step("moving dead letters") as shown:
        await _run(port, raw, "operator", 500)  # the scripts are loaded now
        for number in range(scale.rounds):
            for way in in_turn(list(WAYS), number):
                shown.detail = f"round {number + 1} of {scale.rounds}, {way}"
                took_s = await _run(port, raw, way, scale.letters)
                found.by_way[way].append(scale.letters / took_s)
        shown.detail = "times of calls"
        meter = CallMeter(raw, scripts=SCRIPTS)
        for _ in range(scale.rounds):
            await _set_up(port, raw, scale.letters)
            meter.start()
            await move_by_operator(port)
            found.calls.extend(meter.stop())
    return found


async def _run(port: int, raw: RawRedis, way: str, letters: int) -> float:
    await _set_up(port, raw, letters)
    took_s = await WAYS[way](port)
    require(raw.call("XLEN", KEYS.dead_letter), 0, f"dead letters after {way}")
    require(raw.call("XLEN", KEYS.stream), letters, f"entries after {way}")
    return took_s


async def _set_up(port: int, raw: RawRedis, letters: int) -> None:
    raw.call("FLUSHALL")
    async with operators_server(port) as server:
        await provision(server, KEYS)
    known = {"original_id": "1-1", "stream": KEYS.stream, "group": KEYS.group}
    known |= {"reason": "MaxRetriesExceeded", "error": "PaymentTimeout: 3000 ms"}
    marks = [part for name in LETTER_FIELDS for part in (f"_{name}", known.get(name, "1"))]
    raw.pipeline([pack("XADD", KEYS.dead_letter, "*", *BODY, *marks)] * letters)


def _report(servers: StandaloneServers, scale: Scale, found: Found) -> Report:
    of_pipelined = ratios(found.by_way["operator"], found.by_way["pipelined"])
    longest = longest_of(found.calls, 99)
    return Report(
        benchmark=NAME,
        server=describe_server(servers),
        targets=[
            Target(
                name="of_pipelined",
                value=median(of_pipelined),
                target=MIN_OF_PIPELINED,
                better="higher",
            ),
            Target(
                name="longest_call_p99_ms",
                value=longest.get("move_dead_letters"),
                target=MOST_CALL_MS,
            ),
        ],
        figures={
            "letters": scale.letters,
            "entry_bytes": body_bytes(),
            "rounds": scale.rounds,
            "letters_per_call": MOST_MOVED,
            "ways": {
                "operator": "read_letters and move_letters, ledger written",
                "pipelined": f"redis-py asyncio, pages of {PAGE}, XADD and XDEL in a pipeline",
            },
            "letters_per_s": {way: describe(speeds) for way, speeds in found.by_way.items()},
            "ratios": of_pipelined,
            "calls_ms": {
                name: describe([call.ms for call in found.calls if call.name == name])
                for name in SCRIPTS
            },
            "server_had_precedence": found.is_preferred,
        },
    )


if __name__ == "__main__":
    main()
