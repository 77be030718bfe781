"""A group of which a worker's adapter is asked: in memory, or on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from local_cluster.redis_servers import StandaloneServers
from pelops.worker.server.adapter import GroupAdapter
from pelops.worker.testing import MemoryGroup
from tests.integration.worker_adapter import KEYS, Behind, behind, grant, opened, worker_endpoint

PROCESSING_TIMEOUT_MS = 60_000


class Scene(Protocol):
    """What a test does behind the adapter's back."""

    async def adapter(self, consumer: str = "me") -> GroupAdapter: ...

    async def add(self, count: int = 1, *, to_retry: bool = False) -> list[bytes]: ...

    async def give(self, entry_id: bytes, consumer: str) -> None: ...

    async def age(self, entry_id: bytes, consumer: str) -> None: ...

    async def delete(self, entry_id: bytes) -> None: ...

    async def destroy(self) -> None: ...

    async def owners(self) -> dict[bytes, tuple[bytes, int]]: ...

    async def letters(self) -> list[dict[bytes, bytes]]: ...

    async def consumers(self) -> set[bytes]: ...

    async def offer(self, consumer: str, ids: list[bytes]) -> None: ...


class MemoryScene:
    """The double."""

    def __init__(self) -> None:
        self.group = MemoryGroup(
            KEYS.stream, KEYS.group, processing_timeout_ms=PROCESSING_TIMEOUT_MS
        )

    async def adapter(self, consumer: str = "me") -> GroupAdapter:
        adapter = self.group.adapter(consumer)
        await adapter.open()
        return adapter

    async def add(self, count: int = 1, *, to_retry: bool = False) -> list[bytes]:
        world = self.group.world
        stream = world.retry if to_retry else world.main
        added = [stream.add([b"f", b"v"], self.group.clock.now_ms) for _ in range(count)]
        world.wake()
        return added

    async def give(self, entry_id: bytes, consumer: str) -> None:
        self.group.world.main.pending[entry_id].owner = consumer.encode()

    async def age(self, entry_id: bytes, consumer: str) -> None:
        self.group.world.age([entry_id], self.group.world.main)

    async def delete(self, entry_id: bytes) -> None:
        self.group.delete(entry_id.decode())

    async def destroy(self) -> None:
        self.group.world.has_group = False
        self.group.world.main.destroy_group()

    async def owners(self) -> dict[bytes, tuple[bytes, int]]:
        pending = self.group.world.main.pending
        return {one: (owned.owner, owned.deliveries) for one, owned in pending.items()}

    async def letters(self) -> list[dict[bytes, bytes]]:
        return self.group.dead_letters

    async def consumers(self) -> set[bytes]:
        return self.group.world.consumers

    async def offer(self, consumer: str, ids: list[bytes]) -> None:
        before_ms = self.group.clock.now_ms + 1
        self.group.world.offers.append((consumer.encode(), before_ms, ids))
        self.group.world.wake()


class RedisScene:
    """A real server."""

    def __init__(self, servers: StandaloneServers, redis: Behind, stack: AsyncExitStack) -> None:
        self._servers = servers
        self._redis = redis
        self._stack = stack

    async def adapter(self, consumer: str = "me") -> GroupAdapter:
        endpoint = worker_endpoint(self._servers)
        adapter = opened(endpoint, consumer, processing_timeout_ms=PROCESSING_TIMEOUT_MS)
        return await self._stack.enter_async_context(adapter)

    async def add(self, count: int = 1, *, to_retry: bool = False) -> list[bytes]:
        return await self._redis.add(count, KEYS.retry if to_retry else None)

    async def give(self, entry_id: bytes, consumer: str) -> None:
        await self._claim(entry_id, consumer)

    async def age(self, entry_id: bytes, consumer: str) -> None:
        await self._claim(entry_id, consumer, "IDLE", PROCESSING_TIMEOUT_MS + 1000)

    async def delete(self, entry_id: bytes) -> None:
        await self._redis.run("XDEL", KEYS.stream, entry_id)

    async def destroy(self) -> None:
        await self._redis.run("XGROUP", "DESTROY", KEYS.stream, KEYS.group)

    async def owners(self) -> dict[bytes, tuple[bytes, int]]:
        return {one[0]: (one[1], one[3]) for one in await self._redis.pending()}

    async def letters(self) -> list[dict[bytes, bytes]]:
        return await self._redis.letters()

    async def consumers(self) -> set[bytes]:
        return await self._redis.consumers()

    async def offer(self, consumer: str, ids: list[bytes]) -> None:
        before = str(await self._redis.now_ms() + 1)
        named = b" ".join(ids).decode()
        await self._redis.add(1, KEYS.offer_stream, consumer=consumer, before=before, ids=named)

    async def _claim(self, entry_id: bytes, consumer: str, *idle: str | int) -> None:
        head = ("XCLAIM", KEYS.stream, KEYS.group, consumer, 0, entry_id)
        await self._redis.run(*head, *idle, "JUSTID")


@asynccontextmanager
async def redis_scene(servers: StandaloneServers) -> AsyncIterator[RedisScene]:
    """An empty group on these servers."""
    grant(servers)
    async with behind(servers) as redis, AsyncExitStack() as stack:
        await redis.create(KEYS.stream, KEYS.retry, KEYS.offer_stream)
        yield RedisScene(servers, redis, stack)
