"""Reads entries: first the consumer's history, then new, idle and offered entries."""

from __future__ import annotations

import asyncio

from pelops.errors import RedisError
from pelops.worker.engine.prefetch import FinishRate
from pelops.worker.engine.shared import Alarm, Shared
from pelops.worker.server.adapter import Delivered

_PATIENCE_S = 0.05  # in addition to the adapter's own backoff
_CHECK_S = 1.0


class BlockingReader:
    """Reads with blocking commands. While entries arrive fast, exchanges read instead."""

    def __init__(self, shared: Shared) -> None:
        self.alarm = Alarm()
        self.pace = FinishRate(shared.clock())
        self.is_closing = False
        self.has_read = False  # a read succeeded: the worker is ready
        self._adapter = shared.adapter
        self._in_flight = shared.in_flight
        self._prefetcher = shared.prefetcher
        self._receiving = shared.receiving
        self._refusals = shared.refusals
        self._block_ms = shared.settings.block_ms
        self._clock = shared.clock
        self._epoch: int | None = None  # in which the history was read to its end

    @property
    def has_unread_history(self) -> bool:
        """Whether entries may have been delivered that did not arrive."""
        return self._epoch != self._adapter.epoch

    @property
    def queued(self) -> int:
        """Number of entries that wait for a start record, including those put off."""
        return self._in_flight.queued + self._receiving.coming

    def room(self) -> int:
        """Number of entries that may be read now."""
        in_flight = self._in_flight
        if in_flight.is_isolating:
            return 0
        held = self.queued + in_flight.active
        return self._prefetcher.room(held=held, waiting=in_flight.waiting, per_s=self.pace.per_s)

    async def run(self, arrived: Alarm) -> None:
        """Read until `is_closing`; the read that is in progress then still counts."""
        while not self.is_closing:
            try:
                if self.has_unread_history:
                    await self._read_history(arrived)
                elif self._prefetcher.is_pouring or (room := self.room()) <= 0:
                    await self.alarm.wait(_CHECK_S)
                else:
                    await self._read(room, arrived)
            except RedisError as error:
                self._refusals.report("read", error)
                await asyncio.sleep(_PATIENCE_S)
            else:
                self._refusals.end("read")

    async def _read(self, room: int, arrived: Alarm) -> None:
        asked_s = self._clock()
        delivered = await self._adapter.read(room, self._block_ms)
        got = self._receiving.accept(delivered, asked_s)
        self.has_read = True
        self._prefetcher.learn(asked=room, got=got)
        if got:
            arrived.ring()

    async def _read_history(self, arrived: Alarm) -> None:
        epoch = self._adapter.epoch
        after: dict[bytes, bytes] = {}
        while not self.is_closing and epoch == self._adapter.epoch:
            room = self.room()
            if room <= 0:
                await self.alarm.wait(_CHECK_S)
                continue
            self._receiving.catch_up()
            held = {(entry.key, entry.raw_id) for entry in self._in_flight}
            asked_s = self._clock()
            delivered = await self._adapter.read_history(after, room, skip=self._receiving.left)
            if not delivered:
                self._epoch = epoch
                return
            after |= {some.key: some.entries[-1][0] for some in delivered if some.entries}
            self._forget_settled(delivered, held)
            self._receiving.accept(delivered, asked_s)
            arrived.ring()

    def _forget_settled(self, found: list[Delivered], held: set[tuple[bytes, bytes]]) -> None:
        """Leave out entries that were settled after the page was requested."""
        settled = {(key, raw_id) for key, raw_id in held if not self._in_flight.get(key, raw_id)}
        for some in found if settled else ():
            some.entries = [raw for raw in some.entries if (some.key, raw[0]) not in settled]
