"""Tasks that listen to masters are ended."""

from __future__ import annotations

import asyncio
import contextlib

from pelops.redis_core.masters import end_tasks


async def _swallow(times: int) -> None:
    """Wait for ever, and swallow so many cancellations first, as redis-py may."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


async def test_tasks_end_though_their_end_is_cancelled_meanwhile() -> None:
    task = asyncio.create_task(_swallow(3))
    ending = asyncio.create_task(end_tasks([task]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it waits for the task now
    ending.cancel()
    await asyncio.wait([ending])
    assert ending.cancelled()
    assert task.cancelled()
