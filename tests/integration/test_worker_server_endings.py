"""How entries and workers end: dead letters, what is handed back, and groups that go."""

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.errors import PermissionDenied, UnsupportedServer
from pelops.redis_streams.access import Feature
from pelops.worker.server.adapter import Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.worker_adapter import (
    KEYS,
    STREAM,
    Behind,
    grant,
    grant_all_but,
    ids_of,
    opened,
    worker_endpoint,
)


async def test_a_rejected_entry_is_a_dead_letter_as_the_operators_are(
    redis: Behind, adapter: RedisAdapter
) -> None:
    (entry_id,) = await redis.add(user="1", _original_id="1-1", _retry_count="2")
    await adapter.read(100, 1000)
    assert await adapter.reject(STREAM, entry_id, reason="Unreadable", error="ValueError: no JSON")
    (letter,), (event,) = await redis.letters(), await redis.ledger()
    assert letter.pop(b"_delivered_ms") <= letter.pop(b"_dead_lettered_ms")
    assert letter == {
        b"user": b"1",
        b"_original_id": b"1-1",
        b"_stream": STREAM,
        b"_group": b"processing",
        b"_consumer": b"me",
        b"_delivery_count": b"1",
        b"_retry_count": b"2",
        b"_reason": b"Unreadable",
        b"_error": b"ValueError: no JSON",
    }
    assert (event[b"kind"], event[b"reason"]) == (b"dead-lettered", b"Unreadable")
    assert event[entry_id].split()[1:4] == [b"1-1", b"2", b"1"]
    assert await redis.pending() == []


async def test_without_a_stream_for_offers_older_servers_age_what_is_handed_back(
    redis: Behind, adapter: RedisAdapter, empty_redis: StandaloneServers
) -> None:
    """Redis from 8.4 on has neither a way to give an entry back, nor a cheap one to age it."""
    first, second, claimed = await redis.add(3)
    await adapter.read(100, 1000)
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "third", 0, claimed, "JUSTID")
    given = await adapter.release({STREAM: [first, second, claimed]})
    async with opened(worker_endpoint(empty_redis), "next") as other:
        taken = ids_of(await other.read(100, 1000 if given else 1))
    assert taken == [first, second][: given or 0]
    assert given == (0 if empty_redis.version.startswith("8") else 2)


async def test_a_worker_that_owns_nothing_leaves_and_one_that_owns_something_stays(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.create(KEYS.offer_stream)
    await adapter.begin()
    (entry_id,) = await redis.add()
    await adapter.read(100, 1000)
    assert not await adapter.leave()
    assert b"me" in await redis.consumers()
    await adapter.exchange(Outgoing(acks={STREAM: [entry_id]}, started_ids=b""))
    assert await adapter.leave()
    assert await redis.consumers() | await redis.consumers(KEYS.offer_stream) == set()
    assert await redis.run("HGET", KEYS.worker_state, "boot:me") is None
    assert await redis.run("HEXISTS", KEYS.started, "me") == 0
    assert [event[b"kind"] for event in await redis.ledger()] == [b"consumer-removed"]


async def test_a_worker_that_owns_a_copy_in_the_retry_stream_stays(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.create(KEYS.retry)
    await redis.add(1, KEYS.retry)
    await adapter.read(100, 1000)
    assert not await adapter.leave()


async def test_acknowledged_entries_are_deleted_on_request_where_that_can_be_done(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    ids = await redis.add(2)
    can = empty_redis.version.startswith("8")
    grant(empty_redis, features={Feature.DELETING} if can else ())
    endpoint = worker_endpoint(empty_redis)
    if not can:
        with pytest.raises((UnsupportedServer, PermissionDenied)):
            async with opened(endpoint, deletes=True):
                pass
        return
    async with opened(endpoint, deletes=True) as adapter:
        await adapter.read(100, 1000)
        assert (await adapter.exchange(Outgoing(acks={STREAM: ids[:1]}))).acked == {STREAM: 1}
        await adapter.exchange(Outgoing(checked_acks={STREAM: ids[1:]}))
    assert await redis.run("XLEN", KEYS.stream) == 0


async def test_what_the_rights_forbid_is_named(
    redis: Behind, adapter: RedisAdapter, empty_redis: StandaloneServers
) -> None:
    (entry_id,) = await redis.add()
    await adapter.read(100, 1000)
    grant_all_but(empty_redis, "+xadd")
    with pytest.raises(PermissionDenied, match="xadd"):
        await adapter.reject(STREAM, entry_id, reason="r", error="e")
    assert list(await redis.owners()) == [entry_id]
