"""Where the node is that holds the group's keys: they all lie in one slot."""

from __future__ import annotations

from typing import Final

from redis.exceptions import ClusterDownError

from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import AuthenticationFailed, PelopsError, RedisUnavailable
from pelops.redis_core.sentinel import MasterFinder
from pelops.redis_core.slots import SLOT_MAP, Redirect, SlotMap
from pelops.redis_core.transport import Command, Locate, Login, NodeChannel, Reply

_ASK_SLOTS: Final = Command(parts=SLOT_MAP)


class Whereabouts:
    """Asked whenever a connection is made; told when a server says where to go."""

    def __init__(self, endpoint: RedisEndpoint, slot: int, login: Login) -> None:
        self._seed = endpoint.node
        self._slot = slot
        self._login = login
        self._finder = (
            MasterFinder(endpoint, endpoint.sentinel, login) if endpoint.sentinel else None
        )
        self._members: list[Node] = []  # of a cluster, the one that answered last first
        self._is_alone = False  # no cluster, or one that may not be asked: MOVED tells the way
        self._reported: Node | None = None

    async def __call__(self) -> Node:
        """The node to connect to. Raises RedisUnavailable when nobody can tell."""
        if self._finder is not None:
            return await self._finder()
        if self._reported is not None:
            reported, self._reported = (
                self._reported,
                None,
            )  # once: if it is wrong, the others are asked
            return reported
        return self._seed if self._is_alone else await self._ask_cluster()

    def follow(self, redirect: Redirect) -> None:
        """Go where MOVED sent us, with the next connection."""
        self._reported = redirect.node

    def aside(self, redirect: Redirect) -> Locate:
        """The way to where ASK sent us, which is nobody's way but this time."""
        return _at(redirect.node)

    async def _ask_cluster(self) -> Node:
        problems: list[str] = []
        # The seed comes last: behind a Service it may be a node that is gone by now.
        for node in (*self._members, self._seed):
            try:
                owner = self._learn(node, await self._slots_of(node))
            except PelopsError as error:
                if isinstance(error, AuthenticationFailed) or not self._members:
                    raise  # the others have the same users, or there are none
                problems.append(f"{node}: {error}")
                continue
            return owner or node
        raise RedisUnavailable(f"no node of the cluster answers: {'; '.join(problems)}")

    async def _slots_of(self, node: Node) -> Reply:
        channel = NodeChannel(_at(node), self._login, connections=1)
        try:
            return (await channel.exchange([_ASK_SLOTS]))[0]
        finally:
            await channel.close()

    def _learn(self, answered: Node, slots: Reply) -> Node | None:
        if not isinstance(slots, list) or not slots:
            self._is_alone = not self._members and not isinstance(slots, ClusterDownError)
            return None
        found = SlotMap.parse(slots, answered)
        self._members = list(dict.fromkeys((answered, *found.members())))
        return found.master_of(self._slot)


def _at(node: Node) -> Locate:
    async def locate() -> Node:
        return node

    return locate
