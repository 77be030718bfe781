"""Routes commands to the right node of a cluster, by a slot map and by following redirects.

A node that answers MOVED or ASK has not executed the command, so none is executed twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from redis import exceptions

from pelops.domain.endpoint import Node
from pelops.errors import PelopsError, RedisUnavailable
from pelops.redis_core.candidates import MOST_ASKED, NoAnswer, first_answer
from pelops.redis_core.errors import common_kind
from pelops.redis_core.hash_slots import SLOT_MAP, SlotMap, key_slot, redirect_of
from pelops.redis_core.transport import Command, NodeChannel, Reply

_REDIRECTS: Final = 5
_STRANGERS: Final = 16  # nodes that only ASK named, to which connections are kept
OpenChannel = Callable[[Node], NodeChannel]
ASK_SLOTS: Final = Command(parts=SLOT_MAP)


class Router(Protocol):
    """Sends commands to the nodes that hold their keys."""

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """The reply to each command, or its error."""

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
            # After a failover this node is a replica: locate the new master next time.
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
        self._moved: dict[int, Node] = {}  # slots for which MOVED corrected the map
        self._failing: set[Node] = set()  # asked last for the slot map
        self._is_stale = True
        self._refreshing: asyncio.Task[None] | None = None

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """The reply to each command, or its error: a failing node affects only its own commands."""
        replies: list[Reply] = [None] * len(commands)
        waiting = list(range(len(commands)))
        asked: dict[int, Node] = {}  # commands that ASK redirected, for one attempt
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
        if self._refreshing is not None:
            self._refreshing.cancel()
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
        """Record MOVED redirects; yield the commands that ASK redirected, with their nodes."""
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
        """Read the slot map again if it is stale; concurrent callers share one attempt.

        They share its error as well: RedisUnavailable, or the kind of error that all nodes have in
        common. That can be a forbidden address, forbidden credentials, or an invalid reply.
        """
        if not self._is_stale:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._learn_slots())
            self._refreshing.add_done_callback(lambda done: done.cancelled() or done.exception())
        refreshing = self._refreshing
        await asyncio.wait({refreshing})  # the task continues when this caller is cancelled
        if refreshing.cancelled():
            raise RedisUnavailable("the connections to the Redis Cluster were closed")
        refreshing.result()

    async def _learn_slots(self) -> None:
        async def ask(node: Node) -> SlotMap:
            try:
                reply = (await self._channel(node).exchange([ASK_SLOTS]))[0]
                return SlotMap.parse(reply, node)
            except PelopsError:
                self._failing.add(node)
                raise

        try:
            _, self._slots = await first_answer(self._candidates(), ask)
        except NoAnswer as error:
            self._failing.update(node for node, _ in error.problems)  # includes time-outs
            kind = common_kind(problem for _, problem in error.problems)
            raise kind(f"no node of the Redis Cluster answers: {error}") from error
        self._moved.clear()
        self._is_stale = False
        await self._drop_strangers()

    def _candidates(self) -> list[Node]:
        """The nodes to ask for the slot map; those that failed come last."""
        # The seed is last of its kind: behind a Service it may be a node that no longer exists.
        known = dict.fromkeys((*self._slots.masters(), *self._moved.values()))
        known.pop(self._seed, None)
        nodes = sorted([*known, self._seed], key=self._failing.__contains__)[:MOST_ASKED]
        return nodes if self._seed in nodes else [*nodes[:-1], self._seed]

    async def _drop_strangers(self) -> None:
        members = {*self._slots.masters(), self._seed}
        self._failing &= members
        for node in [node for node in self._channels if node not in members]:
            if not self._channels[node].in_flight:
                await self._channels.pop(node).close()


_ASKING: Final = Command(parts=("ASKING",))
