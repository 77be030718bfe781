"""Ending tasks of asyncio, however they cling to life."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

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
