"""What a worker's adapter makes of lost answers, refusals, restarts and failovers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from local_cluster.redis_servers import ServerOptions, StandaloneServers
from pelops.errors import AuthenticationFailed, OutcomeUnknown, RedisError, RedisUnavailable
from pelops.worker.server.adapter import Exchanged, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.redis_adapter import endpoint_of
from tests.integration.redis_proxy import Proxy, proxied
from tests.integration.worker_adapter import (
    KEYS,
    STREAM,
    Behind,
    behind,
    ids_of,
    on_port,
    opened,
    worker_endpoint,
)
from tests.redis_fixtures import RunRedis


@pytest.fixture
async def proxy(empty_redis: StandaloneServers) -> AsyncIterator[Proxy]:
    async with proxied(empty_redis.master().port) as proxy:
        yield proxy


@pytest.fixture
async def adapter(
    redis: Behind, empty_redis: StandaloneServers, proxy: Proxy
) -> AsyncIterator[RedisAdapter]:
    async with opened(on_port(worker_endpoint(empty_redis), proxy.port)) as adapter:
        yield adapter


async def read_in_the_end(adapter: RedisAdapter) -> list[bytes]:
    """What comes once the server serves again."""
    while True:
        try:
            found = ids_of(await adapter.read(100, 1000))
        except RedisError:
            continue
        if found:
            return found


async def say_in_the_end(adapter: RedisAdapter, outgoing: Outgoing) -> Exchanged:
    while True:
        try:
            found = await adapter.exchange(outgoing)
        except RedisError:
            continue
        if found.problem is None:
            return found


async def test_a_delivery_whose_answer_is_lost_is_found_in_the_history(
    redis: Behind, adapter: RedisAdapter, proxy: Proxy
) -> None:
    await adapter.read(100, 1)
    before = adapter.epoch
    ids = await redis.add(2)
    proxy.lose_answers_to = {"XREADGROUP"}
    with pytest.raises(OutcomeUnknown):
        await adapter.read(100, 1000)
    proxy.lose_answers_to = set()
    assert ids_of(await adapter.read_history({}, 100)) == ids
    assert adapter.epoch > before


async def test_an_acknowledgement_whose_answer_is_lost_may_be_repeated(
    redis: Behind, adapter: RedisAdapter, proxy: Proxy
) -> None:
    (entry_id,) = await redis.add()
    await adapter.read(100, 1000)
    before = adapter.epoch
    proxy.lose_answers_to = {"XACK"}
    with pytest.raises(OutcomeUnknown):
        await adapter.exchange(Outgoing(acks={STREAM: [entry_id]}))
    proxy.lose_answers_to = set()
    assert await redis.pending() == []
    assert (await adapter.exchange(Outgoing(acks={STREAM: [entry_id]}))).acked == {STREAM: 0}
    assert adapter.epoch > before


async def test_a_dead_letter_whose_answer_is_lost_is_not_written_twice(
    redis: Behind, adapter: RedisAdapter, proxy: Proxy
) -> None:
    (entry_id,) = await redis.add()
    await adapter.read(100, 1000)
    await adapter.begin()
    proxy.lose_answers_to = {"EVAL", "EVALSHA"}
    with pytest.raises(OutcomeUnknown):
        while True:  # the first reply may only be that the script is missing
            await adapter.reject(STREAM, entry_id, reason="r", error="e")
    proxy.lose_answers_to = {"EVAL"}
    with pytest.raises(OutcomeUnknown):
        await adapter.reject(STREAM, entry_id, reason="r", error="e")
    proxy.lose_answers_to = set()
    assert not await adapter.reject(STREAM, entry_id, reason="r", error="e")
    assert len(await redis.letters()) == 1


async def test_connections_that_are_cut_are_made_again(
    redis: Behind, adapter: RedisAdapter, proxy: Proxy
) -> None:
    before = adapter.epoch
    await proxy.close()
    (entry_id,) = await redis.add()
    assert await read_in_the_end(adapter) == [entry_id]
    assert (await adapter.exchange(Outgoing(acks={STREAM: [entry_id]}))).acked == {STREAM: 1}
    assert adapter.epoch == before + 2


async def test_a_restart_that_forgets_scripts_and_connections_is_survived(
    run_redis: RunRedis,
) -> None:
    servers = run_redis("8.6", options=ServerOptions(append_only="always"))
    async with behind(servers) as redis:
        await redis.create()
        async with opened(endpoint_of(servers)) as adapter:
            await redis.add()
            (held,) = ids_of(await adapter.read(100, 1000))
            reading = asyncio.create_task(read_in_the_end(adapter))
            servers.master().restart()
            found = await say_in_the_end(adapter, Outgoing(keeps={STREAM: [held]}))
            assert found.lost == {}
            assert (await say_in_the_end(adapter, Outgoing(acks={STREAM: [held]}))).acked
            (entry_id,) = await redis.add()
            assert await reading == [entry_id]


async def test_commands_refused_by_a_demoted_master_can_be_repeated(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    async with opened(worker_endpoint(empty_redis)) as adapter:
        (held,) = await redis.add()
        await adapter.read(100, 1000)
        reading = asyncio.create_task(adapter.read(100, 20_000))
        while "xreadgroup" not in empty_redis.cli("CLIENT", "LIST"):
            await asyncio.sleep(0.01)
        empty_redis.cli("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(RedisUnavailable):
                await reading
            refused = await adapter.exchange(Outgoing(acks={STREAM: [held]}))
            assert isinstance(refused.problem, RedisUnavailable)
        finally:
            empty_redis.cli("REPLICAOF", "NO", "ONE")
        assert (await adapter.exchange(Outgoing(acks={STREAM: [held]}))).acked == {STREAM: 1}
        (entry_id,) = await redis.add()
        assert await read_in_the_end(adapter) == [entry_id]


async def test_without_memory_acknowledgements_still_count_and_the_refusal_is_reported(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    async with opened(worker_endpoint(empty_redis)) as adapter:
        ids = await redis.add(2)
        await adapter.read(100, 1000)
        empty_redis.cli("CONFIG", "SET", "maxmemory", "1")
        try:
            found = await adapter.exchange(Outgoing(acks={STREAM: ids[:1]}, started_ids=b"x"))
            with pytest.raises(RedisUnavailable, match="OOM"):
                await adapter.reject(STREAM, ids[1], reason="r", error="e")
        finally:
            empty_redis.cli("CONFIG", "SET", "maxmemory", "0")
        assert found.acked == {STREAM: 1}
        assert isinstance(found.problem, RedisUnavailable)
        assert list(await redis.owners()) == ids[1:]
        assert await redis.letters() == []


async def test_a_server_that_loads_its_data_is_waited_for(run_redis: RunRedis) -> None:
    servers = run_redis("8.6", options=ServerOptions(config=_LOADS_SLOWLY))
    async with behind(servers) as redis:
        await redis.create()
        await redis.run("EVAL", _ADD_KEYS, 1, KEYS.stream)
        (entry_id,) = await redis.add()
        await redis.run("SAVE")
        async with opened(endpoint_of(servers)) as adapter:
            servers.master().kill()
            restarting = asyncio.create_task(asyncio.to_thread(servers.master().start))
            refusals: list[str] = []
            while not (found := await _tried(adapter, refusals)):
                pass
            await restarting
            assert found == [entry_id]
            assert any("LOADING" in refusal for refusal in refusals), refusals


_LOADS_SLOWLY = {
    "key-load-delay": "20000",
    "loading-process-events-interval-bytes": "1024",
    "rdbcompression": "no",
}
_ADD_KEYS = """
for i = 1, 50 do redis.call('SET', '{orders:events}:' .. i, string.rep('x', 2000)) end
"""


async def _tried(adapter: RedisAdapter, refusals: list[str]) -> list[bytes]:
    try:
        return ids_of(await adapter.read(100, 1000))
    except RedisError as error:
        refusals.append(str(error))
        return []


async def test_wrong_credentials_are_said_to_be_wrong(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    endpoint = endpoint_of(empty_redis, username="a-worker", password="wrong")
    with pytest.raises(AuthenticationFailed):
        async with opened(endpoint):
            pass


async def test_two_processes_of_one_name_are_given_different_new_entries(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    ids = await redis.add(4)
    endpoint = worker_endpoint(empty_redis)
    async with opened(endpoint) as one, opened(endpoint) as other:
        found = ids_of(await one.read(2, 100)) + ids_of(await other.read(2, 100))
    assert found == ids
