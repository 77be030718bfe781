"""Where the master is, by asking the Sentinels."""

from __future__ import annotations

from pelops.domain.endpoint import Node, RedisEndpoint, Sentinel
from pelops.errors import AuthenticationFailed, RedisError, RedisUnavailable
from pelops.redis_core.errors import translate_reply
from pelops.redis_core.transport import Command, Login, NodeChannel, Reply


class MasterFinder:
    """Asks one Sentinel after the other, the one that answered last time first.

    Sentinels that the known ones know are learned. The credentials of the data servers are used
    for a Sentinel too, but only for one that asks for some.
    """

    def __init__(self, endpoint: RedisEndpoint, sentinel: Sentinel, login: Login) -> None:
        self._master_name = sentinel.master_name
        self._nodes = list(sentinel.nodes)
        self._bare = Login(tls=login.tls)
        self._known_user = Login(
            tls=login.tls, username=endpoint.username, password=endpoint.password
        )

    async def __call__(self) -> Node:
        """The master's address. Raises RedisUnavailable when no Sentinel can tell."""
        problems: list[str] = []
        for node in tuple(self._nodes):
            try:
                master = await self._ask(node)
            except RedisError as error:
                problems.append(f"{node}: {error}")
                continue
            self._nodes.remove(node)
            self._nodes.insert(0, node)
            return master
        raise RedisUnavailable(
            f"no Sentinel names the master {self._master_name}: {'; '.join(problems)}"
        )

    async def _ask(self, node: Node) -> Node:
        try:
            address, others = await self._exchange(node, self._bare)
        except AuthenticationFailed:
            if not self._known_user.password:
                raise
            address, others = await self._exchange(node, self._known_user)
        if isinstance(address, Exception):
            raise translate_reply(address, command="SENTINEL", key=None, writes=False)
        if address is None:
            raise RedisUnavailable(f"knows no master {self._master_name}")
        self._learn(others)
        return Node(address[0].decode(), int(address[1]))

    async def _exchange(self, node: Node, login: Login) -> list[Reply]:
        async def locate() -> Node:
            return node

        channel = NodeChannel(locate, login, connections=1)
        try:
            return await channel.exchange(
                [
                    Command(parts=("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master_name)),
                    Command(parts=("SENTINEL", "SENTINELS", self._master_name)),
                ]
            )
        finally:
            await channel.close()

    def _learn(self, others: Reply) -> None:
        for other in others if isinstance(others, list) else ():
            facts = dict(zip(other[::2], other[1::2], strict=False))
            node = Node(facts[b"ip"].decode(), int(facts[b"port"]))
            if node not in self._nodes:
                self._nodes.append(node)
