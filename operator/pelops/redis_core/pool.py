"""Servers shared by everybody who names the same endpoint with the same credentials."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pelops.domain.endpoint import RedisEndpoint
from pelops.redis_core.detection import connect_server
from pelops.redis_core.server import Server


class ServerPool:
    """Connects on first use, once however many ask at the same time.

    A failed attempt is told to all who waited for it and is not remembered.
    """

    def __init__(self) -> None:
        self._servers: dict[RedisEndpoint, Server] = {}
        self._used_at: dict[RedisEndpoint, float] = {}
        self._connecting: dict[RedisEndpoint, asyncio.Task[Server]] = {}

    async def server(self, endpoint: RedisEndpoint) -> Server:
        """The server at this endpoint, connected and detected; raises as `connect_server`."""
        known = self._servers.get(endpoint)
        if known is None or known.is_misjudged:
            # The attempt outlives a caller who gives up: the others still wait for it.
            known = await asyncio.shield(self._attempt(endpoint))
        self._used_at[endpoint] = asyncio.get_running_loop().time()
        return known

    async def close_unused(self, older_than: timedelta) -> int:
        """Disconnect servers that nobody asked for so long; answers how many."""
        limit = asyncio.get_running_loop().time() - older_than.total_seconds()
        unused = [endpoint for endpoint, used_at in self._used_at.items() if used_at < limit]
        for endpoint in unused:
            await self._forget(endpoint)
        return len(unused)

    async def close(self) -> None:
        """Disconnect everything."""
        attempts = list(self._connecting.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for endpoint in list(self._servers):
            await self._forget(endpoint)

    def _attempt(self, endpoint: RedisEndpoint) -> asyncio.Task[Server]:
        attempt = self._connecting.get(endpoint)
        if attempt is None:
            attempt = asyncio.create_task(self._connect(endpoint))
            # All callers may have given up by the time it fails; nobody is to be warned then.
            attempt.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._connecting[endpoint] = attempt
        return attempt

    async def _connect(self, endpoint: RedisEndpoint) -> Server:
        try:
            server = await connect_server(endpoint)
            await self._forget(endpoint)
            self._servers[endpoint] = server
            return server
        finally:
            del self._connecting[endpoint]

    async def _forget(self, endpoint: RedisEndpoint) -> None:
        self._used_at.pop(endpoint, None)
        server = self._servers.pop(endpoint, None)
        if server is not None:
            await server.close()
