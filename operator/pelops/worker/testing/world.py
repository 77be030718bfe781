"""A group's streams and what is remembered beside them, as adapters share them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pelops.domain.dead_letters import LETTER_FIELDS
from pelops.domain.naming import GroupKeys
from pelops.errors import NoSuchGroup, RedisError
from pelops.worker.entry import has_attempt_pairs
from pelops.worker.server.adapter import RawEntry
from pelops.worker.testing.clock import MovableClock
from pelops.worker.testing.memory import Ids, MemoryStream, Owned

GONE = b"the entry was deleted or trimmed before it was acknowledged"


class World:
    """One Redis, as far as one group is concerned."""

    def __init__(
        self, keys: GroupKeys, clock: MovableClock, *, processing_timeout_ms: int, prefix: bytes
    ) -> None:
        self.keys = keys
        self.clock = clock
        self.processing_timeout_ms = processing_timeout_ms
        self.prefix = prefix
        ids = Ids()
        self.main = MemoryStream(keys.stream.encode(), ids)
        self.retry = MemoryStream(keys.retry.encode(), ids)
        self.offers: list[tuple[bytes, int, list[bytes]]] = []  # owner, before, IDs
        self.started: dict[bytes, bytes] = {}
        self.isolated: dict[bytes, int] = {}  # runs of entries that began alone and did not end
        self.boots: dict[bytes, int] = {}
        self.consumers: set[bytes] = set()
        self.letters: list[dict[bytes, bytes]] = []
        self.has_group = True
        self.refusal: RedisError | None = None  # of everything, until it is taken away
        self._sleepers: set[asyncio.Future[None]] = set()

    @property
    def streams(self) -> dict[bytes, MemoryStream]:
        """Those whose entries are worked on."""
        return {self.main.key: self.main, self.retry.key: self.retry}

    def check(self) -> None:
        """Raise what Redis refuses with at present."""
        if self.refusal is not None:
            raise self.refusal

    def check_group(self) -> None:
        """Raise NoSuchGroup when there is none."""
        if not self.has_group:
            raise NoSuchGroup(f"NOGROUP No such key '{self.keys.stream}' or consumer group")

    # Waiting.

    def wake(self) -> None:
        """Something has changed."""
        for sleeper in list(self._sleepers):
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Until something changes, or for so long."""
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        self._sleepers.add(sleeper)
        timer = loop.call_later(seconds, self.wake)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)

    # What adapters ask for.

    def take_over(self, me: bytes) -> list[RawEntry]:
        """What the operator offers, as far as its owners had it since before the offer."""
        taken: list[RawEntry] = []
        offers, self.offers = self.offers, []
        for owner, before_ms, ids in offers:
            theirs = (
                one for one in ids if self.main.is_mine(one, owner) and one in self.main.bodies
            )
            old = [one for one in theirs if self.main.pending[one].delivered_ms < before_ms]
            taken += self.main.take(me, old, self.clock.now_ms)
        return taken

    def bury(self, stream: MemoryStream, entry_id: bytes) -> None:
        """Record a pending entry whose body is gone."""
        owned = stream.pending[entry_id]
        self.add_letter(stream, entry_id, owned, reason=b"PayloadGone", error=GONE)
        stream.acknowledge([entry_id])

    def add_letter(
        self, stream: MemoryStream, entry_id: bytes, owned: Owned, *, reason: bytes, error: bytes
    ) -> None:
        """A dead letter with the fields that the scripts write."""
        flat = stream.bodies.get(entry_id, [])
        root, retries = entry_id, b"0"
        if has_attempt_pairs(flat, self.prefix):
            root, retries, flat = flat[-3], flat[-1], flat[:-4]
        reported = {
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
        letter = dict(zip(flat[::2], flat[1::2], strict=True))
        added = {self.prefix + name.encode(): reported[name] for name in LETTER_FIELDS}
        self.letters.append(letter | added)

    def age(self, ids: Iterable[bytes], stream: MemoryStream) -> int:
        """Have others claim these at the next opportunity; how many there are."""
        at_ms = self.clock.now_ms - self.processing_timeout_ms
        found = [stream.pending[one] for one in ids if one in stream.pending]
        for owned in found:
            owned.delivered_ms = min(owned.delivered_ms, at_ms)
        self.wake()
        return len(found)
