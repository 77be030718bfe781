"""A worker's adapter to the servers of a test, under exactly its rights, and a look behind it."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from local_cluster.redis_servers import RedisServers
from pelops.domain.endpoint import RedisEndpoint
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.redis_core.server import Server
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from pelops.worker.server.adapter import Delivered
from pelops.worker.server.redis_adapter import RedisAdapter
from pelops.worker.settings import WorkerPlace
from tests.integration.redis_adapter import connected, endpoint_of

KEYS: Final = derive_keys("orders:events", "processing")
STREAM: Final = KEYS.stream.encode()
RETRY: Final = KEYS.retry.encode()
USER: Final = "a-worker"
PASSWORD: Final = "sesame"


def grant(
    servers: RedisServers, keys: GroupKeys = KEYS, features: Collection[Feature] = frozenset()
) -> None:
    """Let the worker's user do what a worker of the SDK needs, and nothing else."""
    rules = acl_rules(keys, UserRole.SDK_WORKER, features)
    servers.acl_setuser(USER, "reset", "on", f">{PASSWORD}", *rules)


def grant_all_but(servers: RedisServers, *left_out: str) -> None:
    """The same without some words of the rules, such as +xack or ~orders."""
    rules = []
    for rule in acl_rules(KEYS, UserRole.SDK_WORKER):
        kept = [word for word in rule.strip("()").split(" ") if word not in left_out]
        rules += [f"({' '.join(kept)})"] if rule.startswith("(") else kept
    servers.acl_setuser(USER, "reset", "on", f">{PASSWORD}", *rules)


def worker_endpoint(servers: RedisServers) -> RedisEndpoint:
    """Where these servers are for the worker's user."""
    return endpoint_of(servers, username=USER, password=PASSWORD)


@asynccontextmanager
async def opened(
    endpoint: RedisEndpoint, consumer: str = "me", **place: Any
) -> AsyncIterator[RedisAdapter]:
    """An open adapter, closed at the end."""
    wanted: dict[str, Any] = {"keys": KEYS} | place
    adapter = RedisAdapter(WorkerPlace(endpoint=endpoint, consumer=consumer, **wanted))
    try:
        await adapter.open()
        yield adapter
    finally:
        await adapter.close()


@asynccontextmanager
async def behind(servers: RedisServers, keys: GroupKeys = KEYS) -> AsyncIterator["Behind"]:
    """The group as a user with all rights reads it."""
    async with connected(endpoint_of(servers)) as server:
        yield Behind(server, keys)


class Behind:
    """What is in Redis."""

    def __init__(self, server: Server, keys: GroupKeys = KEYS) -> None:
        self.server = server
        self.keys = keys

    async def run(self, *parts: str | bytes | int) -> Any:
        """The reply to one command about the group."""
        return await self.server.execute(*parts, key=self.keys.stream)

    async def create(self, *streams: str) -> None:
        """The group, from the beginning, on its stream or on those that are named."""
        for stream in streams or (self.keys.stream,):
            await self.run("XGROUP", "CREATE", stream, self.keys.group, "0", "MKSTREAM")

    async def add(self, count: int = 1, stream: str | None = None, **fields: str) -> list[bytes]:
        """New entries; their IDs."""
        pairs = [part for pair in (fields or {"f": "v"}).items() for part in pair]
        key = stream or self.keys.stream
        return [await self.run("XADD", key, "*", *pairs) for _ in range(count)]

    async def deliver(self, consumer: str, count: int = 100, stream: str | None = None) -> None:
        """Have a consumer read and not acknowledge."""
        group = ("GROUP", self.keys.group, consumer, "COUNT", count)
        await self.run("XREADGROUP", *group, "STREAMS", stream or self.keys.stream, ">")

    async def now_ms(self) -> int:
        """The server's time."""
        seconds, microseconds = await self.run("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def owners(self, stream: str | None = None) -> dict[bytes, bytes]:
        """Whose each pending entry is."""
        return {one[0]: one[1] for one in await self.pending(stream)}

    async def pending(self, stream: str | None = None) -> list[Any]:
        """The pending entries that XPENDING returns."""
        key = stream or self.keys.stream
        return list(await self.run("XPENDING", key, self.keys.group, "-", "+", 1000))

    async def letters(self) -> list[dict[bytes, bytes]]:
        """The dead letters, the oldest first."""
        return await self._entries(self.keys.dead_letter)

    async def ledger(self) -> list[dict[bytes, bytes]]:
        """The events of the workers' ledger, the oldest first."""
        return await self._entries(self.keys.worker_ledger)

    async def consumers(self, stream: str | None = None) -> set[bytes]:
        """The names of the group's consumers."""
        key = stream or self.keys.stream
        found = await self.run("XINFO", "CONSUMERS", key, self.keys.group)
        return {one[1] for one in found}

    async def _entries(self, key: str) -> list[dict[bytes, bytes]]:
        found = await self.run("XRANGE", key, "-", "+")
        return [dict(zip(pairs[::2], pairs[1::2], strict=True)) for _, pairs in found]


def ids_of(delivered: Sequence[Delivered]) -> list[bytes]:
    """The IDs of all entries, in the order in which they came."""
    return [entry[0] for some in delivered for entry in some.entries]


def on_port(endpoint: RedisEndpoint, port: int) -> RedisEndpoint:
    """The same endpoint through another port, such as a proxy's."""
    return replace(endpoint, node=replace(endpoint.node, port=port))


def last_ids(delivered: Sequence[Delivered]) -> Mapping[bytes, bytes]:
    """Where the next page of a history begins."""
    return {some.key: some.entries[-1][0] for some in delivered}
