"""A queue of keys with due times. A key has one place, and one worker at a time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def is_wanted() -> bool:
    """Whether the current task was not cancelled.

    A loop checks this because the cancellation may not reach it: `asyncio.wait_for` in redis-py can
    swallow the exception on Python 3.11. The request is still counted.
    """
    task = asyncio.current_task()
    return task is None or not task.cancelling()


class KeyedQueue(Generic[K]):
    """Keys wait until they are due. A key that is added twice has one place, at the earlier time.

    A key that is added while a worker has it is due again after `done`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0  # keeps the heap from comparing keys
        self._taken: dict[K, float | None] = {}  # taken keys, and when they are wanted again
        self._changed = asyncio.Event()
        # One worker waits for the clock, and the others for the lock.
        self._turns = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._due)

    def count_due(self) -> int:
        """The number of keys that are due and wait."""
        now = self._clock()
        return sum(due <= now for due in self._due.values())

    def overdue_s(self) -> float:
        """Seconds for which the first key has been due; 0 if none is due."""
        wait_s = self._until_due()
        return 0.0 if wait_s is None else max(0.0, -wait_s)

    def add(self, key: K, *, delay_s: float = 0.0) -> None:
        """Make the key due after the delay, or earlier if it already is."""
        due = self._clock() + delay_s
        if key in self._taken:
            wanted = self._taken[key]
            self._taken[key] = due if wanted is None else min(due, wanted)
            return
        if key in self._due and self._due[key] <= due:
            return
        self._push(key, due)

    def postpone(self, key: K, *, delay_s: float) -> None:
        """Make a waiting key due after the delay, and not earlier. Ignores other keys."""
        if key in self._due:
            self._push(key, self._clock() + delay_s)

    async def take(self) -> K:
        """The next key that is due; the caller must call `done`."""
        async with self._turns:
            while (wait_s := self._until_due()) is None or wait_s > 0:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    # `wait_for` may swallow a cancellation on Python 3.11 (cpython issue 86296).
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._taken[key] = None
            return key

    def done(self, key: K, *, again_s: float | None = None) -> None:
        """Give a taken key back, due again after `again_s` unless it was wanted earlier."""
        wanted = self._taken.pop(key)
        times = [wanted] if wanted is not None else []
        if again_s is not None:
            times.append(self._clock() + again_s)
        if times:
            self._push(key, min(times))

    def _push(self, key: K, due: float) -> None:
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        self._changed.set()

    def _until_due(self) -> float | None:
        """Seconds until the first key is due; None when nothing waits."""
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due:
                return due - self._clock()
            heapq.heappop(self._heap)
        return None
