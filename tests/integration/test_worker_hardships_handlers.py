"""A whole worker whose handler raises anything, hangs, or gets an entry that cannot be decoded."""

from __future__ import annotations

import asyncio
import gc

import pytest

from pelops.domain.endpoint import RedisEndpoint
from pelops.worker import Entry, Undecodable
from tests.integration.worker_adapter import KEYS, Behind
from tests.serving_worker import serving, until

# One version is enough for this.
pytestmark = pytest.mark.parametrize("any_redis", ["8.6"], indirect=True)


UNREADABLE: tuple[bytes, ...] = (
    b"",
    b"\xff\xfe\x00",
    b"{",
    b"[" * 100_000,
    b"1" * 100_000,
    b'{"number": NaN, "number": "\\ud800"}x',
    b"\x00",
)


async def test_undecodable_entries_are_dead_lettered_unchanged_and_do_not_block_others(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    handled: list[int] = []

    async def handle(entry: Entry) -> None:
        handled.append(entry.json("order"))

    async with serving(endpoint, handle) as (_, heard):
        for number, body in enumerate(UNREADABLE):
            await redis.run("XADD", KEYS.stream, "*", "order", body)
            await redis.run("XADD", KEYS.stream, "*", "order", str(number))
        await redis.run("XADD", KEYS.stream, "*", b"\xff", b"no such field")
        await until(lambda: len(heard.letters) == len(UNREADABLE) + 1)
        await until(lambda: len(heard.done) == len(UNREADABLE))
        assert await redis.pending() == []
    letters = await redis.letters()
    assert {letter[b"_reason"] for letter in letters} == {b"Undecodable"}
    bodies = [letter.get(b"order") for letter in letters]
    missing = [body[:9] for body in UNREADABLE if body not in bodies]  # short: pytest shows it
    assert missing == []
    assert sorted(handled) == list(range(len(UNREADABLE)))
    assert all(isinstance(failure, Undecodable) for failure in heard.failures)


class Broken(BaseException):
    """Neither an Exception nor one that ends a process."""


RAISED = {
    one.__name__: one for one in (Broken, asyncio.CancelledError, GeneratorExit, StopIteration)
}


@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_is_raised_fails_its_entry_and_no_other(
    redis: Behind, endpoint: RedisEndpoint, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(entry: Entry) -> None:
        if entry["n"] != b"good":
            raise RAISED[entry.text["n"]]

    async def handle_async(entry: Entry) -> None:
        handle(entry)

    async with serving(endpoint, handle_async if is_async else handle) as (worker, heard):
        bad = [entry_id for name in RAISED for entry_id in await redis.add(1, n=name)]
        await redis.add(3, n="good")
        await until(lambda: len(heard.done) == 3 and len(heard.letters) == len(bad))
        wanted = [(entry_id.decode(), "HandlerFailed") for entry_id in bad]
        assert sorted(heard.letters) == sorted(wanted)
        await redis.add(1, n="good")
        await until(lambda: len(heard.done) == 4)
        assert worker.is_ready
        assert await redis.pending() == []
    gc.collect()
    assert "never retrieved" not in caplog.text
