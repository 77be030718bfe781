"""Servers that answer anything: each wrong reply becomes one error of its caller.

Every command of operator, workers and the data source is sent to a real server, whose replies are
spoilt on the way by a seed. Each call must end soon, with a `PelopsError` if it fails, and keep no
memory. `FUZZ_REPLIES` and `FUZZ_SEED` repeat what was found; both are printed.
`python -m tests.fuzz replies` runs all of them in full.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.endpoint import RedisEndpoint, build_endpoint
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.errors import PelopsError
from pelops.redis_core import transport
from pelops.redis_core.masters import end_tasks
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.replies.wire import ANSWERS
from pelops.redis_streams.recovery import keyspace_events
from pelops.redis_streams.recovery.keyspace_events import ExpiryEvents
from pelops.redis_streams.scaling import idle_streams
from pelops.redis_streams.scaling.idle_streams import Waker
from pelops.worker.producer import AddOptions, Producer
from pelops.worker.server import connection as worker_connection
from pelops.worker.server import streamed_connection
from pelops.worker.server.adapter import Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from pelops.worker.settings import WorkerPlace
from tests.fuzz.hostile_server import HostileServer, Tls, hostile
from tests.fuzz.operator_calls import CALLS, ENDS, KEYS
from tests.fuzz.tally import SEED, Tally, also_in_full, replies_of

LONGEST_S: Final = 60.0  # a call that takes longer hangs: its time-outs are far shorter
MIB: Final = 1024 * 1024
_LIBC: Final = ctypes.CDLL(None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time-outs that let a test wait for many of them."""
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", 0.15)
    monkeypatch.setattr(transport, "EXCHANGE_TIMEOUT_S", 0.4)
    monkeypatch.setattr(worker_connection, "ANSWER_TIMEOUT_S", 0.15)
    monkeypatch.setattr(streamed_connection, "ANSWER_TIMEOUT_S", 0.15)
    monkeypatch.setattr(streamed_connection, "_LONGEST_PAUSE_S", 0.002)
    monkeypatch.setattr(streamed_connection, "_FIRST_PAUSE_S", 0.001)
    yield


def resident_bytes() -> int:
    """The memory of this process, without what the allocator keeps of freed blocks."""
    gc.collect()
    _LIBC.malloc_trim(0)
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGESIZE")


async def attempt(call: Awaitable[Any]) -> str:
    """What became of a call; any other error than a `PelopsError` ends the test."""
    try:
        await asyncio.wait_for(call, LONGEST_S)
    except PelopsError as error:
        message = str(error)
        assert len(message) < 3000
        return type(error).__name__
    return "done"


@pytest.fixture
def tls(tmp_path: Path, request: pytest.FixtureRequest) -> Tls | None:
    """Only where the topology of the test says so."""
    return Tls.make(tmp_path) if request.node.callspec.params["topology"] == "tls" else None


def endpoint_at(host: HostileServer, tls: Tls | None, *, with_sentinel: bool) -> RedisEndpoint:
    node = f"127.0.0.1:{host.port}"
    if tls is not None:
        return build_endpoint(url=f"rediss://{node}", secret={"ca.crt": tls.ca.read_bytes()})
    if with_sentinel:
        return build_endpoint(url="redis://unused:1", sentinel_master="m", sentinel_nodes=[node])
    return build_endpoint(url=f"redis://{node}")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("topology", also_in_full("cluster", "standalone", "sentinel", "tls"))
@pytest.mark.parametrize("replies", replies_of(300, 20_000))
async def test_no_reply_breaks_a_call_of_the_operator(
    redis_86: StandaloneServers, topology: str, tls: Tls | None, replies: int, tally: Tally
) -> None:
    redis_86.flush()
    rng = random.Random(SEED)
    ends: Counter[str] = Counter()
    async with hostile(redis_86.master().port, SEED, tls) as host:
        host.is_cluster = topology == "cluster"
        endpoint = endpoint_at(host, tls, with_sentinel=topology == "sentinel")
        resident = 0
        while host.count < replies:
            pool = ServerPool()
            try:
                host.spoils = 0.3 if rng.random() < 0.3 else 0.0
                end = await attempt(pool.server(endpoint))
                if end != "done":
                    ends[end] += 1
                    continue
                server = await pool.server(endpoint)
                host.spoils = 0.0
                for name in ("provision", "add"):
                    await attempt(CALLS[name](server))
                host.spoils = rng.choice((0.2, 0.6, 1.0))
                calls = {**CALLS, **ENDS}
                for name in (*rng.sample(sorted(CALLS), len(CALLS)), *ENDS):
                    try:
                        end = await attempt(calls[name](server))
                    except Exception:
                        print(f"FUZZ_SEED={SEED} {topology} {name} after {host.count} replies")
                        raise
                    ends[end] += 1
            finally:
                await pool.close()
                resident = resident or resident_bytes()
        assert resident_bytes() - resident < 64 * MIB
        assert ANSWERS.held == 0
        tally("replies", host.count, f"operator, {topology}", ends)
    assert ends["InvalidReply"] > replies / 40


STREAM: Final = KEYS.stream.encode()


