"""Each master of a server by itself, for what must be asked or heard of all of them."""

from __future__ import annotations

from pelops.domain.endpoint import Node
from pelops.domain.naming import key_slot
from pelops.errors import RedisUnavailable
from pelops.redis_core.sentinel import MasterFinder
from pelops.redis_core.server import Server, Topology
from pelops.redis_core.tls import build_ssl_context
from pelops.redis_core.transport import Login, NodeChannel


class Masters:
    """Which nodes hold a server's keys, and ways to them."""

    def __init__(self, server: Server) -> None:
        endpoint = server.endpoint
        self._server = server
        self._login = Login.of(endpoint, build_ssl_context(endpoint))
        self._finder = (
            MasterFinder(endpoint, endpoint.sentinel, self._login) if endpoint.sentinel else None
        )

    async def find(self) -> frozenset[Node]:
        """The masters at this moment. Raises RedisError when nobody names them."""
        if self._finder is not None:
            return frozenset({await self._finder()})
        if self._server.kind.topology != Topology.CLUSTER:
            return frozenset({self._server.endpoint.node})
        slots = await self._server.execute("CLUSTER", "SLOTS")
        return frozenset(self._node(host, port) for _, _, (host, port, *_), *_ in slots)

    async def locate(self, key: str) -> Node:
        """The master that holds a key at this moment. Raises RedisError when nobody names it."""
        if self._server.kind.topology != Topology.CLUSTER:
            return next(iter(await self.find()))
        slot = key_slot(key)
        slots = await self._server.execute("CLUSTER", "SLOTS")
        for first, last, (host, port, *_), *_ in slots:
            if first <= slot <= last:
                return self._node(host, port)
        raise RedisUnavailable(f"no node of the cluster holds the slot {slot}")

    def channel(self, node: Node) -> NodeChannel:
        """One connection to one of them; the caller closes it."""

        async def locate() -> Node:
            return node

        return NodeChannel(locate, self._login, connections=1)

    def _node(self, host: bytes | None, port: int) -> Node:
        # A node that does not know its own name answers an empty one, or a question mark.
        named = host.decode() if host and host != b"?" else self._server.endpoint.node.host
        return Node(named, port)
