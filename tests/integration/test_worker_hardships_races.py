"""A whole worker whose answers are late: what they say is not true any more when they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.endpoint import RedisEndpoint
from pelops.errors import RedisUnavailable
from pelops.worker import Worker
from pelops.worker.server.adapter import Boot, Delivered, Exchanged, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from pelops.worker.settings import WorkerPlace
from tests.integration.worker_adapter import KEYS, Behind
from tests.serving_worker import HandlingTime, ReportedEvents, until

# One version is enough for this.
pytestmark = pytest.mark.parametrize("any_redis", ["8.6"], indirect=True)


class SlowHistory(RedisAdapter):
    """Its answers about the own history arrive late, when they are not true any more."""

    gate: asyncio.Event
    has_answer = False

    async def read_history(
        self, after: Mapping[bytes, bytes], count: int, *, skip: Collection[bytes] = ()
    ) -> list[Delivered]:
        found = await super().read_history(after, count, skip=skip)
        self.has_answer = bool(found)
        await self.gate.wait()
        return found


async def test_what_is_settled_while_the_history_is_read_does_not_run_again(
    redis: Behind, empty_redis: StandaloneServers, endpoint: RedisEndpoint
) -> None:
    handling, heard = HandlingTime(), ReportedEvents()
    adapter = SlowHistory(WorkerPlace(endpoint=endpoint, keys=KEYS, consumer="one"))
    adapter.gate = asyncio.Event()
    adapter.gate.set()
    async with serving_through(adapter, handling, heard):
        handling.gate.clear()
        await redis.add(3)
        await until(lambda: len(handling.begun) == 3)
        adapter.gate.clear()
        for line in empty_redis.cli("CLIENT", "LIST").splitlines():
            if "user=a-worker" in line:
                empty_redis.cli("CLIENT", "KILL", "ID", line.split()[0].removeprefix("id="))
        await until(lambda: adapter.has_answer)
        handling.gate.set()
        await until(lambda: len(heard.done) == 3)
        adapter.gate.set()
        more = await redis.add(1)
        await until(lambda: more[0].decode() in heard.done)
    assert len(handling.done) == 4


@asynccontextmanager
async def serving_through(
    adapter: RedisAdapter, handling: HandlingTime, heard: ReportedEvents
) -> AsyncIterator[None]:
    """A worker with this adapter, which serves during the block."""
    worker = Worker(lambda: adapter, observer=heard)
    worker.handler(handling.handle)
    work = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.stop()
        assert await work == 0


class LateAdapter(RedisAdapter):
    """Refuses acknowledgements once, and is then late with them."""

    gate: asyncio.Event
    refusals = 1
    is_late = False

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        if outgoing.acks or outgoing.checked_acks:
            if self.refusals:
                self.refusals -= 1
                raise RedisUnavailable("not now")
            self.is_late = True
            await self.gate.wait()
        return await super().exchange(outgoing)


async def test_a_late_acknowledgement_skips_entries_claimed_meanwhile(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    handling, heard = HandlingTime(), ReportedEvents()
    adapter = LateAdapter(WorkerPlace(endpoint=endpoint, keys=KEYS, consumer="one"))
    adapter.gate = asyncio.Event()
    async with serving_through(adapter, handling, heard):
        ids = await redis.add(3)
        await until(lambda: adapter.is_late)
        await redis.run("XCLAIM", KEYS.stream, KEYS.group, "another", 0, *ids)
        adapter.gate.set()
        await until(lambda: len(heard.lost) + len(heard.done) == 3)
        assert await redis.owners() == dict.fromkeys(ids, b"another")


class SilentAdapter(RedisAdapter):
    """Says that the process begins, and never hears an answer."""

    has_begun = False

    async def begin(self) -> Boot:
        self.has_begun = True
        await asyncio.Event().wait()
        return await super().begin()


async def test_stopping_does_not_wait_for_a_silent_server(
    redis: Behind, endpoint: RedisEndpoint
) -> None:
    adapter = SilentAdapter(WorkerPlace(endpoint=endpoint, keys=KEYS, consumer="one"))
    async with serving_through(adapter, HandlingTime(), ReportedEvents()):
        await until(lambda: adapter.has_begun)
