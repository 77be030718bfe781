"""A whole worker while its server refuses commands, loses scripts, hangs up or is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import redis as redis_client

from local_cluster.redis_servers import ServerOptions, StandaloneServers, start_standalone
from pelops.domain.endpoint import RedisEndpoint
from pelops.worker import Entry, Reject
from tests.integration.redis_adapter import endpoint_of
from tests.integration.redis_proxy import proxied
from tests.integration.worker_adapter import KEYS, Behind, behind, grant, grant_all_but, on_port
from tests.redis_fixtures import RunRedis
from tests.serving_worker import HandlingTime, serving, until


@pytest.fixture(scope="module")
def any_redis() -> Iterator[StandaloneServers]:
    """One version is enough for this."""
    with start_standalone("8.6") as servers:
        yield servers


Trouble = Callable[[StandaloneServers, Behind], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def read_only(servers: StandaloneServers, redis: Behind) -> AsyncIterator[None]:
    servers.cli("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        servers.cli("REPLICAOF", "NO", "ONE")


@asynccontextmanager
async def busy(servers: StandaloneServers, redis: Behind) -> AsyncIterator[None]:
    servers.cli("CONFIG", "SET", "busy-reply-threshold", "1")
    script = asyncio.create_task(
        asyncio.to_thread(_loop_for_ever, servers.master().port, servers.password)
    )
    while "BUSY" not in await asyncio.to_thread(_ping, servers):
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        servers.cli("SCRIPT", "KILL")
        await script


def _loop_for_ever(port: int, password: str | None) -> None:
    killed = pytest.raises(redis_client.ResponseError, match="SCRIPT KILL")
    with redis_client.Redis(port=port, password=password) as client, killed:
        client.eval("while true do end", 0)


def _ping(servers: StandaloneServers) -> str:
    try:
        return servers.cli("PING")
    except Exception as refused:
        return str(refused)


@asynccontextmanager
async def without_rights(servers: StandaloneServers, redis: Behind) -> AsyncIterator[None]:
    grant_all_but(servers, "+xack", "+evalsha", "+eval")
    try:
        yield
    finally:
        grant(servers)


@asynccontextmanager
async def of_another_type(servers: StandaloneServers, redis: Behind) -> AsyncIterator[None]:
    await redis.run("RENAME", KEYS.started, f"{KEYS.started}:aside")
    await redis.run("SET", KEYS.started, "no hash")
    try:
        yield
    finally:
        await redis.run("RENAME", f"{KEYS.started}:aside", KEYS.started)


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (read_only, "READONLY"),
        (busy, "BUSY"),
        (without_rights, "PermissionDenied"),
        (of_another_type, "WrongType"),
    ],
)
async def test_refused_commands_are_reported_and_repeated_until_accepted(
    redis: Behind,
    empty_redis: StandaloneServers,
    endpoint: RedisEndpoint,
    trouble: Trouble,
    message: str,
) -> None:
    handling = HandlingTime()
    async with serving(endpoint, handling.handle, processing_timeout_ms=60_000) as (worker, heard):
        handling.gate.clear()
        ids = await redis.add(5)
        await until(lambda: len(handling.begun) == 5)
        async with trouble(empty_redis, redis):
            handling.gate.set()
            await until(lambda: heard.was_refused(message) and not worker.is_ready)
            assert set(heard.done) <= set(handling.done)
        ids += await redis.add(5)
        await until(lambda: worker.is_ready and len(heard.done) == 10)
        assert [entry_id.encode() for entry_id in handling.done] == ids
        assert await redis.pending() == []
    assert heard.letters == []


async def test_without_memory_what_there_is_is_handled_and_acknowledged(
    redis: Behind, empty_redis: StandaloneServers, endpoint: RedisEndpoint
) -> None:
    handling = HandlingTime()
    async with serving(endpoint, handling.handle) as (_, heard):
        await redis.add(1)
        await until(lambda: len(heard.done) == 1)
        handling.gate.clear()
        await redis.add(5)
        await until(lambda: len(handling.begun) == 6)
        await redis.add(5)
        empty_redis.cli("CONFIG", "SET", "maxmemory", "1")
        try:
            handling.gate.set()
            await until(lambda: len(heard.done) == 11)
            assert heard.was_refused("OOM")
        finally:
            empty_redis.cli("CONFIG", "SET", "maxmemory", "0")
        assert await redis.pending() == []


async def test_a_dead_letter_that_cannot_be_written_does_not_block_others(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    async def handle(entry: Entry) -> None:
        if entry["n"] == b"bad":
            raise Reject("Bad")

    await redis.run("SET", KEYS.dead_letter, "no stream")
    async with serving(endpoint, handle) as (worker, heard):
        bad = await redis.add(2, n="bad")
        await redis.add(5, n="good")
        await until(lambda: len(heard.done) == 5 and heard.was_refused("WrongType"))
        assert sorted(await redis.owners()) == sorted(bad)
        assert not worker.is_ready
        await redis.run("DEL", KEYS.dead_letter)
        await until(lambda: len(heard.letters) == 2 and worker.is_ready)
        assert await redis.pending() == []
    assert sorted(letter[b"_original_id"] for letter in await redis.letters()) == bad


async def test_scripts_that_the_server_forgot_are_sent_again(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    async def handle(entry: Entry) -> None:
        if entry["n"] == b"0":
            raise Reject("Bad")
        await asyncio.sleep(0.4)  # long enough for heartbeats

    async with serving(endpoint, handle) as (_, heard):
        for number in ("0", "1", "0", "1"):
            await redis.run("SCRIPT", "FLUSH")
            await redis.add(1, n=number)
        await until(lambda: len(heard.done) == len(heard.letters) == 2)
        assert await redis.pending() == []
    assert (heard.refusals, len(await redis.letters())) == ([], 2)


async def test_answers_that_are_lost_cost_repetitions_and_nothing_else(
    redis: Behind, empty_redis: StandaloneServers, endpoint: RedisEndpoint
) -> None:
    handled: list[bytes] = []

    async def handle(entry: Entry) -> None:
        if entry["n"] == b"bad":
            raise Reject("Bad")
        handled.append(entry.raw_id)

    async with proxied(empty_redis.master().port) as proxy:
        through = on_port(endpoint, proxy.port)
        async with serving(through, handle, processing_timeout_ms=60_000) as (worker, heard):
            await redis.add(1, n="bad")  # so that the server knows the script
            await until(lambda: heard.letters)
            proxy.lose_answers_to = {"XACK", "EVALSHA", "XREADGROUP"}
            added = await redis.add(20, n="good")
            bad = await redis.add(1, n="bad")
            await until(lambda: heard.was_refused("OutcomeUnknown"))
            proxy.lose_answers_to = set()
            await until(lambda: worker.is_ready)
            added += await redis.add(20, n="good")
            await until(lambda: set(handled) >= set(added))
            await until(_nothing_is_left(redis))
    originals = [letter[b"_original_id"] for letter in await redis.letters()]
    assert originals.count(bad[0]) == 1
    assert len(originals) == 2


def _nothing_is_left(redis: Behind) -> Callable[[], object]:
    async def owes_nothing() -> bool:
        lag = (await redis.run("XINFO", "GROUPS", KEYS.stream))[0]
        found = dict(zip(lag[::2], lag[1::2], strict=True))
        return bool(found[b"pending"] == 0 and found[b"lag"] == 0)

    return owes_nothing


@pytest.mark.parametrize("append_only", ["always", None])
async def test_a_server_that_restarts_in_mid_batch_is_worked_for_again(
    run_redis: RunRedis, append_only: str | None
) -> None:
    servers = run_redis("8.6", options=ServerOptions(append_only=append_only))
    handling = HandlingTime()
    async with behind(servers) as redis, serving(endpoint_of(servers), handling.handle) as served:
        worker, heard = served
        await redis.create()
        handling.gate.clear()
        ids = await redis.add(5)
        await until(lambda: len(handling.begun) == 5)
        await asyncio.to_thread(servers.master().restart)
        if append_only is None:
            await until(lambda: heard.was_refused("NoSuchGroup") and not worker.is_ready)
            assert await redis.run("EXISTS", KEYS.stream) == 0  # it is not the worker's to make
            await redis.create()
        more = await redis.add(5)
        await until(lambda: len(handling.begun) == 10)
        handling.gate.set()
        kept = [*ids, *more] if append_only else more
        await until(lambda: sorted(heard.done) == sorted(map(bytes.decode, kept)))
        await until(lambda: worker.is_ready)
        assert await redis.pending() == []
        assert await redis.letters() == []