def worker_calls(
    adapter: RedisAdapter, read: list[bytes]
) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Every call of a worker, about the entries that it has read."""
    some = {STREAM: read[-20:] or [b"1-1"]}
    one = some[STREAM][0]

    async def take() -> None:
        for delivered in await adapter.read(10, 2):
            read.extend(check_entry(entry) for entry in delivered.entries)

    async def look_back() -> None:
        for delivered in await adapter.read_history({}, 5):
            read.extend(check_entry(entry) for entry in delivered.entries)

    outgoing = Outgoing(acks=some, checked_acks=some, started_ids=b"1-1", keeps=some, read=2)
    return {
        "open": adapter.open,
        "begin": adapter.begin,
        "read": take,
        "read_again": take,
        "read_history": look_back,
        "exchange": lambda: adapter.exchange(outgoing),
        "keep": lambda: adapter.exchange(Outgoing(keeps=some, started_ids=b"")),
        "reject": lambda: adapter.reject(STREAM, one, reason="r", error="e"),
        "begin_isolated": lambda: adapter.begin_isolated(one),
        "end_isolated": lambda: adapter.end_isolated(one),
        "release": lambda: adapter.release(some),
        "leave": adapter.leave,
    }


def check_entry(entry: list[Any]) -> bytes:
    """What handlers are given is an entry, whatever the server sent."""
    entry_id, body, idle, deliveries = entry
    assert isinstance(entry_id, bytes) and isinstance(idle, int) and isinstance(deliveries, int)
    parse_entry_id(entry_id)
    assert body is None or (len(body) % 2 == 0 and all(isinstance(part, bytes) for part in body))
    return entry_id


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("topology", also_in_full("standalone", "cluster", "tls"))
@pytest.mark.parametrize("replies", replies_of(150, 12_000))
async def test_no_reply_breaks_a_worker(
    redis_86: StandaloneServers, topology: str, tls: Tls | None, replies: int, tally: Tally
) -> None:
    redis_86.flush()
    rng = random.Random(SEED)
    ends: Counter[str] = Counter()
    async with hostile(redis_86.master().port, SEED, tls) as host:
        host.is_cluster = topology == "cluster"
        endpoint = endpoint_at(host, tls, with_sentinel=False)
        resident = 0
        while host.count < replies:
            with Redis(port=redis_86.master().port) as redis:  # patient on a busy machine
                redis.delete(KEYS.stream)
                redis.xgroup_create(KEYS.stream, KEYS.group, "0", mkstream=True)
                for _ in range(20):
                    redis.xadd(KEYS.stream, {"f": "v"})
            adapter = RedisAdapter(
                WorkerPlace(endpoint=endpoint, keys=KEYS, consumer="me", patience_s=0.15)
            )
            adding = AddOptions(patience_s=0.02)
            producer = Producer(endpoint, KEYS.stream, adding)
            host.spoils = 0.0
            read: list[bytes] = []
            await adapter.open()
            await adapter.begin()
            host.spoils = rng.choice((0.2, 0.6, 1.0))
            names = sorted(worker_calls(adapter, read))
            for name in rng.sample(names * 3, len(names) * 3):
                ends[await attempt(worker_calls(adapter, read)[name]())] += 1
                ends[await attempt(producer.add({"f": "v"}, key=rng.choice((None, "k"))))] += 1
            await asyncio.wait_for(producer.close(), LONGEST_S)
            await asyncio.wait_for(adapter.close(), LONGEST_S)
            resident = resident or resident_bytes()
        assert resident_bytes() - resident < 64 * MIB
    tally("replies", host.count, f"worker, {topology}", ends)
    assert ends["InvalidReply"] > replies / 40


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("topology", also_in_full("standalone", "cluster", "sentinel"))
@pytest.mark.parametrize("replies", replies_of(100, 3_000))
async def test_no_reply_ends_what_listens_for_as_long_as_it_lasts(
    redis_86: StandaloneServers,
    topology: str,
    replies: int,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(keyspace_events, "LIFETIME_S", 0.5)
    for name in ("LONGEST_PAUSE_S", "SHORTEST_PAUSE_S", "CHECK_S", "REFUSED_S"):
        monkeypatch.setattr(idle_streams, name, 0.02)
    monkeypatch.setattr(idle_streams, "BLOCK_MS", 20)
    redis_86.flush()
    heard: list[object] = []
    async with hostile(redis_86.master().port, SEED) as host:
        host.is_cluster = topology == "cluster"
        pool, waker = ServerPool(), Waker(heard.append)
        server = await pool.server(endpoint_at(host, None, with_sentinel=topology == "sentinel"))
        expired: list[str] = []
        events = ExpiryEvents(server, expired.append)

        async def keep_listening() -> None:
            while True:
                await events.run()
                await asyncio.sleep(0.02)

        listening = asyncio.create_task(keep_listening())
        rng = random.Random(SEED)
        async with asyncio.timeout(replies):
            while host.count < replies:
                host.spoils = rng.choice((0.2, 0.6, 1.0))
                waker.watch("token", server, {KEYS.stream: EntryId.MAX})
                await asyncio.sleep(0.01)
        host.spoils = 0.0
        expired.clear()
        async with asyncio.timeout(LONGEST_S):
            while not waker.is_watched("token") or not expired:
                waker.watch("token", server, {KEYS.stream: EntryId.MAX})
                await asyncio.sleep(0.05)
        tally("replies", host.count, f"what listens, {topology}", Counter())
        await waker.close()
        await end_tasks([listening])
        await pool.close()
    assert ANSWERS.held == 0
    assert not [record for record in caplog.records if record.exc_info]  # an unhandled error
