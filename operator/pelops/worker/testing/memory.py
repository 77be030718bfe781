"""What Redis keeps of a stream with one consumer group. No clock: callers give `now_ms`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from pelops.worker.server.adapter import RawEntry


@dataclass(slots=True)
class Owned:
    """A pending entry's owner."""

    owner: bytes
    delivered_ms: int
    deliveries: int


def order_of(entry_id: bytes) -> tuple[int, int]:
    """IDs compare as numbers."""
    ms, _, seq = entry_id.partition(b"-")
    return int(ms), int(seq or 0)


class Ids:
    """Ever higher IDs. No two streams of a group share one: tests name entries by it."""

    def __init__(self) -> None:
        self._last = (0, -1)

    def next(self, now_ms: int) -> bytes:
        """The ID of an entry that is added now."""
        self._last = max((now_ms, 0), (self._last[0], self._last[1] + 1))
        return b"%d-%d" % self._last


class MemoryStream:
    """Bodies by ID, what is not delivered yet, and what is pending."""

    def __init__(self, key: bytes, ids: Ids) -> None:
        self.key = key
        self.bodies: dict[bytes, list[bytes]] = {}
        self.undelivered: deque[bytes] = deque()
        self.pending: dict[bytes, Owned] = {}
        self.acknowledged: list[bytes] = []
        self._ids = ids

    def add(self, flat: list[bytes], now_ms: int) -> bytes:
        """A new entry; its ID."""
        entry_id = self._ids.next(now_ms)
        self.bodies[entry_id] = flat
        self.undelivered.append(entry_id)
        return entry_id

    def take_new(self, me: bytes, count: int, now_ms: int) -> list[RawEntry]:
        """Deliver what nobody was given yet."""
        taken: list[RawEntry] = []
        while self.undelivered and len(taken) < count:
            entry_id = self.undelivered.popleft()
            if entry_id in self.bodies:
                self.pending[entry_id] = Owned(me, now_ms, 1)
                taken.append([entry_id, list(self.bodies[entry_id]), 0, 0])
        return taken

    def find_idle(self, limit_ms: int, now_ms: int) -> list[bytes]:
        """Pending entries that have been idle for so long, whosever they are."""
        return [
            entry_id
            for entry_id in sorted(self.pending, key=order_of)
            if now_ms - self.pending[entry_id].delivered_ms >= limit_ms and entry_id in self.bodies
        ]

    def take(self, me: bytes, ids: Iterable[bytes], now_ms: int) -> list[RawEntry]:
        """Deliver pending entries once more."""
        taken: list[RawEntry] = []
        for entry_id in ids:
            owned = self.pending[entry_id]
            idle_ms = now_ms - owned.delivered_ms
            taken.append([entry_id, list(self.bodies[entry_id]), idle_ms, owned.deliveries])
            self.pending[entry_id] = Owned(me, now_ms, owned.deliveries + 1)
        return taken

    def owned_by(self, me: bytes) -> list[bytes]:
        """The pending entries of one consumer, in their order."""
        mine = (entry_id for entry_id, owned in self.pending.items() if owned.owner == me)
        return sorted(mine, key=order_of)

    def is_mine(self, entry_id: bytes, me: bytes) -> bool:
        """Whether it is pending, and with this consumer."""
        owned = self.pending.get(entry_id)
        return owned is not None and owned.owner == me

    def acknowledge(self, ids: Iterable[bytes]) -> int:
        """How many had been pending, whosever they were."""
        found = [entry_id for entry_id in ids if self.pending.pop(entry_id, None) is not None]
        self.acknowledged += found
        return len(found)

    def destroy_group(self) -> None:
        """Nothing is pending any more; a new group begins at the first entry."""
        self.pending.clear()
        self.undelivered = deque(self.bodies)
