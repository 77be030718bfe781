"""What workers rely on: the double of a group does what every real server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.errors import NoSuchGroup
from pelops.worker.server.adapter import Delivered, Door, Outgoing, Source
from tests.contract.scenes import MemoryScene, Scene, redis_scene
from tests.integration.worker_door import RETRY, STREAM, ids_of, last_ids


async def _read_until(door: Door, wanted: Sequence[bytes]) -> list[Delivered]:
    """Read until these have come; a server without CLAIM looks for idle ones now and then."""
    found: list[Delivered] = []
    async with asyncio.timeout(60):
        while not set(wanted) <= set(ids_of(found)):
            found += await door.read(100, 200)
    return found


class DoorContract:
    """Holds for every `Door`."""

    async def test_a_new_entry_comes_once_with_its_fields_and_no_past(self, scene: Scene) -> None:
        door = await scene.door()
        (entry_id,) = await scene.add()
        (delivered,) = await door.read(100, 1000)
        assert (delivered.key, delivered.source) == (STREAM, Source.NEW)
        assert delivered.entries == [[entry_id, [b"f", b"v"], 0, 0]]
        assert await door.read(100, 10) == []
        assert await scene.owners() == {entry_id: (b"me", 1)}

    async def test_no_more_come_than_were_asked_for(self, scene: Scene) -> None:
        door = await scene.door()
        ids = await scene.add(5)
        assert ids_of(await door.read(2, 1000)) == ids[:2]
        assert ids_of((await door.exchange(Outgoing(read=2))).delivered) == ids[2:4]

    @pytest.mark.parametrize("to_retry", [False, True])
    async def test_a_read_that_waits_wakes_on_either_stream(
        self, scene: Scene, to_retry: bool
    ) -> None:
        door = await scene.door()
        reading = asyncio.create_task(_read_until(door, []))
        await reading
        reading = asyncio.create_task(door.read(100, 20_000))
        await asyncio.sleep(0)
        (entry_id,) = await scene.add(to_retry=to_retry)
        found = await reading or await door.read(100, 20_000)
        assert (found[0].key, ids_of(found)) == (RETRY if to_retry else STREAM, [entry_id])

    async def test_runs_of_one_entry_are_counted_by_all_until_one_ends(self, scene: Scene) -> None:
        one, other = await scene.door("one"), await scene.door("other")
        first, second = await scene.add(2)
        assert [await door.begin_alone(first) for door in (one, other, one)] == [1, 2, 3]
        assert await other.begin_alone(second) == 1
        await other.end_alone(first)
        await other.end_alone(first)
        assert [await one.begin_alone(first), await one.begin_alone(second)] == [1, 2]

    async def test_one_consumer_is_not_given_what_another_was(self, scene: Scene) -> None:
        one, other = await scene.door("one"), await scene.door("other")
        ids = await scene.add(4)
        assert ids_of(await one.read(2, 1000)) + ids_of(await other.read(2, 1000)) == ids

    async def test_what_was_idle_for_too_long_comes_to_others(self, scene: Scene) -> None:
        one, other = await scene.door("one"), await scene.door("other")
        idle, kept = await scene.add(2)
        await one.read(100, 1000)
        await scene.age(idle, "one")
        found = await _read_until(other, [idle])
        assert ids_of(found) == [idle]
        _, fields, idle_ms, deliveries = found[0].entries[0]
        assert (fields, deliveries) == ([b"f", b"v"], 1)
        assert idle_ms >= 60_000
        assert await scene.owners() == {idle: (b"other", 2), kept: (b"one", 1)}

    async def test_acknowledgements_tell_how_many_had_been_pending(self, scene: Scene) -> None:
        door = await scene.door()
        ids = await scene.add(3)
        await door.read(100, 1000)
        assert (await door.exchange(Outgoing(acks={STREAM: ids[:2]}))).acked == {STREAM: 2}
        assert (await door.exchange(Outgoing(acks={STREAM: ids}))).acked == {STREAM: 1}
        assert await scene.owners() == {}

    async def test_what_another_has_is_not_acknowledged_when_that_is_asked(
        self, scene: Scene
    ) -> None:
        door = await scene.door()
        mine, robbed = await scene.add(2)
        await door.read(100, 1000)
        await scene.give(robbed, "other")
        found = await door.exchange(Outgoing(checked_acks={STREAM: [mine, robbed]}))
        assert (found.acked, found.lost) == ({STREAM: 1}, {STREAM: {robbed}})
        assert list(await scene.owners()) == [robbed]

    async def test_a_heartbeat_keeps_what_is_ours_and_tells_what_is_not(self, scene: Scene) -> None:
        one, other = await scene.door("one"), await scene.door("other")
        kept, robbed = await scene.add(2)
        await one.read(100, 1000)
        await scene.age(kept, "one")
        await scene.give(robbed, "other")
        found = await one.exchange(Outgoing(keeps={STREAM: [kept, robbed]}))
        assert (found.lost, found.gone, found.problem) == ({STREAM: {robbed}}, {}, None)
        assert await other.read(100, 50) == []
        assert (await scene.owners())[kept] == (b"one", 1)

    async def test_a_deleted_entry_that_is_kept_becomes_a_dead_letter(self, scene: Scene) -> None:
        door = await scene.door()
        gone, there = await scene.add(2)
        await door.read(100, 1000)
        await scene.delete(gone)
        found = await door.exchange(Outgoing(keeps={STREAM: [gone, there]}))
        assert (found.lost, found.gone) == ({}, {STREAM: {gone}})
        (letter,) = await scene.letters()
        assert (letter[b"_original_id"], letter[b"_reason"]) == (gone, b"PayloadGone")
        assert list(await scene.owners()) == [there]

    async def test_a_process_learns_what_its_predecessor_had_started(self, scene: Scene) -> None:
        door = await scene.door()
        first = await door.begin()
        assert first.left == frozenset()
        await door.exchange(Outgoing(marks=b"1-1 2-2"))
        second = await (await scene.door()).begin()
        assert second.left == {b"1-1", b"2-2"}
        assert second.now_ms >= first.now_ms

    async def test_the_own_history_comes_in_pages_without_what_is_skipped(
        self, scene: Scene
    ) -> None:
        door, other = await scene.door(), await scene.door("other")
        ids = await scene.add(5)
        await door.read(100, 1000)
        (theirs,) = await scene.add()
        await other.read(100, 1000)
        (deleted, skipped), rest = ids[:2], ids[2:]
        await scene.delete(deleted)
        seen: list[bytes] = []
        after: dict[bytes, bytes] = {}
        while page := await door.read_history(after, 2, skip={skipped}):
            assert {one.source for one in page} == {Source.HISTORY}
            assert page[0].entries[0][3] == 1
            seen += ids_of(page)
            after |= last_ids(page)
        assert seen == rest
        assert [letter[b"_original_id"] for letter in await scene.letters()] == [deleted]
        untouched = {skipped: (b"me", 1), theirs: (b"other", 1)}
        assert await scene.owners() == untouched | {one: (b"me", 2) for one in rest}

    async def test_a_rejected_entry_is_a_dead_letter_and_not_pending(self, scene: Scene) -> None:
        door = await scene.door()
        mine, robbed, gone = await scene.add(3)
        await door.read(100, 1000)
        await scene.give(robbed, "other")
        await scene.delete(gone)
        told = {"reason": "Unwanted", "error": "nobody ordered it"}
        assert await door.reject(STREAM, mine, **told)
        assert not await door.reject(STREAM, mine, **told)
        assert not await door.reject(STREAM, robbed, **told)
        assert not await door.reject(STREAM, gone, **told)
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
        assert list(await scene.owners()) == [robbed]

    async def test_what_is_handed_back_comes_to_others_at_once(self, scene: Scene) -> None:
        one, other = await scene.door("one"), await scene.door("other")
        back, robbed = await scene.add(2)
        await one.read(100, 1000)
        await scene.give(robbed, "third")
        assert await one.release({STREAM: [back, robbed]}) == 1
        await _read_until(other, [back])
        owners = await scene.owners()
        assert (owners[back][0], owners[robbed][0]) == (b"other", b"third")

    async def test_what_is_offered_is_taken_as_far_as_its_owner_has_it(self, scene: Scene) -> None:
        dead, door = await scene.door("dead"), await scene.door()
        offered, robbed, deleted = await scene.add(3)
        await dead.read(100, 1000)
        await scene.give(robbed, "other")
        await scene.delete(deleted)
        await scene.offer("dead", [offered, robbed, deleted])
        (delivered,) = await _read_until(door, [offered])
        assert (delivered.key, delivered.source) == (STREAM, Source.HANDED_OVER)
        assert ids_of([delivered]) == [offered]
        owners = {one: owner for one, (owner, _) in (await scene.owners()).items()}
        assert owners == {offered: b"me", robbed: b"other", deleted: b"dead"}

    async def test_a_consumer_leaves_when_it_owns_nothing(self, scene: Scene) -> None:
        door = await scene.door()
        ids = await scene.add()
        await door.read(100, 1000)
        assert not await door.leave()
        assert b"me" in await scene.consumers()
        await door.exchange(Outgoing(acks={STREAM: ids}, marks=b"1-1"))
        assert await door.leave()
        assert b"me" not in await scene.consumers()
        assert (await door.begin()).left == frozenset()

    async def test_a_group_that_is_gone_is_told(self, scene: Scene) -> None:
        door = await scene.door()
        ids = await scene.add()
        await door.read(100, 1000)
        await scene.destroy()
        with pytest.raises(NoSuchGroup):
            await door.read(100, 10)
        said = await door.exchange(Outgoing(keeps={STREAM: ids}))
        assert isinstance(said.problem, NoSuchGroup)

    async def test_only_a_cancelled_read_grows_the_epoch(self, scene: Scene) -> None:
        door = await scene.door()
        await scene.add(2)
        await door.read(1, 1000)
        await door.exchange(Outgoing(read=1))
        before = door.epoch
        await door.read(1, 10)
        assert door.epoch == before
        reading = asyncio.create_task(door.read(100, 20_000))
        await asyncio.sleep(0.2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await scene.add()
        seen = [*ids_of(await door.read_history({}, 100)), *ids_of(await door.read(100, 100))]
        assert len(seen) == 3
        assert door.epoch > before


class TestDouble(DoorContract):
    @pytest.fixture
    def scene(self) -> Scene:
        return MemoryScene()


class TestServers(DoorContract):
    @pytest.fixture
    async def scene(self, empty_redis: StandaloneServers) -> AsyncIterator[Scene]:
        async with redis_scene(empty_redis) as scene:
            yield scene
