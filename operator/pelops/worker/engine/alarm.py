"""Waiting for something to do, or for a time."""

from __future__ import annotations

import asyncio


class Alarm:
    """One task waits, anybody may ring. Cheaper than `wait_for`, which makes a task each time."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._is_ringing = False

    def ring(self) -> None:
        """End the wait, or the next one if nobody waits."""
        self._is_ringing = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait for a ring, at most so long."""
        if not self._is_ringing and seconds > 0:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(seconds, self.ring)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        self._is_ringing = False
