"""Commands to the right node of a cluster: a slot map, and redirects followed.

A node answers MOVED or ASK instead of executing, so following them never does anything twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from redis import exceptions

from pelops.domain.endpoint import Node
from pelops.domain.naming import SLOTS, key_slot
from pelops.errors import PelopsError, RedisUnavailable
from pelops.redis_core.transport import Command, NodeChannel, Reply

_REDIRECTS: Final = 5
OpenChannel = Callable[[Node], NodeChannel]
SLOT_MAP: Final = Command(parts=("CLUSTER", "SLOTS"))


class Router(Protocol):
    """Sends commands to where their keys are."""

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """The reply to each command, or the error it met."""

    async def close(self) -> None:
        """End every connection."""


class SingleRouter:
    """All keys are on one node, or behind one address."""

    def __init__(self, channel: NodeChannel) -> None:
        self._channel = channel

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """The reply to each command; a broken connection is raised."""
        replies = await self._channel.exchange(commands)
        if any(isinstance(reply, exceptions.ReadOnlyError) for reply in replies):
            # A failover has made our master a replica: look for the new one next time.
            await self._channel.forget_connections()
        return replies

    async def close(self) -> None:
        """End every connection."""
        await self._channel.close()


class ClusterRouter:
    """One channel per node, chosen by the key's slot."""

    def __init__(self, seed: Node, open_channel: OpenChannel) -> None:
        self._seed = seed
        self._open = open_channel
        self._channels: dict[Node, NodeChannel] = {}
        self._owners: list[Node | None] = [None] * SLOTS
        self._failing: set[Node] = set()  # asked last for the slot map
        self._is_stale = True
        self._refreshing = asyncio.Lock()

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """The reply to each command, or the error it met: nodes fail one by one."""
        replies: list[Reply] = [None] * len(commands)
        waiting = list(range(len(commands)))
        asked: dict[int, Node] = {}  # commands that ASK sent elsewhere, once
        for _ in range(_REDIRECTS):
            await self._refresh()
            await self._round(commands, waiting, asked, replies)
            asked = dict(self._asked(waiting, replies))
            waiting = [
                index for index in waiting if isinstance(replies[index], exceptions.AskError)
            ]
            if not waiting:
                break
        return replies

    async def close(self) -> None:
        """End every connection."""
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))

    async def _round(
        self,
        commands: Sequence[Command],
        waiting: Sequence[int],
        asked: dict[int, Node],
        replies: list[Reply],
    ) -> None:
        batches: dict[tuple[Node, bool], list[int]] = {}
        for index in waiting:
            place = (asked.get(index) or self._node_of(commands[index]), index in asked)
            batches.setdefault(place, []).append(index)

        async def send(node: Node, asking: bool, indexes: list[int]) -> None:
            found = await self._send(node, [commands[index] for index in indexes], asking=asking)
            for index, reply in zip(indexes, found, strict=True):
                replies[index] = reply

        await asyncio.gather(*(send(*place, indexes) for place, indexes in batches.items()))

    async def _send(self, node: Node, commands: list[Command], *, asking: bool) -> list[Reply]:
        sent = [each for command in commands for each in (_ASKING, command)] if asking else commands
        try:
            replies = await self._channel(node).exchange(sent)
        except PelopsError as error:
            self._is_stale = True
            self._failing.add(node)
            return [error] * len(commands)
        self._failing.discard(node)
        return replies[1::2] if asking else replies

    def _asked(self, waiting: Iterable[int], replies: list[Reply]) -> Iterable[tuple[int, Node]]:
        for index in waiting:
            redirect = replies[index]
            if isinstance(redirect, exceptions.MovedError):
                self._is_stale = True
                self._owners[redirect.slot_id] = Node(
                    redirect.host or self._seed.host, redirect.port
                )
            elif isinstance(redirect, exceptions.AskError):
                yield index, Node(redirect.host or self._seed.host, redirect.port)

    def _node_of(self, command: Command) -> Node:
        slot = key_slot(command.key) if command.key is not None else 0
        return self._owners[slot] or self._seed

    def _channel(self, node: Node) -> NodeChannel:
        if node not in self._channels:
            self._channels[node] = self._open(node)
        return self._channels[node]

    async def _refresh(self) -> None:
        async with self._refreshing:
            if not self._is_stale:
                return
            problems: list[str] = []
            # The seed comes last: behind a Service it may be a node that is gone by now.
            known = [node for node in dict.fromkeys(self._owners) if node and node != self._seed]
            for node in sorted([*known, self._seed], key=self._failing.__contains__):
                try:
                    self._learn(node, (await self._channel(node).exchange([SLOT_MAP]))[0])
                except PelopsError as error:
                    problems.append(str(error))
                    continue
                await self._drop_strangers()
                return
        raise RedisUnavailable(f"no node of the cluster answers: {'; '.join(problems)}")

    def _learn(self, answered: Node, slots: Reply) -> None:
        if not isinstance(slots, list):
            raise RedisUnavailable(f"{answered} does not tell the slots of its cluster: {slots}")
        owners: list[Node | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in slots:
            # A node that does not know its own name answers an empty one, or a question mark.
            named = host.decode() if host and host != b"?" else answered.host
            owners[first : last + 1] = [Node(named, port)] * (last + 1 - first)
        self._owners = owners
        self._is_stale = False

    async def _drop_strangers(self) -> None:
        members = {*self._owners, self._seed}
        for node in [node for node in self._channels if node not in members]:
            if not self._channels[node].in_flight:
                await self._channels.pop(node).close()


_ASKING: Final = Command(parts=("ASKING",))
