"""Says what Redis refuses: when it begins, from time to time, and when it is over."""

from __future__ import annotations

import logging
from typing import Final

from pelops.worker.clock import Clock
from pelops.worker.observing import Observer

log = logging.getLogger("pelops.worker")

_AGAIN_S: Final = 30.0


class Complaints:
    """Refusals by what was asked."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self._said: dict[str, tuple[type[BaseException], float]] = {}

    @property
    def current(self) -> list[str]:
        """What is refused at present."""
        return sorted(self._said)

    def hear(self, what: str, error: BaseException) -> None:
        """Redis did not do this."""
        self._observer.refused(what, error)
        now_s = self._clock()
        kind, said_s = self._said.get(what, (None, 0.0))
        if kind is not type(error) or now_s - said_s >= _AGAIN_S:
            self._said[what] = (type(error), now_s)
            log.warning("%s: %s: %s; trying on", what, type(error).__name__, error)

    def end(self, what: str) -> None:
        """Redis does it."""
        if what in self._said:
            del self._said[what]
            log.info("%s: works again", what)
