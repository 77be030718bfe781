"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and return when all of them have ended."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        # Before Python 3.12 wait_for, which redis-py uses, may swallow a cancellation that comes
        # together with its result: https://github.com/python/cpython/issues/86296
        _, pending = await asyncio.wait(pending, timeout=0.1)
