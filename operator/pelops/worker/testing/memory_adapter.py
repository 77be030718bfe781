"""A worker's adapter to a group in memory, and the in-memory streams of the group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pelops.domain.naming import GroupKeys
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.errors import NoSuchGroup, OutcomeUnknown, RedisError
from pelops.worker.entry import has_attempt_pairs, read_retry_count
from pelops.worker.server.adapter import (
    Boot,
    Delivered,
    DeliverySource,
    Exchanged,
    Ids,
    Outgoing,
    RawEntry,
)
from pelops.worker.testing.clock import MovableClock


@dataclass(slots=True)
class Owned:
    """The pending state of an entry."""

    owner: bytes
    delivered_ms: int
    deliveries: int


def order_of(entry_id: bytes) -> tuple[int, int]:
    """The sort key of an ID, by its numbers."""
    ms, _, seq = entry_id.partition(b"-")
    return int(ms), int(seq or 0)


class IdSequence:
    """Increasing IDs, unique across the streams of a group: tests identify entries by them."""

    def __init__(self) -> None:
        self._last = (0, -1)

    def next(self, now_ms: int) -> bytes:
        """Generate the ID of an entry that is added now."""
        self._last = max((now_ms, 0), (self._last[0], self._last[1] + 1))
        return b"%d-%d" % self._last


class MemoryStream:
    """One stream: bodies by ID, undelivered IDs and pending entries."""

    def __init__(self, key: bytes, ids: IdSequence) -> None:
        self.key = key
        self.bodies: dict[bytes, list[bytes]] = {}
        self.undelivered: deque[bytes] = deque()
        self.pending: dict[bytes, Owned] = {}
        self.acknowledged: list[bytes] = []
        self._ids = ids

    def add(self, flat: list[bytes], now_ms: int) -> bytes:
        """Add an entry and return its ID."""
        entry_id = self._ids.next(now_ms)
        self.bodies[entry_id] = flat
        self.undelivered.append(entry_id)
        return entry_id

    def deliver_new(self, me: bytes, count: int, now_ms: int) -> list[RawEntry]:
        """Deliver entries that were never delivered."""
        taken: list[RawEntry] = []
        while self.undelivered and len(taken) < count:
            entry_id = self.undelivered.popleft()
            if entry_id in self.bodies:
                self.pending[entry_id] = Owned(me, now_ms, 1)
                taken.append([entry_id, list(self.bodies[entry_id]), 0, 0])
        return taken

    def find_idle(self, limit_ms: int, now_ms: int) -> list[bytes]:
        """Pending entries of any consumer that have been idle for so long."""
        return [
            entry_id
            for entry_id in sorted(self.pending, key=order_of)
            if now_ms - self.pending[entry_id].delivered_ms >= limit_ms and entry_id in self.bodies
        ]

    def claim(self, me: bytes, ids: Iterable[bytes], now_ms: int) -> list[RawEntry]:
        """Deliver pending entries again, to this consumer."""
        taken: list[RawEntry] = []
        for entry_id in ids:
            owned = self.pending[entry_id]
            idle_ms = now_ms - owned.delivered_ms
            taken.append([entry_id, list(self.bodies[entry_id]), idle_ms, owned.deliveries])
            self.pending[entry_id] = Owned(me, now_ms, owned.deliveries + 1)
        return taken

    def owned_by(self, me: bytes) -> list[bytes]:
        """IDs of the pending entries of one consumer, in order."""
        mine = (entry_id for entry_id, owned in self.pending.items() if owned.owner == me)
        return sorted(mine, key=order_of)

    def is_mine(self, entry_id: bytes, me: bytes) -> bool:
        """Whether the entry is pending and this consumer owns it."""
        owned = self.pending.get(entry_id)
        return owned is not None and owned.owner == me

    def acknowledge(self, ids: Iterable[bytes]) -> int:
        """Acknowledge entries of any consumer; return how many were pending."""
        found = [entry_id for entry_id in ids if self.pending.pop(entry_id, None) is not None]
        self.acknowledged += found
        return len(found)

    def destroy_group(self) -> None:
        """Drop all pending entries; a new group begins at the first entry."""
        self.pending.clear()
        self.undelivered = deque(self.bodies)


GONE = b"the entry was deleted or trimmed before it was acknowledged"


class World:
    """A Redis server, with the keys of one group."""

    def __init__(
        self, keys: GroupKeys, clock: MovableClock, *, processing_timeout_ms: int, prefix: bytes
    ) -> None:
        self.keys = keys
        self.clock = clock
        self.processing_timeout_ms = processing_timeout_ms
        self.prefix = prefix
        ids = IdSequence()
        self.main = MemoryStream(keys.stream.encode(), ids)
        self.retry = MemoryStream(keys.retry.encode(), ids)
        self.offers: list[tuple[bytes, int, list[bytes]]] = []  # owner, before, IDs
        self.started: dict[bytes, bytes] = {}
        self.isolated: dict[bytes, int] = {}  # runs in isolation that began and did not end
        self.boots: dict[bytes, int] = {}
        self.consumers: set[bytes] = set()
        self.letters: list[dict[bytes, bytes]] = []
        self.has_group = True
        self.refusal: RedisError | None = None  # raised for all commands while it is set
        self._sleepers: set[asyncio.Future[None]] = set()

    @property
    def streams(self) -> dict[bytes, MemoryStream]:
        """The streams whose entries are processed."""
        return {self.main.key: self.main, self.retry.key: self.retry}

    def check(self) -> None:
        """Raise the error with which Redis refuses every command, if it is set."""
        if self.refusal is not None:
            raise self.refusal

    def check_group(self) -> None:
        """Raise NoSuchGroup when there is none."""
        if not self.has_group:
            raise NoSuchGroup(f"NOGROUP No such key '{self.keys.stream}' or consumer group")

    # Waiting.

    def wake(self) -> None:
        """Wake all sleepers: something has changed."""
        for sleeper in list(self._sleepers):
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Sleep until something changes, at most this long."""
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        self._sleepers.add(sleeper)
        timer = loop.call_later(seconds, self.wake)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)

    # Commands of adapters.

    def claim_offered(self, me: bytes) -> list[RawEntry]:
        """Claim the offered entries that their owners have held since before the offer."""
        taken: list[RawEntry] = []
        offers, self.offers = self.offers, []
        for owner, before_ms, ids in offers:
            theirs = (
                one for one in ids if self.main.is_mine(one, owner) and one in self.main.bodies
            )
            old = [one for one in theirs if self.main.pending[one].delivered_ms < before_ms]
            taken += self.main.claim(me, old, self.clock.now_ms)
        return taken

    def reject_gone(self, stream: MemoryStream, entry_id: bytes) -> None:
        """Dead-letter a pending entry whose body was deleted."""
        owned = stream.pending[entry_id]
        self.add_letter(stream, entry_id, owned, reason=b"PayloadGone", error=GONE)
        stream.acknowledge([entry_id])

    def add_letter(
        self, stream: MemoryStream, entry_id: bytes, owned: Owned, *, reason: bytes, error: bytes
    ) -> None:
        """Add a dead letter with the fields that the scripts write."""
        flat = stream.bodies.get(entry_id, [])
        root, retries = entry_id, b"0"
        if has_attempt_pairs(entry_id, flat, self.prefix):
            retries = b"%d" % read_retry_count(entry_id, flat, self.prefix)
            root, flat = flat[-3], flat[:-4]
        fields = {
            "original_id": root,
            "stream": stream.key,
            "group": self.keys.group.encode(),
            "consumer": owned.owner,
            "delivery_count": b"%d" % owned.deliveries,
            "retry_count": retries,
            "reason": reason,
            "error": error,
            "delivered_ms": b"%d" % owned.delivered_ms,
            "dead_lettered_ms": b"%d" % self.clock.now_ms,
        }
        dead_letter = dict(zip(flat[::2], flat[1::2], strict=True))
        added = {self.prefix + name.encode(): fields[name] for name in LETTER_FIELDS}
        self.letters.append(dead_letter | added)

    def age(self, ids: Iterable[bytes], stream: MemoryStream) -> int:
        """Let these exceed the processing timeout; return how many are pending."""
        at_ms = self.clock.now_ms - self.processing_timeout_ms
        found = [stream.pending[one] for one in ids if one in stream.pending]
        for owned in found:
            owned.delivered_ms = min(owned.delivered_ms, at_ms)
        self.wake()
        return len(found)


