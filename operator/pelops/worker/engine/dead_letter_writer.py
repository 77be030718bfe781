"""Writes dead letters, and repeats each write until Redis accepts it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from pelops.errors import RedisError
from pelops.worker.engine.retries import GivenUp
from pelops.worker.engine.shared import Alarm, Shared
from pelops.worker.entry import Entry

log = logging.getLogger("pelops.worker")

_PATIENCE_S: Final = 0.2
_CHECK_S: Final = 60.0


class DeadLetterWriter:
    """Moves entries to the dead-letter stream. They stay in flight, with heartbeats, until then."""

    def __init__(self, shared: Shared, disown: Callable[[Iterable[Entry]], None]) -> None:
        self.has_ended = False
        self._adapter = shared.adapter
        self._in_flight = shared.in_flight
        self._observer = shared.observer
        self._refusals = shared.refusals
        self._disown = disown
        self._most_bytes = shared.settings.max_entry_bytes
        self._queue: deque[tuple[Entry, GivenUp]] = deque()
        self._alarm = Alarm()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, entry: Entry, why: GivenUp) -> None:
        """Queue this entry for the dead-letter stream."""
        self._queue.append((entry, why))
        self._alarm.ring()

    def end(self) -> None:
        """Let `run` return."""
        self.has_ended = True
        self._alarm.ring()

    async def run(self) -> None:
        """Write dead letters until `end` is called; the write in progress is completed."""
        while not self.has_ended:
            if not self._queue:
                await self._alarm.wait(_CHECK_S)
            elif not await self.reject_next():
                await asyncio.sleep(_PATIENCE_S)

    async def reject_next(self) -> bool:
        """Write the next dead letter; False: Redis refused it, and it is retried."""
        entry, why = self._queue[0]
        if entry.is_disowned:
            self._queue.popleft()
            return True
        if entry.size > self._most_bytes:
            self._queue.popleft()
            self._leave_pending(entry, why)
            return True
        try:
            ours = await self._adapter.reject(
                entry.key, entry.raw_id, reason=why.reason, error=why.error
            )
        except RedisError as error:
            self._refusals.report("reject", error)
            self._queue.rotate(-1)  # one that fails must not block the others
            return False
        self._refusals.end("reject")
        self._queue.remove((entry, why))
        self._note(entry, why, ours)
        return True

    def _leave_pending(self, entry: Entry, why: GivenUp) -> None:
        """Leave an entry pending that is too large to copy; recovery reports it."""
        self._disown([entry])
        log.error(
            "%r has %d bytes, more than PELOPS_MAX_ENTRY_BYTES (%d): no dead letter is written "
            "for it "
            "(reason %s) and it stays pending. Raise the limit, or acknowledge the entry",
            *(entry, entry.size, self._most_bytes, why.reason),
        )

    def _note(self, entry: Entry, why: GivenUp, ours: bool) -> None:
        if ours:
            self._in_flight.settle([entry])
            self._observer.rejected(entry, why.reason)
            log.warning("%r: moved to the dead-letter stream, reason %s", entry, why.reason)
        else:
            self._disown([entry])
