"""An event loop whose clock jumps to the next timer: waiting costs no time, and order is exact."""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Reports how long it would wait, and does not wait."""

    def __init__(self, on_wait: Callable[[float], None]) -> None:
        super().__init__()
        self._on_wait = on_wait

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("all tasks wait for something that no timer brings")
        self._on_wait(max(timeout, 0.0))
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0 s."""

    def __init__(self) -> None:
        super().__init__(_JumpingSelector(self._wait))
        self._now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def _wait(self, seconds: float) -> None:
        self._now_s += seconds


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that ran in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtually(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtually(test(*args, **kwargs))

    return run


def in_scene(
    build: Callable[[], AbstractAsyncContextManager[S]],
) -> Callable[[Callable[Concatenate[S, P], Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Run an asynchronous test in virtual time, with a scene as its first argument."""

    def decorate(
        test: Callable[Concatenate[S, P], Coroutine[Any, Any, None]],
    ) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def main() -> None:
                async with build() as scene:
                    await test(scene, *args, **kwargs)

            run_virtually(main())

        # pytest gives the other arguments only.
        _, *others = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return run

    return decorate
