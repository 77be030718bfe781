"""A worker's adapter to a group in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from pelops.errors import NoSuchGroup, OutcomeUnknown
from pelops.worker.server.adapter import Boot, Delivered, DeliverySource, Exchanged, Ids, Outgoing
from pelops.worker.testing.memory import MemoryStream, order_of
from pelops.worker.testing.world import World

ROUND_TRIP_S: Final = 0.001


class MemoryAdapter:
    """A `Door` as of a server that has CLAIM; the contract suite keeps it honest."""

    def __init__(self, world: World, consumer: str) -> None:
        self.me = consumer.encode()
        self.is_dead = False  # its process crashed: nothing it does has an effect
        self.loses_answer = False  # of the next exchange
        self.left: frozenset[bytes] = frozenset()  # what a former process had started
        self._world = world
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """Grows whenever a delivery may have been lost: then the own history is to be read."""
        return self._epoch

    async def open(self) -> None:
        """Refused only when the group is told to."""
        await self._reach()
        self._epoch += 1

    async def close(self) -> None:
        """There is nothing to end."""

    async def begin(self) -> Boot:
        """Record that this process begins."""
        await self._reach()
        world = self._world
        self.left = frozenset(world.started.get(self.me, b"").split())
        world.boots[self.me] = now_ms = world.clock.now_ms
        return Boot(now_ms=now_ms, left=self.left)

    async def read(self, count: int, block_ms: int) -> list[Delivered]:
        """New entries, idle ones and those that are handed over; none after `block_ms`."""
        await self._reach()
        try:
            found = self._deliver(count)
            if not found and block_ms > 0:
                await self._world.sleep(block_ms / 1000)
                await self._reach()
                found = self._deliver(count)
        except asyncio.CancelledError:
            self._epoch += 1
            raise
        return found

    async def read_history(
        self, after: Mapping[bytes, bytes], count: int, *, skip: Collection[bytes] = ()
    ) -> list[Delivered]:
        """Own pending entries behind the last ID of each key, refreshed; none: that was all."""
        await self._reach()
        self._world.check_group()
        pages = (
            self._history(stream, after.get(key, b"0-0"), count, skip)
            for key, stream in self._world.streams.items()
        )
        return [page for page in pages if page.entries]

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        """All of it in one round trip."""
        await self._reach()
        found = Exchanged()
        self._acknowledge(outgoing, found)
        if outgoing.started_ids is not None:
            self._world.started[self.me] = outgoing.started_ids
        try:
            self._keep(outgoing.keeps, found)
            if outgoing.read > 0:
                found.delivered = self._deliver(outgoing.read)
        except NoSuchGroup as error:
            found.problem = error
        self._world.wake()
        if self.loses_answer:
            self.loses_answer = False
            self._epoch += 1
            raise OutcomeUnknown("the answer is lost, as it was told to be")
        return found

    async def reject(self, key: bytes, entry_id: bytes, *, reason: str, error: str) -> bool:
        """Dead-letter an entry that is ours; False: it is not, or its body is gone."""
        await self._reach()
        stream = self._world.streams[key]
        if not stream.is_mine(entry_id, self.me):
            return False
        there = entry_id in stream.bodies
        if there:
            owned = stream.pending[entry_id]
            why = {"reason": reason.encode(), "error": error.encode()}
            self._world.add_letter(stream, entry_id, owned, **why)
            stream.acknowledge([entry_id])
        else:
            self._world.bury(stream, entry_id)
        self._world.wake()
        return there

    async def begin_isolated(self, entry_id: bytes) -> int:
        """Count a run of an entry beside which nothing runs; how many have begun and not ended."""
        await self._reach()
        self._world.isolated[entry_id] = self._world.isolated.get(entry_id, 0) + 1
        return self._world.isolated[entry_id]

    async def end_isolated(self, entry_id: bytes) -> None:
        """Such a run has ended, and its process has not: forget all of them."""
        await self._reach()
        self._world.isolated.pop(entry_id, None)

    async def release(self, ids: Ids) -> int:
        """Hand entries back that have not been started; how many others may take at once."""
        await self._reach()
        given = 0
        for key, some in ids.items():
            stream = self._world.streams[key]
            mine = [one for one in some if stream.is_mine(one, self.me) and one in stream.bodies]
            given += self._world.age(mine, stream)
        return given

    async def leave(self) -> bool:
        """Remove this worker's consumer if it owns nothing; whether it is gone."""
        await self._reach()
        world = self._world
        if any(stream.owned_by(self.me) for stream in world.streams.values()):
            return False
        world.consumers.discard(self.me)
        world.started.pop(self.me, None)
        world.boots.pop(self.me, None)
        return True

    async def _reach(self) -> None:
        """A round trip: others come to their turn."""
        await asyncio.sleep(ROUND_TRIP_S)
        if self.is_dead:
            await asyncio.get_running_loop().create_future()  # what a dead process sees
        self._world.check()

    def _deliver(self, count: int) -> list[Delivered]:
        world = self._world
        world.check_group()
        world.consumers.add(self.me)
        now_ms = world.clock.now_ms
        found: list[Delivered] = []
        for key, stream in world.streams.items():
            idle = stream.find_idle(world.processing_timeout_ms, now_ms)[:count]
            entries = stream.take(self.me, idle, now_ms)
            entries += stream.take_new(self.me, count - len(entries), now_ms)
            if entries:
                found.append(Delivered(key, DeliverySource.NEW, entries))
        offered = world.take_over(self.me)
        if offered:
            found.append(Delivered(world.main.key, DeliverySource.HANDED_OVER, offered))
        return found

    def _history(
        self, stream: MemoryStream, after: bytes, count: int, skip: Collection[bytes]
    ) -> Delivered:
        ids = [
            one
            for one in stream.owned_by(self.me)
            if order_of(one) > order_of(after) and one not in skip
        ]
        for one in ids:
            if one not in stream.bodies:
                self._world.bury(stream, one)
        there = [one for one in ids if one in stream.bodies][:count]
        entries = stream.take(self.me, there, self._world.clock.now_ms)
        return Delivered(stream.key, DeliverySource.HISTORY, entries)

    def _acknowledge(self, outgoing: Outgoing, found: Exchanged) -> None:
        streams = self._world.streams
        for key, ids in outgoing.acks.items():
            if ids:
                found.acked[key] = streams[key].acknowledge(ids)
        for key, ids in outgoing.checked_acks.items():
            mine = [one for one in ids if streams[key].is_mine(one, self.me)]
            found.acked[key] = found.acked.get(key, 0) + streams[key].acknowledge(mine)
            if len(mine) < len(ids):
                found.lost.setdefault(key, set()).update(set(ids).difference(mine))

    def _keep(self, keeps: Ids, found: Exchanged) -> None:
        world = self._world
        for key, ids in keeps.items():
            world.check_group()
            stream = world.streams[key]
            for one in ids:
                if not stream.is_mine(one, self.me):
                    found.lost.setdefault(key, set()).add(one)
                elif one not in stream.bodies:
                    world.bury(stream, one)
                    found.gone.setdefault(key, set()).add(one)
                else:
                    stream.pending[one].delivered_ms = world.clock.now_ms
