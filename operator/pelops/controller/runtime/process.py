"""Ending tasks of asyncio, however they cling to life.

A full collection walks every object that lives, and nothing else runs meanwhile. With the objects
of a thousand resources in memory that was 0.3 s of processor time every ten to fifteen seconds, and
seconds on a busy machine: as long a group at zero waited for its first worker. What lives long is
therefore set aside (`gc.freeze`), and full collections happen here only, of what is new since the
last. What was set aside is freed as soon as nobody refers to it; only cycles in it have to wait for
the thorough collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Collection, Coroutine
from typing import Any, Final, TypeVar

Result = TypeVar("Result")


async def until_stopped(work: Coroutine[Any, Any, Result], stop: asyncio.Event) -> Result | None:
    """The result of the work, or None when the stop came first."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for pending in (task, stopped):
        if not pending.done():
            pending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pending
    return None if task.cancelled() else task.result()


async def cancel_all(tasks: Collection[asyncio.Task[None]]) -> None:
    """End tasks, however often they must be asked.

    `asyncio.wait_for`, which redis-py uses, may swallow a cancellation on Python 3.11
    (https://github.com/python/cpython/issues/86296).
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)


FIRST_S: Final = 10.0  # after the start, when the watch has told of everything
EVERY_S: Final = 60.0
THOROUGH_EVERY: Final = 60  # tidyings
_NEVER: Final = 2**31 - 1


class Heap:
    """The objects of this process."""

    def __init__(self) -> None:
        self._tidied = 0

    async def run(self) -> None:
        """Tidy now and then until cancelled."""
        await asyncio.sleep(FIRST_S)
        while True:
            self.tidy()
            await asyncio.sleep(EVERY_S)

    def tidy(self) -> None:
        """Free the cycles among new objects, and set aside what lives. To be called regularly."""
        gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
        if self._tidied % THOROUGH_EVERY == 0:
            gc.unfreeze()
        self._tidied += 1
        gc.collect()
        gc.freeze()
