"""Servers that answer anything: each reply that is wrong becomes one error of whoever asked.

Every command of operator, workers and the data source is sent to a real server, whose replies are
spoilt on the way by a seed. Nothing else than an error of ours may come of it, soon, and what was
read may not stay. `FUZZ_REPLIES` and `FUZZ_SEED` repeat what was found; both are printed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections.abc import Awaitable, Iterator
from typing import Any, Final

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.endpoint import RedisEndpoint, build_endpoint
from pelops.errors import PelopsError
from pelops.redis_core import transport
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.replies.wire import ANSWERS
from tests.fuzz.hostile_server import HostileServer, hostile
from tests.fuzz.operator_calls import CALLS, ENDS

SEED: Final = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
LONGEST_S: Final = 10.0  # of one call, with the time-outs of this test
MIB: Final = 1024 * 1024


def replies_of(short: int, long: int) -> list[Any]:
    """How many spoilt replies a test takes: some always, many in `make test-full`."""
    if "FUZZ_REPLIES" in os.environ:
        return [int(os.environ["FUZZ_REPLIES"])]
    return [short, pytest.param(long, marks=[pytest.mark.full, pytest.mark.timeout(3600)])]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time-outs that let a test wait for many of them."""
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", 0.15)
    monkeypatch.setattr(transport, "EXCHANGE_TIMEOUT_S", 0.4)
    yield


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGESIZE")


async def attempt(call: Awaitable[Any]) -> str:
    """What became of a call; any other error than one of ours ends the test."""
    try:
        await asyncio.wait_for(call, LONGEST_S)
    except PelopsError as error:
        message = str(error)
        assert len(message) < 3000
        return type(error).__name__
    return "done"


def endpoint_at(host: HostileServer, *, with_sentinel: bool) -> RedisEndpoint:
    node = f"127.0.0.1:{host.port}"
    if with_sentinel:
        return build_endpoint(url="redis://unused:1", sentinel_master="m", sentinel_nodes=[node])
    return build_endpoint(url=f"redis://{node}")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("topology", ["standalone", "cluster", "sentinel"])
@pytest.mark.parametrize("replies", replies_of(1200, 20_000))
async def test_no_reply_breaks_a_call_of_the_operator(
    redis_86: StandaloneServers, topology: str, replies: int
) -> None:
    redis_86.flush()
    rng = random.Random(SEED)
    ends: dict[str, int] = {}
    async with hostile(redis_86.master().port, SEED) as host:
        host.is_cluster = topology == "cluster"
        endpoint = endpoint_at(host, with_sentinel=topology == "sentinel")
        resident = 0
        while host.count < replies:
            pool = ServerPool()
            try:
                host.spoils = 0.3 if rng.random() < 0.3 else 0.0
                end = await attempt(pool.server(endpoint))
                if end != "done":
                    ends[end] = ends.get(end, 0) + 1
                    continue
                server = await pool.server(endpoint)
                host.spoils = 0.0
                for name in ("provision", "add"):
                    await attempt(CALLS[name](server))
                host.spoils = rng.choice((0.2, 0.6, 1.0))
                calls = {**CALLS, **ENDS}
                for name in (*rng.sample(sorted(CALLS), len(CALLS)), *ENDS):
                    began = time.monotonic()
                    try:
                        end = await attempt(calls[name](server))
                    except Exception:
                        print(f"FUZZ_SEED={SEED} {topology} {name} after {host.count} replies")
                        raise
                    assert time.monotonic() - began < LONGEST_S, name
                    ends[end] = ends.get(end, 0) + 1
            finally:
                await pool.close()
                resident = resident or resident_bytes()
        assert resident_bytes() - resident < 64 * MIB
        assert ANSWERS.held == 0
        print(f"FUZZ_SEED={SEED} {topology}: {host.count} replies, {ends}, {dict(host.sent)}")
    assert ends.get("InvalidReply", 0) > replies / 40
