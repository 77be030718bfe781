"""Finding idle entries: XAUTOCLAIM, XREADGROUP ... CLAIM and the operator's own way, side by side.

The published comparison (redis.io, on Redis 8.4): 20,000 pending entries of which 5 % are idle,
COUNT 1000. All IDs are older than the processing timeout, which is the worst case for the operator:
it then may skip none of them. XAUTOCLAIM and CLAIM also claim what they find, and answer it with
its fields.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from benchmarks.numbers import describe, ratios
from benchmarks.pending import (
    add_entries,
    age_entries,
    count_pending,
    deliver_in_turn,
    pending_ids,
    require,
    server_ms,
)
from benchmarks.raw_redis import RawRedis, Reply
from benchmarks.recovery_ways import UID, operators_server, provision
from benchmarks.server_time import read_commandstats
from pelops.domain.naming import derive_keys
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import NotDue, find_idle, open_scan

KEYS = derive_keys("orders:published", "order-processing")
PENDING = 20_000
IDLE = 1_000
COUNT = 1_000
LIMIT_MS = 60_000
HOUR_MS = 3_600_000
CLAIMER = "rescuer"
ALL = "xautoclaim_full_pass"
OURS = "operator"

Way: TypeAlias = Callable[[Server], Awaitable[int]]  # how many it found


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Times by way, round by round."""

    client_ms: dict[str, list[float]] = field(default_factory=dict)
    server_ms: dict[str, list[float]] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)

    def figures(self) -> dict[str, object]:
        """For the report."""
        return {
            way: {
                "entries": self.entries[way],
                "client_ms": describe(self.client_ms[way]),
                "server_ms": describe(self.server_ms[way]),
            }
            for way in self.client_ms
        }

    def advantage(self) -> list[float]:
        """The server's time for a full pass of XAUTOCLAIM by the operator's, round by round.

        Not the client's: the operator makes objects of what it finds, the others only count.
        """
        return ratios(self.server_ms[ALL], self.server_ms[OURS])


async def compare(port: int, *, rounds: int, has_claim: bool) -> Found:
    """Let each way find the idle entries, `rounds` times in turn."""
    found = Found()
    ways = _ways(has_claim=has_claim)
    with RawRedis(port) as raw:
        async with operators_server(port) as server:
            idle = await _set_up(server, raw)
            for number in range(rounds + 1):
                for way in ways:
                    age_entries(raw, KEYS, "worker-0", idle, LIMIT_MS + 1000)
                    times = await _time(server, raw, ways[way])
                    if number:  # the first round loads scripts and makes consumers
                        _note(found, way, times)
    return found


def _ways(*, has_claim: bool) -> dict[str, Way]:
    ways: dict[str, Way] = {"xautoclaim_one_call": _xautoclaim_once}
    ways |= {ALL: _xautoclaim, OURS: _find_idle}
    return ways | {"claim": _claim} if has_claim else ways


async def _set_up(server: Server, raw: RawRedis) -> list[str]:
    raw.call("FLUSHALL")
    await provision(server, KEYS)
    add_entries(raw, KEYS.stream, PENDING, first_ms=server_ms(raw) - HOUR_MS)
    deliver_in_turn(raw, KEYS, [f"worker-{n}" for n in range(10)], PENDING, each=100)
    require(count_pending(raw, KEYS), PENDING, "pending entries")
    return random.Random(1).sample(pending_ids(raw, KEYS), IDLE)


async def _time(server: Server, raw: RawRedis, way: Way) -> tuple[int, float, float]:
    raw.call("CONFIG", "RESETSTAT")
    began = time.perf_counter()
    count = await way(server)
    took_ms = (time.perf_counter() - began) * 1000
    stats = read_commandstats(raw)
    scripts_ms = stats.get("evalsha", (0, 0.0))[1] + stats.get("eval", (0, 0.0))[1]
    plain_ms = sum(ms for name, (_, ms) in stats.items() if name in ("xautoclaim", "xreadgroup"))
    return count, took_ms, scripts_ms + plain_ms


def _note(found: Found, way: str, times: tuple[int, float, float]) -> None:
    count, client_ms, server_ms_ = times
    if way != "xautoclaim_one_call":  # which ends after ten times COUNT, wherever that is
        require(count, IDLE, f"entries that {way} found")
    found.entries[way] = count
    found.client_ms.setdefault(way, []).append(client_ms)
    found.server_ms.setdefault(way, []).append(server_ms_)


async def _xautoclaim_once(server: Server) -> int:
    return len((await _claim_from(server, "0-0"))[1])


async def _xautoclaim(server: Server) -> int:
    count, cursor = 0, "0-0"
    while True:
        following, entries, *_ = await _claim_from(server, cursor)
        count += len(entries)
        cursor = following.decode()
        if cursor == "0-0":
            return count


async def _claim_from(server: Server, cursor: str) -> tuple[bytes, list[Reply], list[bytes]]:
    words = ("XAUTOCLAIM", KEYS.stream, KEYS.group, CLAIMER, LIMIT_MS, cursor, "COUNT", COUNT)
    following, entries, gone = await server.execute(*words)
    return following, entries, gone


async def _claim(server: Server) -> int:
    who = ("GROUP", KEYS.group, CLAIMER, "COUNT", COUNT, "CLAIM", LIMIT_MS)
    answer = await server.execute("XREADGROUP", *who, "STREAMS", KEYS.stream, ">")
    return len(answer[0][1])


async def _find_idle(server: Server) -> int:
    observation = await open_scan(server, KEYS, uid=UID, due=timedelta(), with_retry=False)
    assert not isinstance(observation, NotDue)
    limit = timedelta(milliseconds=LIMIT_MS)
    pages = find_idle(server, observation.stream, KEYS.group, idle=limit)
    return sum([len(page) async for page, _ in pages])
