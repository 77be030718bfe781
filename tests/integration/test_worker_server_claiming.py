"""Idle entries of other workers come to a worker, by CLAIM or by the adapter's own claims."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.records.ledger import MOST_DELIVERIES
from pelops.worker.server.adapter import Delivered, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.worker_adapter import (
    KEYS,
    RETRY,
    Behind,
    ids_of,
    opened,
    worker_endpoint,
)

# Longer than any test, so that nothing is idle but what was made so.
LIMIT_MS = 60_000
SHORT_MS = 200


@pytest.fixture
async def adapter(redis: Behind, empty_redis: StandaloneServers) -> AsyncIterator[RedisAdapter]:
    async with opened(worker_endpoint(empty_redis), processing_timeout_ms=LIMIT_MS) as adapter:
        yield adapter


async def age(redis: Behind, *ids: bytes, stream: str = KEYS.stream) -> None:
    """Make a dead worker's entries look idle."""
    await redis.run("XCLAIM", stream, KEYS.group, "dead", 0, *ids, "IDLE", LIMIT_MS, "JUSTID")


async def read_until(adapter: RedisAdapter, count: int) -> list[Delivered]:
    found: list[Delivered] = []
    while len(ids_of(found)) < count:
        found += await adapter.read(100, 1000)
    return found


async def test_entries_that_become_idle_while_a_read_waits_come_with_it(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    ids = await redis.add(3)
    await redis.deliver("dead")
    async with opened(worker_endpoint(empty_redis), processing_timeout_ms=SHORT_MS) as adapter:
        assert ids_of(await read_until(adapter, 3)) == ids


async def test_the_retry_stream_is_claimed_from_as_well(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.create(KEYS.retry)
    ids = await redis.add(2, KEYS.retry)
    await redis.deliver("dead", stream=KEYS.retry)
    await age(redis, *ids, stream=KEYS.retry)
    (delivered,) = await read_until(adapter, 2)
    assert (delivered.key, ids_of([delivered])) == (RETRY, ids)


async def test_a_round_trip_that_reads_also_claims(redis: Behind, adapter: RedisAdapter) -> None:
    ids = await redis.add(2)
    await redis.deliver("dead")
    await age(redis, *ids)
    found: list[bytes] = []
    while len(found) < len(ids):
        found += ids_of((await adapter.exchange(Outgoing(read=10))).delivered)
        await asyncio.sleep(0.01)
    assert found == ids


async def test_more_than_a_page_of_pending_entries_is_passed_over_in_turns(
    redis: Behind, adapter: RedisAdapter
) -> None:
    ids = await redis.add(1200)
    await redis.deliver("alive", 1199)
    await redis.deliver("dead")
    await age(redis, ids[-1])
    assert ids_of(await read_until(adapter, 1)) == [ids[-1]]


async def test_all_large_bodies_are_claimed_a_few_at_a_time(
    redis: Behind, adapter: RedisAdapter
) -> None:
    ids = await redis.add(8, body="x" * 200_000)
    await redis.deliver("dead")
    await age(redis, *ids)
    first = await adapter.read(100, 1000)
    rest = await read_until(adapter, len(ids) - len(ids_of(first))) if len(first) < 8 else []
    assert sorted(ids_of(first) + ids_of(rest)) == ids


async def test_an_idle_entry_whose_body_is_gone_stays_until_it_is_recorded(
    redis: Behind, adapter: RedisAdapter
) -> None:
    gone, there = await redis.add(2)
    await redis.deliver("dead")
    await age(redis, gone, there)
    await redis.run("XDEL", KEYS.stream, gone)
    assert ids_of(await read_until(adapter, 1)) == [there]
    recorded = [letter[b"_original_id"] for letter in await redis.letters()]
    still_pending = gone in await redis.owners()
    assert (recorded == [gone]) != still_pending
    assert [event[b"consumer"] for event in await redis.ledger()] == [b"dead"] * len(recorded)


async def test_an_entry_is_claimed_however_often_it_was_delivered(
    redis: Behind, adapter: RedisAdapter
) -> None:
    """XNACK FATAL and XCLAIM set 2^63 - 1; one more delivery wraps to a negative number."""
    (idle,) = await redis.add(1)
    await redis.deliver("dead")
    huge = ("IDLE", LIMIT_MS, "RETRYCOUNT", 2**63 - 1, "JUSTID")
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "dead", 0, idle, *huge)
    (delivered,) = await read_until(adapter, 1)
    assert abs(delivered.entries[0][3]) >= MOST_DELIVERIES
    (history,) = await adapter.read_history({}, 100)
    assert ids_of([history]) == [idle]
    assert await redis.owners() == {idle: b"me"}
