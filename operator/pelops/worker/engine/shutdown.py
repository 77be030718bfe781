"""How a worker ends.

Stop reading; hand back what has not started; let handlers finish, and cancel those that do not
within the grace period; say once what is done; hand back the rest; leave if the backlog is empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from pelops.errors import RedisError
from pelops.worker.engine.acknowledgements import by_key
from pelops.worker.engine.blocking_reads import BlockingReader
from pelops.worker.engine.dead_letters import Rejecting
from pelops.worker.engine.exchange import Exchanging
from pelops.worker.engine.shared import Shared
from pelops.worker.engine.slots import Slots
from pelops.worker.entry import Entry

log = logging.getLogger("pelops.worker")

CANCELLED_FOR_S: Final = 1.0  # what handlers get to clean up
LAST_WORDS_S: Final = 3.0  # what Redis gets to answer, beside the grace period
_PATIENCE_S: Final = 0.1


class WindDown:
    """The last part of a worker's life."""

    def __init__(
        self,
        shared: Shared,
        *,
        reader: BlockingReader,
        exchanging: Exchanging,
        rejecting: Rejecting,
        slots: Slots,
    ) -> None:
        self.unfinished: list[Entry] = []  # their handlers were cancelled, and have ended
        self._shared = shared
        self._reader = reader
        self._exchanging = exchanging
        self._rejecting = rejecting
        self._slots = slots
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Cancel handlers now."""
        self._hurry.set()

    async def run(self, loops: Sequence[asyncio.Task[None]]) -> None:
        """Wind down; takes little more than the grace period."""
        reading, exchanging, rejecting = loops
        ends_s = self._now() + self._shared.settings.grace_s
        self._reader.is_closing = self._exchanging.is_closing = True
        self._reader.alarm.ring()
        await self._release(self._shared.in_flight.abandon())
        await asyncio.wait([reading], timeout=self._shared.settings.block_ms / 1000 + 1)
        await self._release(self._shared.in_flight.abandon())  # what a last read brought
        await self._finish_handlers(ends_s)
        await self._end_loops(exchanging, rejecting)
        await self._say_last_words()

    async def _finish_handlers(self, ends_s: float) -> None:
        hurried = asyncio.create_task(self._hurry.wait())
        try:
            while self._shared.in_flight.running and not self._hurry.is_set():
                left_s = ends_s - self._now()
                if left_s <= 0:
                    break
                slots = [*self._slots.tasks, hurried]
                await asyncio.wait(slots, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        await self._cancel_handlers()

    async def _cancel_handlers(self) -> None:
        running = self._shared.in_flight.running
        for entry, task in running.items():
            entry.cancelled_for = entry.cancelled_for or "shutdown"
            task.cancel()
        if running:
            log.warning("%d handlers are cancelled", len(running))
            await asyncio.wait(set(running.values()), timeout=CANCELLED_FOR_S)
        for entry in running:
            log.error("%r: its handler does not end; recovery will give it to others", entry)

    async def _end_loops(self, *loops: asyncio.Task[None]) -> None:
        self._exchanging.has_ended = True
        self._exchanging.alarm.ring()
        self._rejecting.end()
        await asyncio.wait(loops, timeout=LAST_WORDS_S)

    async def _say_last_words(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._flush()
                leftovers = [*self._shared.in_flight.abandon(), *self.unfinished]
                await self._release(leftovers)
                await self._shared.adapter.leave()
        except TimeoutError:
            log.error("Redis does not answer; %s", self._owed())
        except RedisError as error:
            log.error("%s: %s; %s", type(error).__name__, error, self._owed())

    async def _flush(self) -> None:
        while not await self._exchanging.exchange() and self._shared.in_flight.done:
            await asyncio.sleep(_PATIENCE_S)
        for _ in range(len(self._rejecting)):
            await self._rejecting.reject_next()

    async def _release(self, entries: list[Entry]) -> None:
        if not entries:
            return
        try:
            await self._shared.adapter.release(by_key(entries))
        except RedisError as error:
            # They stay pending with this name: recovery moves them when the process is gone.
            log.warning("%d entries not handed back: %s", len(entries), type(error).__name__)
        self._shared.in_flight.settle(entries)

    def _owed(self) -> str:
        return f"{len(self._shared.in_flight)} entries stay pending and will be delivered again"

    def _now(self) -> float:
        return self._shared.clock()
