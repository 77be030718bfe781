"""Threads for handlers that are not async.

Not those of concurrent.futures: a handler that hangs would keep the process from ending, and its
place would be lost to the others.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Call = tuple[asyncio.Future[Any], Callable[[], Any]]


class Threads:
    """Runs calls in daemon threads. As many as run at once, kept for the next ones."""

    def __init__(self, name: str = "pelops-handler") -> None:
        self._name = name
        self._idle: list[queue.SimpleQueue[_Call | None]] = []
        self._closed = False

    async def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """What `function` answers.

        A thread cannot be cancelled: a cancellation is raised when the call has ended. A second one
        is raised at once, and the call runs on with nobody to hear of it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        inbox = self._idle.pop() if self._idle else self._begin(loop)
        inbox.put((future, lambda: context.run(function, argument)))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # it is known: nobody need be told that it was not
            raise

    def close(self) -> None:
        """End the threads that have nothing to do; the others end when they are done."""
        self._closed = True
        for inbox in self._idle:
            inbox.put(None)
        self._idle.clear()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> queue.SimpleQueue[_Call | None]:
        inbox: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        work = threading.Thread(target=self._work, args=(loop, inbox), name=self._name, daemon=True)
        work.start()
        return inbox

    def _work(
        self, loop: asyncio.AbstractEventLoop, inbox: queue.SimpleQueue[_Call | None]
    ) -> None:
        while (call := inbox.get()) is not None:
            future, function = call
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            del call, function
            try:
                loop.call_soon_threadsafe(self._report, inbox, future, result, error)
            except RuntimeError:  # the loop has ended meanwhile
                return

    def _report(
        self,
        inbox: queue.SimpleQueue[_Call | None],
        future: asyncio.Future[Any],
        result: Any,
        error: BaseException | None,
    ) -> None:
        if self._closed:
            inbox.put(None)
        else:
            self._idle.append(inbox)
        if future.done():  # cancelled
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("the handler raised StopIteration"))
        else:
            future.set_exception(error)
