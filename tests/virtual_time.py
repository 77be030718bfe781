"""An event loop whose clock jumps to the next timer: waiting costs no time, and order is exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
