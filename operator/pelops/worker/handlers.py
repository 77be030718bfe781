"""Adapts the handlers of users to one form, a coroutine function.

Handlers that are not async run in `Threads`, not in a pool of concurrent.futures. There, a handler
that hangs would occupy a thread of the pool and prevent the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pelops.worker.entry import Entry
from pelops.worker.outcomes import Outcome

_Call = tuple[asyncio.Future[Any], Callable[[], Any]]


class Threads:
    """Runs calls in daemon threads: one per concurrent call, reused for later calls."""

    def __init__(self, name: str = "pelops-handler") -> None:
        self._name = name
        self._idle: list[queue.SimpleQueue[_Call | None]] = []
        self._closed = False

    async def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Return the result of `function`.

        A thread cannot be canceled: a cancellation is raised when the call has ended. A second one
        is raised at once; the call then runs to its end, and its result is dropped.
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
                future.exception()  # otherwise asyncio logs that it was never retrieved
            raise

    def close(self) -> None:
        """End the idle threads now, and the others when their calls end."""
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


HandleOne = Callable[[Entry], Awaitable[Any]]
HandleMany = Callable[[list[Entry]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A handler of single entries or of batches: exactly one of the two is set."""

    one: HandleOne | None = None
    many: HandleMany | None = None


def make_handler(given: Any) -> Any:
    """Return the handler itself, or an instance if a class is given."""
    return given() if inspect.isclass(given) else given


def adapt_handler(target: Any, threads: Threads) -> Handler:
    """Adapt a function, async or not, or an object with `handle_batch` or `handle`.

    A function that is not async runs in a thread. Raises TypeError for anything else.
    """
    if hasattr(target, "handle_batch"):
        return Handler(many=_as_async(target.handle_batch, threads))
    if hasattr(target, "handle"):
        return Handler(one=_as_async(target.handle, threads))
    if not callable(target):
        message = "use a function, or an object with handle or handle_batch"
        raise TypeError(f"{target!r} is not a handler: {message}")
    return Handler(one=_as_async(target, threads))


def _as_async(function: Any, threads: Threads) -> Callable[[Any], Awaitable[Any]]:
    called = type(function).__call__  # for an object that is callable
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        answer: Callable[[Any], Awaitable[Any]] = function
        return answer

    async def in_thread(argument: Any) -> Any:
        result = await threads.run(function, argument)
        # functools.partial and the like hide that a function is async.
        return await result if inspect.isawaitable(result) else result

    return in_thread


def decode_first(given: Any, decode: Callable[..., Any], field: str | None) -> Any:
    """Wrap a handler that receives the result of `decode` instead of the entry."""
    if not callable(given) or inspect.isclass(given):
        raise TypeError("decode= requires a function; in a class, call entry.decode")
    if inspect.iscoroutinefunction(given):

        async def decoded(entry: Entry) -> Any:
            return await given(entry.decode(decode, field))

        return decoded
    return lambda entry: given(entry.decode(decode, field))


def outcomes_of_batch(answer: Any, entries: Sequence[Entry]) -> list[Outcome]:
    """One outcome per entry. None: all succeeded; a list: one each, in order."""
    if answer is None:
        return [None] * len(entries)
    if isinstance(answer, BaseException):
        return [answer] * len(entries)
    if isinstance(answer, list | tuple) and len(answer) == len(entries):
        return [one if isinstance(one, BaseException) else None for one in answer]
    message = (
        f"handle_batch returned {type(answer).__name__}: return None, or one outcome per entry"
    )
    return [TypeError(message)] * len(entries)
