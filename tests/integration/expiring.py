"""Keys that expire at once, and a subscriber who is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest

from local_cluster.redis_servers import ServerOptions
from pelops.domain.endpoint import RedisEndpoint
from pelops.errors import RedisUnavailable
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.lock_expiry import ExpiryEvents, Subscription
from tests.integration.redis_door import connected

TELLING: Final = ServerOptions(config={"notify-keyspace-events": "Ex"})


class Told:
    """What one subscriber was told."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.subscription: Subscription | None = None

    def hear(self, key: str) -> None:
        self.keys.append(key)

    def is_listening(self) -> bool:
        return self.subscription is not None and self.subscription.is_complete


async def until(is_so: Callable[[], bool], what: str, *, within_s: float = 60) -> None:
    """Wait for it."""
    try:
        async with asyncio.timeout(within_s):
            while not is_so():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"it did not come to be that {what}")


@asynccontextmanager
async def listening_to(endpoint: RedisEndpoint) -> AsyncIterator[tuple[Server, ExpiryEvents, Told]]:
    """One subscriber whose subscription every master has confirmed."""
    events, told = ExpiryEvents(), Told()
    async with connected(endpoint) as server:
        try:
            told.subscription = events.subscribe(server, told.hear)
            await until(told.is_listening, "the masters tell")
            yield server, events, told
        finally:
            await events.close()


async def expire(server: Server, *keys: str) -> None:
    """Have keys expire now."""
    for key in keys:
        await server.execute("SET", key, "x", "PX", 1, key=key, writes=True)
    await asyncio.sleep(0.01)  # their time; then a look removes them at once
    for key in keys:
        assert await server.execute("EXISTS", key, key=key) == 0


async def expire_until_told(server: Server, told: Told, *keys: str) -> None:
    """Have keys expire, again and again while nobody is connected to hear it."""

    async def try_until_told() -> None:
        while not set(keys) <= set(told.keys):
            with suppress(RedisUnavailable):  # a failover is under way
                await expire(server, *(set(keys) - set(told.keys)))
            await asyncio.sleep(0.05)

    await asyncio.wait_for(try_until_told(), 60)
