"""A whole worker whose entries, group, consumer or streams others change under its hands."""

from __future__ import annotations

from functools import partial

import pytest

from pelops.domain.endpoint import RedisEndpoint
from pelops.worker import Entry, Retry
from pelops.worker.server import reads as streams
from tests.integration.worker_adapter import KEYS, Behind
from tests.serving_worker import HandlingTime, serving, until

# One server with CLAIM and one without.
pytestmark = pytest.mark.parametrize("any_redis", ["8.6", "7.0"], indirect=True)


async def position(redis: Behind) -> bytes:
    """The ID up to which the group was given entries."""
    (group,) = await redis.run("XINFO", "GROUPS", KEYS.stream)
    found = dict(zip(group[::2], group[1::2], strict=True))
    return bytes(found[b"last-delivered-id"])


async def test_entries_deleted_or_trimmed_in_flight_are_recorded_once(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    failing: list[str] = []

    async def handle(entry: Entry) -> None:
        if entry["n"] == b"fails":
            failing.append(entry.id)
            raise Retry(after=1.0)
        await handling.handle(entry)

    handling = HandlingTime()
    handling.gate.clear()
    async with serving(endpoint, handle) as (worker, heard):
        runs = await redis.add(2, n="runs")
        fails = await redis.add(2, n="fails")
        await until(lambda: len(handling.begun) == len(failing) == 2)
        await redis.run("XDEL", KEYS.stream, runs[0], fails[0])
        await redis.run("XTRIM", KEYS.stream, "MAXLEN", 0)
        await until(lambda: _are_recorded(redis, [*runs, *fails]))
        handling.gate.set()
        (after,) = await redis.add(1, n="after")
        await until(lambda: after.decode() in heard.done)
        await until(lambda: worker.describe() == "handlers running: 0; entries in flight: 0")
        assert await redis.pending() == []
    assert len(await redis.letters()) == 4


async def _are_recorded(redis: Behind, ids: list[bytes]) -> bool:
    letters = await redis.letters()
    gone = [each[b"_original_id"] for each in letters if each[b"_reason"] == b"PayloadGone"]
    return sorted(gone) == sorted(ids)


async def test_forged_retry_fields_cannot_make_a_later_entry_a_duplicate(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    """M1: with fields of recovery that name an ID that is yet to come, or nearly so."""
    forged = ("_original_id", "1700000000000-9", "_retry_count", "999999")
    itself = ("_original_id", "1700000000000-2", "_retry_count", "1")
    seen: set[str] = set()
    worked: dict[bytes, int] = {}

    async def handle(entry: Entry) -> None:
        """Deduplicates as the page about workers advises."""
        if entry.original_id not in seen:
            seen.add(entry.original_id)
            worked[entry["n"]] = entry.attempt

    async with serving(endpoint, handle) as (_, heard):
        await redis.run("XADD", KEYS.stream, "1700000000000-1", "n", "evil", *forged)
        await redis.run("XADD", KEYS.stream, "1700000000000-2", "n", "itself", *itself)
        await redis.run("XADD", KEYS.stream, "1700000000000-9", "n", "genuine")
        past = ("_original_id", "1-1", "_retry_count", "999999")
        await redis.run("XADD", KEYS.stream, "1700000000000-10", "n", "past", *past)
        await until(lambda: len(heard.done) == 4)
    assert worked == {b"evil": 1, b"itself": 1, b"genuine": 1, b"past": 1002}


async def test_a_worker_continues_after_its_consumer_is_deleted(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    handling = HandlingTime()
    handling.gate.clear()
    async with serving(endpoint, handling.handle) as (worker, heard):
        held = await redis.add(3)
        await until(lambda: len(handling.begun) == 3)
        await redis.run("XGROUP", "DELCONSUMER", KEYS.stream, KEYS.group, "one")
        await until(lambda: len(heard.lost) == 3)  # looks like a claim by another worker
        handling.gate.set()
        (after,) = await redis.add(1)
        await until(lambda: after.decode() in heard.done and worker.is_ready)
    assert sorted(heard.lost) == [entry_id.decode() for entry_id in held]
    assert handling.done == heard.done == [after.decode()]
    assert await redis.letters() == []


async def test_a_worker_continues_at_the_position_of_a_recreated_group(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    handling = HandlingTime()
    handling.gate.clear()
    async with serving(endpoint, handling.handle) as (worker, heard):
        held = await redis.add(3)
        await until(lambda: len(handling.begun) == 3)
        await redis.run("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
        await until(lambda: heard.was_refused("NoSuchGroup") and not worker.is_ready)
        await redis.add(2)  # never delivered: the group is to begin behind them
        assert await redis.run("XINFO", "GROUPS", KEYS.stream) == []
        await redis.run("XGROUP", "CREATE", KEYS.stream, KEYS.group, "$")
        began_at = await position(redis)
        await until(lambda: len(heard.lost) == 3 and worker.is_ready)
        assert await position(redis) == began_at
        handling.gate.set()
        (after,) = await redis.add(1)
        await until(lambda: after.decode() in heard.done)
    assert heard.done == [after.decode()]
    assert sorted(heard.lost) == [entry_id.decode() for entry_id in held]
    assert await redis.letters() == []


async def test_a_worker_follows_streams_that_are_created_and_deleted(
    redis: Behind, endpoint: RedisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_RETRY_MISSING_S", 0.1)
    handling = HandlingTime()

    def has_done(count: int) -> bool:
        return len(heard.done) == len(handling.done) == count

    async with serving(endpoint, handling.handle) as (worker, heard):
        await redis.add(1)
        for count in (4, 7):
            await redis.create(KEYS.retry, KEYS.offer_stream)
            await redis.add(1, KEYS.retry)
            await redis.add(1)
            await until(partial(has_done, count - 1))
            await redis.run("DEL", KEYS.retry, KEYS.offer_stream)
            await redis.add(1)
            await until(partial(has_done, count))
            await until(lambda: worker.is_ready)
        assert await redis.pending() == []
