"""What a worker reads and says, on every server and with no right more than it needs."""

import asyncio

import pytest

from pelops.worker.server.adapter import DeliverySource, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.worker_adapter import (
    KEYS,
    RETRY,
    STREAM,
    Behind,
    ids_of,
    last_ids,
)


async def test_new_entries_come_with_all_their_fields_and_no_past(
    redis: Behind, adapter: RedisAdapter
) -> None:
    (entry_id,) = await redis.add(a="1", b="")
    (delivered,) = await adapter.read(100, 1000)
    assert (delivered.key, delivered.source) == (STREAM, DeliverySource.NEW)
    assert delivered.entries == [[entry_id, [b"a", b"1", b"b", b""], 0, 0]]


async def test_a_blocked_read_wakes_on_every_stream_of_the_group(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.create(KEYS.retry, KEYS.offer_stream)
    for stream in (KEYS.stream, KEYS.retry):
        reading = asyncio.create_task(adapter.read(100, 20_000))
        await redis.add(stream=stream)
        (delivered,) = await reading
        assert delivered.key == stream.encode()


async def test_a_missing_stream_does_not_block_reads_of_the_others(
    redis: Behind, adapter: RedisAdapter
) -> None:
    await redis.add()
    assert len(ids_of(await adapter.read(100, 1000))) == 1
    assert await adapter.read(100, 1) == []


async def test_a_read_of_an_empty_stream_ends_after_its_time(adapter: RedisAdapter) -> None:
    for _ in range(3):
        assert await adapter.read(100, 20) == []


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


async def test_an_acknowledgement_reports_how_many_had_been_pending(
    redis: Behind, adapter: RedisAdapter
) -> None:
    ids = await redis.add(3)
    await adapter.read(100, 1000)
    assert (await adapter.exchange(Outgoing(acks={STREAM: ids[:2]}))).acked == {STREAM: 2}
    assert (await adapter.exchange(Outgoing(acks={STREAM: ids}))).acked == {STREAM: 1}


async def test_entries_claimed_by_another_consumer_are_not_refreshed_or_acknowledged(
    redis: Behind, adapter: RedisAdapter
) -> None:
    mine, claimed, done = await redis.add(3)
    await adapter.read(100, 1000)
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "other", 0, claimed, "JUSTID")
    await redis.run("XACK", KEYS.stream, KEYS.group, done)
    asked = {STREAM: [mine, claimed, done]}
    assert (await adapter.exchange(Outgoing(keeps=asked))).lost == {STREAM: {claimed, done}}
    found = await adapter.exchange(Outgoing(checked_acks=asked))
    assert (found.acked, found.lost) == ({STREAM: 1}, {STREAM: {claimed, done}})
    assert await redis.owners() == {claimed: b"other"}


async def test_a_heartbeat_resets_the_idle_time_and_not_the_delivery_count(
    redis: Behind, adapter: RedisAdapter
) -> None:
    ids = await redis.add(2)
    await adapter.read(100, 1000)
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "me", 0, *ids, "IDLE", 60_000, "JUSTID")
    await adapter.exchange(Outgoing(keeps={STREAM: [ids[0]]}))
    kept, other = await redis.pending()
    assert kept[2] < 60_000 <= other[2]
    assert kept[3] == 1


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


async def test_a_process_learns_what_its_predecessor_had_started(
    redis: Behind, adapter: RedisAdapter
) -> None:
    assert (await adapter.begin()).left == frozenset()
    await adapter.exchange(Outgoing(started_ids=b"1-1 2-2"))
    boot = await adapter.begin()
    assert boot.left == {b"1-1", b"2-2"}
    assert await redis.run("HGET", KEYS.worker_state, "boot:me") == str(boot.now_ms).encode()
    seconds, _ = await redis.run("TIME")
    assert abs(boot.now_ms / 1000 - int(seconds)) < 60


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


async def test_the_evidence_of_a_crash_is_passed_over_and_not_refreshed(
    redis: Behind, adapter: RedisAdapter
) -> None:
    evidence, other = await redis.add(2)
    await redis.deliver("me")
    aging = (evidence, other, "IDLE", 60_000, "JUSTID")
    await redis.run("XCLAIM", KEYS.stream, KEYS.group, "me", 0, *aging)
    assert ids_of(await adapter.read_history({}, 1, skip={evidence})) == [other]
    assert await adapter.read_history({}, 9, skip={evidence, other}) == []
    idle_ms = {entry_id: idle for entry_id, _, idle, _ in await redis.pending()}
    assert idle_ms[evidence] >= 60_000 > idle_ms[other]


async def test_a_dangling_entry_in_the_history_is_recorded(
    redis: Behind, adapter: RedisAdapter
) -> None:
    gone, there = await redis.add(2)
    await redis.deliver("me")
    await redis.run("XDEL", KEYS.stream, gone)
    assert ids_of(await adapter.read_history({}, 100)) == [there]
    (letter,), (event,) = await redis.letters(), await redis.ledger()
    assert (letter[b"_original_id"], letter[b"_reason"]) == (gone, b"PayloadGone")
    assert (event[b"kind"], event[b"consumer"]) == (b"payload-gone", b"me")
    assert gone in event
    assert list(await redis.owners()) == [there]


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


async def test_a_read_that_was_cancelled_shows_in_the_epoch_and_loses_nothing(
    redis: Behind, adapter: RedisAdapter
) -> None:
    before = adapter.epoch
    reading = asyncio.create_task(adapter.read(100, 20_000))
    while b"cmd=xreadgroup" not in await redis.run("CLIENT", "LIST"):
        await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    (entry_id,) = await redis.add()
    seen = ids_of(await adapter.read_history({}, 100)) + ids_of(await adapter.read(100, 100))
    assert seen == [entry_id]
    assert adapter.epoch > before
