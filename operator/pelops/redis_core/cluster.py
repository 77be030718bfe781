"""Commands to the right node of a cluster: a slot map, and redirects followed.

A node answers MOVED or ASK instead of executing, so following them never does anything twice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from redis import exceptions

from pelops.domain.endpoint import Node
from pelops.errors import PelopsError, RedisError, RedisUnavailable
from pelops.redis_core.errors import common_kind
from pelops.redis_core.hash_slots import SLOT_MAP, SlotMap, key_slot, redirect_of
from pelops.redis_core.transport import Command, NodeChannel, Reply

_REDIRECTS: Final = 5
_REFRESH_TIMEOUT_S: Final = 10.0  # of asking for the slot map, however many nodes are asked
_STRANGERS: Final = 16  # nodes that only ASK named, to which connections are kept
_REPORTED: Final = 3  # nodes that do not answer, of which an error tells
OpenChannel = Callable[[Node], NodeChannel]
ASK_SLOTS: Final = Command(parts=SLOT_MAP)


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
        self._slots = SlotMap()  # empty: not known yet
        self._moved: dict[int, Node] = {}  # slots that the map is wrong about
        self._failing: set[Node] = set()  # asked last for the slot map
        self._is_stale = True
        self._refreshing = asyncio.Lock()
        self._failed_at = -math.inf
        self._failure: RedisError | None = None  # of the last attempt to learn the slots

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """The reply to each command, or the error it met: nodes fail one by one."""
        replies: list[Reply] = [None] * len(commands)
        waiting = list(range(len(commands)))
        asked: dict[int, Node] = {}  # commands that ASK sent elsewhere, once
        for _ in range(_REDIRECTS):
            await self._refresh()
            places = {
                index: asked.get(index) or self._node_of(commands[index]) for index in waiting
            }
            await self._round(commands, places, asked.keys(), replies)
            waiting = [
                index for index in waiting if isinstance(replies[index], exceptions.AskError)
            ]
            if not waiting:
                break
            asked = dict(self._follow(places, waiting, replies))
        if len(self._channels) > len(self._slots.masters()) + _STRANGERS:
            await self._drop_strangers()
        return replies

    async def close(self) -> None:
        """End every connection."""
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels))

    async def _round(
        self,
        commands: Sequence[Command],
        places: Mapping[int, Node],
        asked: Collection[int],
        replies: list[Reply],
    ) -> None:
        batches: dict[tuple[Node, bool], list[int]] = {}
        for index, node in places.items():
            batches.setdefault((node, index in asked), []).append(index)

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

    def _follow(
        self, places: Mapping[int, Node], waiting: Iterable[int], replies: Sequence[Reply]
    ) -> Iterator[tuple[int, Node]]:
        """Learn what MOVED told; where ASK sent a command is yielded."""
        for index in waiting:
            redirect = redirect_of(replies[index], places[index])
            assert redirect is not None
            if redirect.is_lasting:
                self._is_stale = True
                self._moved[redirect.slot] = redirect.node
            else:
                yield index, redirect.node

    def _node_of(self, command: Command) -> Node:
        slot = key_slot(command.key) if command.key is not None else 0
        return self._moved.get(slot) or self._slots.master_of(slot) or self._seed

    def _channel(self, node: Node) -> NodeChannel:
        if node not in self._channels:
            self._channels[node] = self._open(node)
        return self._channels[node]

    async def _refresh(self) -> None:
        came_at = asyncio.get_running_loop().time()
        async with self._refreshing:
            if not self._is_stale:
                return
            # Whoever waited for a turn shares the failure, instead of one after the other asking.
            if self._failed_at < came_at:
                self._failure = await self._find_slots()
                self._failed_at = asyncio.get_running_loop().time()
            if self._failure is not None:
                raise type(self._failure)(str(self._failure))

    async def _find_slots(self) -> RedisError | None:
        """Learn the slot map; or the error that says why not."""
        problems: list[PelopsError] = []
        try:
            async with asyncio.timeout(_REFRESH_TIMEOUT_S):
                if await self._ask_for_slots(problems):
                    return None
        except TimeoutError:
            problems.insert(0, RedisUnavailable(f"not within {_REFRESH_TIMEOUT_S:g} s"))
        reported = "; ".join(str(problem) for problem in problems[:_REPORTED])
        more = f" and {len(problems) - _REPORTED} more" if len(problems) > _REPORTED else ""
        kind = common_kind(problems)
        return kind(f"no node of the cluster answers: {reported}{more}")

    async def _ask_for_slots(self, problems: list[PelopsError]) -> bool:
        # The seed comes last: behind a Service it may be a node that is gone by now.
        known = dict.fromkeys((*self._slots.masters(), *self._moved.values()))
        known.pop(self._seed, None)
        for node in sorted([*known, self._seed], key=self._failing.__contains__):
            try:
                reply = (await self._channel(node).exchange([ASK_SLOTS]))[0]
                self._slots = SlotMap.parse(reply, node)
            except PelopsError as error:
                problems.append(error)
                continue
            self._moved.clear()
            self._is_stale = False
            await self._drop_strangers()
            return True
        return False

    async def _drop_strangers(self) -> None:
        members = {*self._slots.masters(), self._seed}
        for node in [node for node in self._channels if node not in members]:
            if not self._channels[node].in_flight:
                await self._channels.pop(node).close()


_ASKING: Final = Command(parts=("ASKING",))
