"""Observes the backlog at intervals, in the background."""

import threading
from collections.abc import Callable

from demo.following import now_ms
from demo.scaling import GroupBacklog, Look

EVERY_S = 0.2


class SamplingEnded(Exception):
    """A look failed, so that no more were taken; the cause has the reason."""


class Sampling:
    """Collects looks in a thread of its own, from its making on until `stop`."""

    def __init__(self, look: Callable[[], GroupBacklog | None]) -> None:
        self._look = look
        self._looks: list[Look] = []
        self._failure: Exception | None = None
        self._is_over = threading.Event()
        threading.Thread(target=self._go_on, name="sampling", daemon=True).start()

    @property
    def looks(self) -> tuple[Look, ...]:
        """All looks that returned a backlog so far. Raises SamplingEnded when no more will come."""
        if self._failure is not None:
            raise SamplingEnded(str(self._failure)) from self._failure
        return tuple(self._looks)

    def stop(self) -> None:
        """Take no more of them."""
        self._is_over.set()

    def _go_on(self) -> None:
        while not self._is_over.wait(EVERY_S):
            try:
                backlog = self._look()
            except Exception as error:  # raised by `looks`
                self._failure = error
                return
            if backlog is not None:
                self._looks.append(Look(at_ms=now_ms(), backlog=backlog))
