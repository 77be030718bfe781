"""What users give as a handler, made into one shape: a coroutine function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pelops.worker.engine.threads import Threads
from pelops.worker.entry import Entry
from pelops.worker.outcomes import Outcome

HandleOne = Callable[[Entry], Awaitable[Any]]
HandleMany = Callable[[list[Entry]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Exactly one of the two is there."""

    one: HandleOne | None = None
    many: HandleMany | None = None


def make_handler(given: Any) -> Any:
    """What handles: of a class its one object."""
    return given() if inspect.isclass(given) else given


def adapt_handler(target: Any, threads: Threads) -> Handler:
    """A function, async or not; or an object with `handle_batch` or `handle`.

    A function that is not async runs in a thread.
    """
    if hasattr(target, "handle_batch"):
        return Handler(many=_as_async(target.handle_batch, threads))
    if hasattr(target, "handle"):
        return Handler(one=_as_async(target.handle, threads))
    if not callable(target):
        message = "give a function, or an object with handle_batch"
        raise TypeError(f"{target!r} is no handler: {message}")
    return Handler(one=_as_async(target, threads))


def _as_async(function: Any, threads: Threads) -> Callable[[Any], Awaitable[Any]]:
    called = type(function).__call__  # of an object that is called like a function
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        answer: Callable[[Any], Awaitable[Any]] = function
        return answer

    async def in_thread(argument: Any) -> Any:
        result = await threads.run(function, argument)
        # functools.partial and the like hide that a function is async.
        return await result if inspect.isawaitable(result) else result

    return in_thread


def decode_first(given: Any, decode: Callable[..., Any], field: str | None) -> Any:
    """A handler of what `decode` makes of an entry, as a handler of entries."""
    if not callable(given) or inspect.isclass(given):
        raise TypeError("decode= goes with a function: within a class call entry.decode")
    if inspect.iscoroutinefunction(given):

        async def decoded(entry: Entry) -> Any:
            return await given(entry.decode(decode, field))

        return decoded
    return lambda entry: given(entry.decode(decode, field))


def outcomes_of_batch(answer: Any, entries: Sequence[Entry]) -> list[Outcome]:
    """One outcome for each entry. None: all are done; a list: each has its own, in their order."""
    if answer is None:
        return [None] * len(entries)
    if isinstance(answer, BaseException):
        return [answer] * len(entries)
    if isinstance(answer, list | tuple) and len(answer) == len(entries):
        return [one if isinstance(one, BaseException) else None for one in answer]
    message = f"handle_batch answered {type(answer).__name__}; it is None, or one outcome an entry"
    return [TypeError(message)] * len(entries)
