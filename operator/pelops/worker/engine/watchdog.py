"""A thread that refreshes entries while a handler blocks the event loop.

The thread sends the heartbeats over its own connection, for a bounded time. A loop that is blocked
for longer counts as dead, and other workers may claim its entries.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final

from pelops.errors import PelopsError
from pelops.worker.engine.exchange import REFRESH_AT, by_key
from pelops.worker.engine.shared import Shared
from pelops.worker.entry import Entry
from pelops.worker.server.adapter import GroupAdapter, Outgoing

log = logging.getLogger("pelops.worker")

_MOST: Final = 1000  # entries in one call


class Watchdog:
    """Checks when the event loop last ran."""

    def __init__(self, shared: Shared, make_adapter: Callable[[], GroupAdapter]) -> None:
        self._make_adapter = make_adapter
        self._in_flight = shared.in_flight
        self._observer = shared.observer
        self._clock = shared.clock
        self._idle_s = shared.settings.idle_s
        self._covered_s = shared.settings.spoken_for_s
        self._ran_s = shared.clock()  # when the loop last ran
        self._timer: asyncio.TimerHandle | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pelops-watchdog", daemon=True)
        self._reported_s = 0.0

    def start(self) -> None:
        """Start the thread. Call it within the event loop to watch."""
        self._tick(asyncio.get_running_loop())
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._ends.set()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ran_s = self._clock()
        self._timer = loop.call_later(min(self._idle_s / 12, 1.0), self._tick, loop)

    @property
    def blocked_s(self) -> float:
        """Seconds for which the loop has been blocked; 0 for a short time."""
        still_s = self._clock() - self._ran_s
        return still_s if still_s > self._idle_s * REFRESH_AT + 1 else 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether the loop has been blocked for too long to refresh its entries."""
        return self.blocked_s > self._covered_s

    def _run(self) -> None:
        while not self._ends.wait(self._idle_s / 6):
            still_s = self._clock() - self._ran_s
            if still_s <= self._idle_s * REFRESH_AT:
                self._reported_s = 0.0
            elif still_s <= self._covered_s:
                self._refresh_for_loop(still_s)
            elif self._reported_s < self._covered_s:
                self._reported_s = still_s
                log.error(
                    "the event loop is blocked for %.0f s: its entries are no longer refreshed, "
                    "and /livez fails",
                    still_s,
                )

    def _refresh_for_loop(self, still_s: float) -> None:
        if not self._reported_s:
            log.error(
                "the event loop is blocked for %.0f s by a handler: a thread refreshes its "
                "entries, "
                "for %.0f s at most",
                still_s,
                self._covered_s,
            )
        self._reported_s = still_s
        self._observer.blocked(still_s)
        before_s = self._clock() - self._idle_s * REFRESH_AT
        try:
            due = self._in_flight.due_for_refresh(before_s, _MOST)
            if due:
                asyncio.run(self._refresh(due))
        except (PelopsError, OSError, RuntimeError) as error:  # entries changed meanwhile
            log.warning(
                "cannot refresh entries while the event loop is blocked: %s: %s",
                type(error).__name__,
                error,
            )

    async def _refresh(self, due: list[Entry]) -> None:
        adapter = self._make_adapter()
        asked_s = self._clock()
        try:
            answer = await adapter.exchange(Outgoing(keeps=by_key(due)))
        finally:
            await adapter.close()
        if answer.problem is not None:
            raise answer.problem
        for entry in due:
            # A lost entry keeps its old time, so the loop checks the owner before it acknowledges.
            if entry.raw_id not in answer.lost.get(entry.key, ()):
                entry.refreshed_s = asked_s
