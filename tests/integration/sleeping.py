"""Those who sleep until a stream has its next entry, and who of them was woken."""

from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager

from local_cluster.redis_servers import RedisServers
from pelops.domain.endpoint import RedisEndpoint
from pelops.domain.entry_id import EntryId
from pelops.redis_core.server import Server
from pelops.redis_streams.scaling.idle_streams import Waker
from tests.integration.expiring import until
from tests.integration.redis_adapter import connected


class Sleepers:
    """A waker on one server, and who was woken."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.woken: list[Hashable] = []
        self.waker = Waker(self.woken.append)

    def watch(self, *names: str, after: EntryId = EntryId.MIN) -> None:
        """Watch streams, each for the token of its own name."""
        for name in names:
            assert self.waker.watch(name, self.server, {name: after})

    async def are_watched(self, names: Iterable[str]) -> None:
        await until(lambda: all(map(self.waker.is_watched, names)), "all are watched")

    async def are_woken(self, *tokens: Hashable) -> None:
        """Wait until these are woken, and assert that no others are."""
        await until(lambda: len(self.woken) >= len(tokens), f"{tokens} are woken")
        assert sorted(map(str, self.woken)) == sorted(map(str, tokens))
        self.woken.clear()


@asynccontextmanager
async def sleeping_on(endpoint: RedisEndpoint) -> AsyncIterator[Sleepers]:
    async with connected(endpoint) as server:
        sleepers = Sleepers(server)
        try:
            yield sleepers
        finally:
            await sleepers.waker.close()


def blocked(servers: RedisServers) -> int:
    """How many connections wait on all masters."""
    return sum(int(each.info("clients")["blocked_clients"]) for each in servers.masters())