ROUND_TRIP_S: Final = 0.001


class MemoryAdapter:
    """A `GroupAdapter` like that of a server with CLAIM; the contract suite tests it."""

    def __init__(self, world: World, consumer: str) -> None:
        self.me = consumer.encode()
        self.is_dead = False  # its process crashed: its commands have no effect
        self.loses_answer = False  # of the next exchange
        self.left: frozenset[bytes] = frozenset()  # entries that a former process had started
        self._world = world
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """Grows when a delivery may have been lost: the worker must then read its history."""
        return self._epoch

    async def open(self) -> None:
        """Connect; refused only after `go_down`."""
        await self._reach()
        self._epoch += 1

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def begin(self) -> Boot:
        """Write the boot record of this process."""
        await self._reach()
        world = self._world
        self.left = frozenset(world.started.get(self.me, b"").split())
        world.boots[self.me] = now_ms = world.clock.now_ms
        return Boot(now_ms=now_ms, left=self.left)

    async def read(self, count: int, block_ms: int) -> list[Delivered]:
        """New, idle and offered entries; an empty list after `block_ms`."""
        await self._reach()
        try:
            delivered = self._deliver(count)
            if not delivered and block_ms > 0:
                await self._world.sleep(block_ms / 1000)
                await self._reach()
                delivered = self._deliver(count)
        except asyncio.CancelledError:
            self._epoch += 1
            raise
        return delivered

    async def read_history(
        self, after: Mapping[bytes, bytes], count: int, *, skip: Collection[bytes] = ()
    ) -> list[Delivered]:
        """Pending entries of this consumer after the given ID of each key; empty at the end."""
        await self._reach()
        self._world.check_group()
        pages = (
            self._history(stream, after.get(key, b"0-0"), count, skip)
            for key, stream in self._world.streams.items()
        )
        return [page for page in pages if page.entries]

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        """Execute these commands in one round trip."""
        await self._reach()
        exchanged = Exchanged()
        self._acknowledge(outgoing, exchanged)
        if outgoing.started_ids is not None:
            self._world.started[self.me] = outgoing.started_ids
        try:
            self._keep(outgoing.keeps, exchanged)
            if outgoing.read > 0:
                exchanged.delivered = self._deliver(outgoing.read)
        except NoSuchGroup as error:
            exchanged.problem = error
        self._world.wake()
        if self.loses_answer:
            self.loses_answer = False
            self._epoch += 1
            raise OutcomeUnknown("the reply is lost: the test called lose_answer()")
        return exchanged

    async def reject(self, key: bytes, entry_id: bytes, *, reason: str, error: str) -> bool:
        """Dead-letter an entry of this consumer; False: it has another owner or no body."""
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
            self._world.reject_gone(stream, entry_id)
        self._world.wake()
        return there

    async def begin_isolated(self, entry_id: bytes) -> int:
        """Count a run of an entry in isolation; return the runs that began and did not end."""
        await self._reach()
        self._world.isolated[entry_id] = self._world.isolated.get(entry_id, 0) + 1
        return self._world.isolated[entry_id]

    async def end_isolated(self, entry_id: bytes) -> None:
        """Reset the count of `begin_isolated`: the run ended and its process did not."""
        await self._reach()
        self._world.isolated.pop(entry_id, None)

    async def release(self, ids: Ids) -> int:
        """Release entries that were not started; return how many are available at once."""
        await self._reach()
        given = 0
        for key, some in ids.items():
            stream = self._world.streams[key]
            mine = [one for one in some if stream.is_mine(one, self.me) and one in stream.bodies]
            given += self._world.age(mine, stream)
        return given

    async def leave(self) -> bool:
        """Remove this worker's consumer if it owns no entries; return whether it is removed."""
        await self._reach()
        world = self._world
        if any(stream.owned_by(self.me) for stream in world.streams.values()):
            return False
        world.consumers.discard(self.me)
        world.started.pop(self.me, None)
        world.boots.pop(self.me, None)
        return True

    async def _reach(self) -> None:
        """Simulate a round trip, during which other tasks can run."""
        await asyncio.sleep(ROUND_TRIP_S)
        if self.is_dead:
            await asyncio.get_running_loop().create_future()  # never returns: the process is dead
        self._world.check()

    def _deliver(self, count: int) -> list[Delivered]:
        world = self._world
        world.check_group()
        world.consumers.add(self.me)
        now_ms = world.clock.now_ms
        delivered: list[Delivered] = []
        for key, stream in world.streams.items():
            idle = stream.find_idle(world.processing_timeout_ms, now_ms)[:count]
            entries = stream.claim(self.me, idle, now_ms)
            entries += stream.deliver_new(self.me, count - len(entries), now_ms)
            if entries:
                delivered.append(Delivered(key, DeliverySource.NEW, entries))
        offered = world.claim_offered(self.me)
        if offered:
            delivered.append(Delivered(world.main.key, DeliverySource.HANDED_OVER, offered))
        return delivered

    def _history(
        self, stream: MemoryStream, after: bytes, count: int, skip: Collection[bytes]
    ) -> Delivered:
        ids = [
            entry_id
            for entry_id in stream.owned_by(self.me)
            if order_of(entry_id) > order_of(after) and entry_id not in skip
        ]
        for one in ids:
            if one not in stream.bodies:
                self._world.reject_gone(stream, one)
        there = [one for one in ids if one in stream.bodies][:count]
        entries = stream.claim(self.me, there, self._world.clock.now_ms)
        return Delivered(stream.key, DeliverySource.HISTORY, entries)

    def _acknowledge(self, outgoing: Outgoing, exchanged: Exchanged) -> None:
        streams = self._world.streams
        for key, ids in outgoing.acks.items():
            if ids:
                exchanged.acked[key] = streams[key].acknowledge(ids)
        for key, ids in outgoing.checked_acks.items():
            mine = [one for one in ids if streams[key].is_mine(one, self.me)]
            exchanged.acked[key] = exchanged.acked.get(key, 0) + streams[key].acknowledge(mine)
            if len(mine) < len(ids):
                exchanged.lost.setdefault(key, set()).update(set(ids).difference(mine))

    def _keep(self, keeps: Ids, exchanged: Exchanged) -> None:
        world = self._world
        for key, ids in keeps.items():
            world.check_group()
            stream = world.streams[key]
            for entry_id in ids:
                if not stream.is_mine(entry_id, self.me):
                    exchanged.lost.setdefault(key, set()).add(entry_id)
                elif entry_id not in stream.bodies:
                    world.reject_gone(stream, entry_id)
                    exchanged.gone.setdefault(key, set()).add(entry_id)
                else:
                    stream.pending[entry_id].delivered_ms = world.clock.now_ms
