"""A clock that tests move, and an event loop that uses it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, Final

BEGINNING_MS: Final = 1_700_000_000_000  # start of the clock, in entry IDs


class MovableClock:
    """Seconds since the test began. Only `move` changes it."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    @property
    def now_ms(self) -> int:
        """Milliseconds, as the clock of Redis returns them."""
        return BEGINNING_MS + round(self._now_s * 1000)

    def move(self, seconds: float) -> None:
        """Let time pass, in seconds. In a handler: as if it had blocked the event loop."""
        if not seconds >= 0:
            raise ValueError(f"the clock cannot move back: {seconds} s")
        self._now_s += seconds


class _Jumping(selectors.DefaultSelector):
    """Reports how long it would have waited, and does not wait."""

    def __init__(self, on_wait: Callable[[float], None]) -> None:
        super().__init__()
        self._on_wait = on_wait

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout:
            self._on_wait(timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting moves the clock and takes no time."""

    def __init__(self, clock: MovableClock) -> None:
        super().__init__(_Jumping(clock.move))
        self._movable = clock
        self._put_off: list[tuple[Any, Any, Any]] = []

    def time(self) -> float:
        return self._movable()

    def break_off(self) -> None:
        """Stop the loop at once, and hold back callbacks that are ready."""
        for handle in self._ready_handles():
            self._put_off.append((handle._callback, handle._args, handle._context))
            handle.cancel()
        self.stop()

    def resume(self) -> None:
        """Schedule the callbacks that `break_off` held back, so that cancelled tasks can end."""
        for callback, arguments, context in self._put_off:
            self.call_soon(callback, *arguments, context=context)
        self._put_off.clear()

    def _ready_handles(self) -> list[Any]:
        # asyncio has no other way to stop at once.
        ready: Any = getattr(self, "_ready")  # noqa: B009 - it is not typed
        return [handle for handle in ready if not handle.cancelled()]
