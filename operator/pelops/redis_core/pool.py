"""Connected servers, shared by all users of the same endpoint with the same credentials.

The kind of server is detected, not configured.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from redis import exceptions

from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import InvalidSpec, RedisUnavailable
from pelops.redis_core.cluster import ASK_SLOTS, ClusterRouter, Router, SingleRouter
from pelops.redis_core.errors import translate_reply
from pelops.redis_core.sentinel import MasterFinder
from pelops.redis_core.server import Flavour, OnScript, Server, ServerKind, Topology
from pelops.redis_core.tls import build_ssl_context
from pelops.redis_core.transport import Command, Locate, Login, NodeChannel, Reply

CONNECT_BUDGET_S: Final = 10.0  # to connect and detect the kind of server
_INFO: Final = Command(parts=("INFO",))


async def connect_server(endpoint: RedisEndpoint, on_script: OnScript | None = None) -> Server:
    """A connected server, with its topology, product (Redis or Valkey) and version.

    An endpoint whose CLUSTER commands are absent or forbidden is used as a standalone server: a
    proxy routes commands itself. Raises RedisError, and InvalidSpec for a wrong resource.
    """
    login = Login.of(endpoint, build_ssl_context(endpoint))
    channel = NodeChannel(_locator(endpoint, login), login)
    try:
        info, slots = await channel.exchange([_INFO, ASK_SLOTS])
        kind = _detect_kind(endpoint, parse_info(info), slots)
    except BaseException:
        await channel.close()
        raise
    if kind.topology != Topology.CLUSTER:
        return Server(endpoint, kind, SingleRouter(channel), on_script)
    await channel.close()
    return Server(endpoint, kind, _cluster_router(endpoint.node, login), on_script)


def _locator(endpoint: RedisEndpoint, login: Login) -> Locate:
    if endpoint.sentinel is not None:
        return MasterFinder(endpoint, endpoint.sentinel, login)
    return _fixed(endpoint.node)


def _fixed(node: Node) -> Locate:
    async def locate() -> Node:
        return node

    return locate


def _cluster_router(seed: Node, login: Login) -> Router:
    return ClusterRouter(seed, lambda node: NodeChannel(_fixed(node), login))


def _detect_kind(endpoint: RedisEndpoint, info: dict[str, str], slots: Reply) -> ServerKind:
    if info.get("redis_mode") == "sentinel":
        raise InvalidSpec(
            "the Redis URL is the address of a Sentinel: put it into spec.redis.sentinel.nodes"
        )
    valkey, redis = info.get("valkey_version"), info.get("redis_version")
    flavour = Flavour.VALKEY if valkey else Flavour.REDIS if redis else Flavour.UNKNOWN
    return ServerKind(
        topology=_detect_topology(endpoint, slots),
        flavour=flavour,
        version=_parse_version(valkey or redis),
        evicts_any_key=info.get("maxmemory_policy", "").startswith("allkeys-"),
    )


def _detect_topology(endpoint: RedisEndpoint, slots: Reply) -> Topology:
    if endpoint.sentinel is not None:
        return Topology.SENTINEL
    if isinstance(slots, exceptions.ClusterDownError):
        raise translate_reply(slots, command="CLUSTER SLOTS", key=None, writes=False)
    # An empty list: a proxy, or a cluster node that has not joined others yet.
    return Topology.CLUSTER if isinstance(slots, list) and slots else Topology.STANDALONE


def parse_info(info: Reply) -> dict[str, str]:
    """The fields of a reply to INFO; none if it is an error."""
    if not isinstance(info, bytes):
        return {}  # forbidden, or unknown to a proxy: nothing depends on it
    lines = info.decode("utf-8", "replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def _parse_version(text: str | None) -> tuple[int, int, int] | None:
    numbers = (text or "").split(".")[:3]
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


class ServerPool:
    """Connects on first use, with one attempt for all concurrent callers.

    If it fails, all of them get its error, and the next call tries again.
    """

    def __init__(self, on_script: OnScript | None = None) -> None:
        """`on_script` is called for each call of a script on any of the servers."""
        self._on_script = on_script
        self._servers: dict[RedisEndpoint, Server] = {}
        self._used_at: dict[RedisEndpoint, float] = {}
        self._connecting: dict[RedisEndpoint, asyncio.Task[Server]] = {}

    async def server(self, endpoint: RedisEndpoint) -> Server:
        """The server at this endpoint, connected and detected; raises as `connect_server`."""
        known = self._servers.get(endpoint)
        if known is None or known.is_misjudged:
            # Shielded, because other callers may wait for the attempt if this one is cancelled.
            known = await asyncio.shield(self._attempt(endpoint))
        self._used_at[endpoint] = asyncio.get_running_loop().time()
        return known

    async def close_unused(self, older_than: timedelta) -> int:
        """Disconnect servers that were not used for longer than this; returns their number."""
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
            # Read the exception: without a remaining caller asyncio would warn about it.
            attempt.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._connecting[endpoint] = attempt
        return attempt

    async def _connect(self, endpoint: RedisEndpoint) -> Server:
        try:
            async with asyncio.timeout(CONNECT_BUDGET_S):
                server = await connect_server(endpoint, self._on_script)
            await self._forget(endpoint)
            self._servers[endpoint] = server
            return server
        except TimeoutError as error:
            raise RedisUnavailable(
                f"Redis at {endpoint.address} did not answer the first commands within "
                f"{CONNECT_BUDGET_S:g} s"
            ) from error
        finally:
            del self._connecting[endpoint]

    async def _forget(self, endpoint: RedisEndpoint) -> None:
        self._used_at.pop(endpoint, None)
        server = self._servers.pop(endpoint, None)
        if server is not None:
            await server.close()
