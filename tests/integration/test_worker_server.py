"""What a worker reads and says, beside what `tests/contract` shows for each server."""

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.errors import RedisUnavailable
from pelops.worker.server.adapter import DeliverySource, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.worker_adapter import (
    KEYS,
    RETRY,
    STREAM,
    Behind,
    ids_of,
    last_ids,
    opened,
    worker_endpoint,
)


async def test_a_missing_stream_does_not_block_reads_of_the_others(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.add()
    assert len(ids_of(await adapter.read(100, 1000))) == 1
    assert await adapter.read(100, 1) == []


async def test_one_round_trip_acknowledges_marks_keeps_and_reads(
    redis: Behind, adapter: RedisAdapter
) -> None:
    first, second = await redis.add(2)
    await adapter.read(100, 1000)
    (third,) = await redis.add()
    await adapter.exchange(Outgoing(read=1))  # the server is known from now on
    said = Outgoing(
        acks={STREAM: [first]}, started_ids=b"x y", keeps={STREAM: [second, third]}, read=9
    )
    (fourth,) = await redis.add()
    found = await adapter.exchange(said)
    assert (found.acked, found.lost, found.gone) == ({STREAM: 1}, {}, {})
    assert ids_of(found.delivered) == [fourth]
    assert await redis.run("HGET", KEYS.started, "me") == b"x y"
    assert sorted(await redis.owners()) == [second, third, fourth]


@pytest.mark.full
async def test_thousands_of_entries_are_kept_and_acknowledged_together(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.run("EVAL", _ADD_MANY, 1, KEYS.stream, 9000)
    ids = ids_of(await adapter.read(9000, 1000))
    assert ids_of(await adapter.read_history({}, 9000)) == ids
    assert (await adapter.exchange(Outgoing(keeps={STREAM: ids}))).lost == {}
    assert (await adapter.exchange(Outgoing(checked_acks={STREAM: ids}))).acked == {STREAM: 9000}


_ADD_MANY = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'f', 'v') end"


async def test_the_own_history_comes_page_by_page_and_is_refreshed(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.create(KEYS.retry)
    ids = await redis.add(5)
    await redis.add(1, KEYS.retry)
    await redis.deliver("me")
    await redis.deliver("me", stream=KEYS.retry)
    await redis.deliver("other")
    page = await adapter.read_history({}, 3)
    assert {some.key: len(some.entries) for some in page} == {STREAM: 3, RETRY: 1}
    assert all(some.source == DeliverySource.HISTORY for some in page)
    assert page[0].entries[0][0::3] == [ids[0], 1]
    page = await adapter.read_history(last_ids(page), 3)
    assert ids_of(page) == ids[3:]
    assert await adapter.read_history({**last_ids(page), RETRY: b"9999999999999-0"}, 3) == []


async def test_a_heartbeat_records_an_entry_deleted_in_flight(
    redis: Behind, adapter: RedisAdapter
) -> None:
    gone, there = await redis.add(2)
    await adapter.read(100, 1000)
    await redis.run("XDEL", KEYS.stream, gone)
    found = await adapter.exchange(Outgoing(keeps={STREAM: [gone, there]}))
    assert (found.lost, found.gone) == ({}, {STREAM: {gone}})
    assert [letter[b"_original_id"] for letter in await redis.letters()] == [gone]
    assert [event[b"kind"] for event in await redis.ledger()] == [b"payload-gone"]
    assert list(await redis.owners()) == [there]


async def test_only_offered_entries_that_their_owner_still_has_are_claimed(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.create(KEYS.offer_stream)
    offered, claimed, deleted, read_again = await redis.add(4)
    await redis.deliver("dead")
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "other", 0, claimed, "JUSTID")
    huge = ("RETRYCOUNT", 2**63 - 1, "JUSTID")
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "dead", 0, offered, *huge)
    await redis.run("XDEL", KEYS.stream, deleted)
    delivered_ms = await redis.now_ms()
    while (cutoff_ms := await redis.now_ms()) <= delivered_ms:
        pass
    # A process that restarted under the same consumer name holds this one.
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "dead", 0, read_again, "JUSTID")
    ids = b" ".join((offered, claimed, deleted, read_again)).decode()
    await redis.add(2, KEYS.offer_stream, consumer="dead", before=str(cutoff_ms), ids=ids)
    (delivered,) = await adapter.read(100, 1000)
    assert (delivered.key, delivered.source) == (STREAM, DeliverySource.HANDED_OVER)
    assert [entry[0:2] + entry[3:] for entry in delivered.entries] == [
        [offered, [b"f", b"v"], 2**53]
    ]
    owners = {offered: b"me", claimed: b"other", deleted: b"dead", read_again: b"dead"}
    assert await redis.owners() == owners
    assert await redis.pending(KEYS.offer_stream) == []


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
