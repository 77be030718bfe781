"""A connection to each master of a server, for what must be read from all of them.

Tasks that listen to masters are ended with `end_tasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from pelops.domain.endpoint import Node
from pelops.errors import RedisUnavailable
from pelops.redis_core.hash_slots import SLOT_MAP, SlotMap, key_slot
from pelops.redis_core.sentinel import MasterFinder
from pelops.redis_core.server import Server, Topology
from pelops.redis_core.tls import build_ssl_context
from pelops.redis_core.transport import Login, NodeChannel

MOST_MASTERS: Final = 64  # a connection to each is held


class Masters:
    """The nodes that hold a server's keys, and connections to them."""

    def __init__(self, server: Server) -> None:
        endpoint = server.endpoint
        self._server = server
        self._login = Login.of(endpoint, build_ssl_context(endpoint))
        self._finder = (
            MasterFinder(endpoint, endpoint.sentinel, self._login) if endpoint.sentinel else None
        )

    async def find(self) -> frozenset[Node]:
        """The present masters. Raises RedisError when they cannot be found, or are too many."""
        if self._finder is not None:
            return frozenset({await self._finder()})
        if self._server.kind.topology != Topology.CLUSTER:
            return frozenset({self._server.endpoint.node})
        masters = frozenset((await self._slots()).masters())
        if len(masters) > MOST_MASTERS:
            raise RedisUnavailable(
                f"the Redis Cluster has {len(masters)} masters, and Pelops supports at most "
                f"{MOST_MASTERS}"
            )
        return masters

    async def locate(self, key: str) -> Node:
        """The present master of a key. Raises RedisError when it cannot be found."""
        if self._server.kind.topology != Topology.CLUSTER:
            return next(iter(await self.find()))
        slot = key_slot(key)
        node = (await self._slots()).master_of(slot)
        if node is None:
            raise RedisUnavailable(f"no node of the Redis Cluster serves the hash slot {slot}")
        return node

    def channel(self, node: Node) -> NodeChannel:
        """A channel with one connection to a master; the caller closes it."""

        async def locate() -> Node:
            return node

        return NodeChannel(locate, self._login, connections=1)

    async def _slots(self) -> SlotMap:
        reply = await self._server.execute(*SLOT_MAP)
        return SlotMap.parse(reply, self._server.endpoint.node)


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and return when all of them have ended, also if the caller is cancelled."""
    pending = {task for task in tasks if not task.done()}
    interruption: asyncio.CancelledError | None = None
    while pending:
        for task in pending:
            task.cancel()
        try:
            # Before Python 3.12 wait_for, which redis-py uses, may swallow a cancellation that
            # comes together with its result: https://github.com/python/cpython/issues/86296
            await asyncio.wait(pending, timeout=0.1)
        except asyncio.CancelledError as error:
            interruption = error
        pending = {task for task in pending if not task.done()}
    if interruption is not None:
        raise interruption
