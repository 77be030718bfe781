"""Keys that expire at once, and a subscriber to which they are reported."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest

from local_cluster.redis_servers import ServerOptions
from pelops.domain.endpoint import RedisEndpoint
from pelops.errors import RedisUnavailable
from pelops.redis_core.masters import end_tasks
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.keyspace_events import ExpiryEvents
from tests.integration.redis_adapter import connected

PROBE: Final = "probe"
REPORTING: Final = ServerOptions(config={"notify-keyspace-events": "Ex"})


class Expiries:
    """What was reported to one subscriber."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.is_listening = False

    def hear(self, key: str) -> None:
        self.is_listening = True
        if key != PROBE:
            self.keys.append(key)


async def until(is_so: Callable[[], bool], what: str, *, within_s: float = 60) -> None:
    """Wait for it."""
    try:
        async with asyncio.timeout(within_s):
            while not is_so():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"it did not come to be that {what}")


@asynccontextmanager
async def listening_to(
    endpoint: RedisEndpoint, maker: Server | None = None
) -> AsyncIterator[tuple[Server, Expiries]]:
    """A subscriber that has received an event; after a failure it listens again at once.

    `maker` may make keys, if the user of the endpoint may not.
    """
    reported = Expiries()
    async with connected(endpoint) as server:
        listening = asyncio.create_task(_listen_again(ExpiryEvents(server, reported.hear)))
        try:
            async with asyncio.timeout(60):
                while not reported.is_listening:
                    await expire(maker or server, PROBE)
                    await asyncio.sleep(0.02)
            yield server, reported
        finally:
            await end_tasks([listening])


async def _listen_again(events: ExpiryEvents) -> None:
    while True:
        await events.run()
        await asyncio.sleep(0.05)


async def expire(server: Server, *keys: str) -> None:
    """Have keys expire now."""
    for key in keys:
        await server.execute("SET", key, "x", "PX", 1, key=key, writes=True)
    await asyncio.sleep(0.01)  # their time; then a read removes them at once
    for key in keys:
        assert await server.execute("EXISTS", key, key=key) == 0


async def expire_until_reported(server: Server, reported: Expiries, *keys: str) -> None:
    """Let keys expire, and repeat it until the subscription reports all of them."""

    async def try_until_reported() -> None:
        while not set(keys) <= set(reported.keys):
            with suppress(RedisUnavailable):  # a failover is under way
                await expire(server, *(set(keys) - set(reported.keys)))
            await asyncio.sleep(0.05)

    await asyncio.wait_for(try_until_reported(), 60)
