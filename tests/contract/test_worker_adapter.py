"""What workers rely on: the double of a group does what every real server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.errors import NoSuchGroup
from pelops.worker.server.adapter import Delivered, DeliverySource, GroupAdapter, Outgoing
from tests.contract.scenes import MemoryScene, Scene, redis_scene
from tests.integration.worker_adapter import RETRY, STREAM, ids_of, last_ids


async def _read_until(adapter: GroupAdapter, wanted: Sequence[bytes]) -> list[Delivered]:
    """Read until these have come; a server without CLAIM looks for idle ones periodically."""
    found: list[Delivered] = []
    async with asyncio.timeout(60):
        while not set(wanted) <= set(ids_of(found)):
            found += await adapter.read(100, 200)
    return found


class AdapterContract:
    """Holds for every `GroupAdapter`."""

    async def test_a_new_entry_comes_once_with_its_fields_and_no_past(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        (entry_id,) = await scene.add()
        (delivered,) = await adapter.read(100, 1000)
        assert (delivered.key, delivered.source) == (STREAM, DeliverySource.NEW)
        assert delivered.entries == [[entry_id, [b"f", b"v"], 0, 0]]
        assert await adapter.read(100, 10) == []
        assert await scene.owners() == {entry_id: (b"me", 1)}

    async def test_no_more_come_than_were_asked_for(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        ids = await scene.add(5)
        assert ids_of(await adapter.read(2, 1000)) == ids[:2]
        assert ids_of((await adapter.exchange(Outgoing(read=2))).delivered) == ids[2:4]

    @pytest.mark.parametrize("to_retry", [False, True])
    async def test_a_read_that_waits_wakes_on_either_stream(
        self, scene: Scene, to_retry: bool
    ) -> None:
        adapter = await scene.adapter()
        reading = asyncio.create_task(_read_until(adapter, []))
        await reading
        reading = asyncio.create_task(adapter.read(100, 20_000))
        await asyncio.sleep(0)
        (entry_id,) = await scene.add(to_retry=to_retry)
        found = await reading or await adapter.read(100, 20_000)
        assert (found[0].key, ids_of(found)) == (RETRY if to_retry else STREAM, [entry_id])

    async def test_runs_of_one_entry_are_counted_by_all_until_one_ends(self, scene: Scene) -> None:
        one, other = await scene.adapter("one"), await scene.adapter("other")
        first, second = await scene.add(2)
        assert [await adapter.begin_isolated(first) for adapter in (one, other, one)] == [1, 2, 3]
        assert await other.begin_isolated(second) == 1
        await other.end_isolated(first)
        await other.end_isolated(first)
        assert [await one.begin_isolated(first), await one.begin_isolated(second)] == [1, 2]

    async def test_one_consumer_is_not_given_what_another_was(self, scene: Scene) -> None:
        one, other = await scene.adapter("one"), await scene.adapter("other")
        ids = await scene.add(4)
        assert ids_of(await one.read(2, 1000)) + ids_of(await other.read(2, 1000)) == ids

    async def test_what_was_idle_for_too_long_comes_to_others(self, scene: Scene) -> None:
        one, other = await scene.adapter("one"), await scene.adapter("other")
        idle, kept = await scene.add(2)
        await one.read(100, 1000)
        await scene.age(idle, "one")
        found = await _read_until(other, [idle])
        assert ids_of(found) == [idle]
        _, fields, idle_ms, deliveries = found[0].entries[0]
        assert (fields, deliveries) == ([b"f", b"v"], 1)
        assert idle_ms >= 60_000
        assert await scene.owners() == {idle: (b"other", 2), kept: (b"one", 1)}

    async def test_acknowledgements_report_how_many_had_been_pending(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        ids = await scene.add(3)
        await adapter.read(100, 1000)
        assert (await adapter.exchange(Outgoing(acks={STREAM: ids[:2]}))).acked == {STREAM: 2}
        assert (await adapter.exchange(Outgoing(acks={STREAM: ids}))).acked == {STREAM: 1}
        assert await scene.owners() == {}

    async def test_what_another_has_is_not_acknowledged_when_that_is_asked(
        self, scene: Scene
    ) -> None:
        adapter = await scene.adapter()
        mine, claimed = await scene.add(2)
        await adapter.read(100, 1000)
        await scene.give(claimed, "other")
        found = await adapter.exchange(Outgoing(checked_acks={STREAM: [mine, claimed]}))
        assert (found.acked, found.lost) == ({STREAM: 1}, {STREAM: {claimed}})
        assert list(await scene.owners()) == [claimed]

    async def test_a_heartbeat_keeps_own_entries_and_reports_lost_ones(self, scene: Scene) -> None:
        one, other = await scene.adapter("one"), await scene.adapter("other")
        kept, claimed, done = await scene.add(3)
        await one.read(100, 1000)
        await one.exchange(Outgoing(acks={STREAM: [done]}))
        await scene.age(kept, "one")
        await scene.give(claimed, "other")
        found = await one.exchange(Outgoing(keeps={STREAM: [kept, claimed, done]}))
        assert (found.lost, found.gone, found.problem) == ({STREAM: {claimed, done}}, {}, None)
        assert await other.read(100, 50) == []
        assert (await scene.owners())[kept] == (b"one", 1)

    async def test_a_deleted_entry_that_is_kept_becomes_a_dead_letter(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        gone, there = await scene.add(2)
        await adapter.read(100, 1000)
        await scene.delete(gone)
        found = await adapter.exchange(Outgoing(keeps={STREAM: [gone, there]}))
        assert (found.lost, found.gone) == ({}, {STREAM: {gone}})
        (letter,) = await scene.letters()
        assert (letter[b"_original_id"], letter[b"_reason"]) == (gone, b"PayloadGone")
        assert list(await scene.owners()) == [there]

    async def test_a_process_learns_what_its_predecessor_had_started(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        first = await adapter.begin()
        assert first.left == frozenset()
        await adapter.exchange(Outgoing(started_ids=b"1-1 2-2"))
        second = await (await scene.adapter()).begin()
        assert second.left == {b"1-1", b"2-2"}
        assert second.now_ms >= first.now_ms

    async def test_the_own_history_comes_in_pages_without_what_is_skipped(
        self, scene: Scene
    ) -> None:
        adapter, other = await scene.adapter(), await scene.adapter("other")
        ids = await scene.add(5)
        await adapter.read(100, 1000)
        (theirs,) = await scene.add()
        await other.read(100, 1000)
        (deleted, skipped), rest = ids[:2], ids[2:]
        await scene.delete(deleted)
        seen: list[bytes] = []
        after: dict[bytes, bytes] = {}
        while page := await adapter.read_history(after, 2, skip={skipped}):
            assert {one.source for one in page} == {DeliverySource.HISTORY}
            assert page[0].entries[0][3] == 1
            seen += ids_of(page)
            after |= last_ids(page)
        assert seen == rest
        assert [letter[b"_original_id"] for letter in await scene.letters()] == [deleted]
        untouched = {skipped: (b"me", 1), theirs: (b"other", 1)}
        assert await scene.owners() == untouched | {one: (b"me", 2) for one in rest}

    async def test_a_rejected_entry_is_a_dead_letter_and_not_pending(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        mine, claimed, gone = await scene.add(3)
        await adapter.read(100, 1000)
        await scene.give(claimed, "other")
        await scene.delete(gone)
        reported = {"reason": "Unwanted", "error": "nobody ordered it"}
        assert await adapter.reject(STREAM, mine, **reported)
        assert not await adapter.reject(STREAM, mine, **reported)
        assert not await adapter.reject(STREAM, claimed, **reported)
        assert not await adapter.reject(STREAM, gone, **reported)
        first, second = await scene.letters()
        at = (first.pop(b"_delivered_ms"), first.pop(b"_dead_lettered_ms"))
        assert all(one.isdigit() for one in at)
        assert first == {
            b"f": b"v",
            b"_original_id": mine,
            b"_stream": STREAM,
            b"_group": b"processing",
            b"_consumer": b"me",
            b"_delivery_count": b"1",
            b"_retry_count": b"0",
            b"_reason": b"Unwanted",
            b"_error": b"nobody ordered it",
        }
        assert (second[b"_original_id"], second[b"_reason"]) == (gone, b"PayloadGone")
        assert list(await scene.owners()) == [claimed]

    async def test_what_is_handed_back_comes_to_others_at_once(self, scene: Scene) -> None:
        one, other = await scene.adapter("one"), await scene.adapter("other")
        back, claimed = await scene.add(2)
        await one.read(100, 1000)
        await scene.give(claimed, "third")
        assert await one.release({STREAM: [back, claimed]}) == 1
        await _read_until(other, [back])
        owners = await scene.owners()
        assert (owners[back][0], owners[claimed][0]) == (b"other", b"third")

    async def test_what_is_offered_is_taken_as_far_as_its_owner_has_it(self, scene: Scene) -> None:
        dead, adapter = await scene.adapter("dead"), await scene.adapter()
        offered, claimed, deleted = await scene.add(3)
        await dead.read(100, 1000)
        await scene.give(claimed, "other")
        await scene.delete(deleted)
        await scene.offer("dead", [offered, claimed, deleted])
        (delivered,) = await _read_until(adapter, [offered])
        assert (delivered.key, delivered.source) == (STREAM, DeliverySource.HANDED_OVER)
        assert ids_of([delivered]) == [offered]
        owners = {one: owner for one, (owner, _) in (await scene.owners()).items()}
        assert owners == {offered: b"me", claimed: b"other", deleted: b"dead"}

    async def test_a_consumer_leaves_when_it_owns_nothing(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        ids = await scene.add()
        await adapter.read(100, 1000)
        assert not await adapter.leave()
        assert b"me" in await scene.consumers()
        await adapter.exchange(Outgoing(acks={STREAM: ids}, started_ids=b"1-1"))
        assert await adapter.leave()
        assert b"me" not in await scene.consumers()
        assert (await adapter.begin()).left == frozenset()

    async def test_a_group_that_is_gone_is_reported(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        ids = await scene.add()
        await adapter.read(100, 1000)
        await scene.destroy()
        with pytest.raises(NoSuchGroup):
            await adapter.read(100, 10)
        said = await adapter.exchange(Outgoing(keeps={STREAM: ids}))
        assert isinstance(said.problem, NoSuchGroup)

    async def test_only_a_cancelled_read_grows_the_epoch(self, scene: Scene) -> None:
        adapter = await scene.adapter()
        await scene.add(2)
        await adapter.read(1, 1000)
        await adapter.exchange(Outgoing(read=1))
        before = adapter.epoch
        await adapter.read(1, 10)
        assert adapter.epoch == before
        reading = asyncio.create_task(adapter.read(100, 20_000))
        await asyncio.sleep(0.2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await scene.add()
        seen = [*ids_of(await adapter.read_history({}, 100)), *ids_of(await adapter.read(100, 100))]
        assert len(seen) == 3
        assert adapter.epoch > before


class TestDouble(AdapterContract):
    @pytest.fixture
    def scene(self) -> Scene:
        return MemoryScene()


class TestServers(AdapterContract):
    @pytest.fixture
    async def scene(self, empty_redis: StandaloneServers) -> AsyncIterator[Scene]:
        async with redis_scene(empty_redis) as scene:
            yield scene
