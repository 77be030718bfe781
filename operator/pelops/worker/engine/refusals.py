"""Says what Redis refuses: when it begins, from time to time, and when it is over."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from pelops.worker.engine.clock import Clock
from pelops.worker.engine.observer import Observer
from pelops.worker.server.adapter import NameTaken

log = logging.getLogger("pelops.worker")

_AGAIN_S: Final = 30.0
_LAPSES_S: Final = 5.0


class Complaints:
    """Refusals by what was asked."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self._said: dict[str, _Said] = {}

    @property
    def current(self) -> list[str]:
        """What is refused at present, and why."""
        now_s = self._clock()
        for what in [what for what, said in self._said.items() if said.until_s <= now_s]:
            self.end(what)
        return [
            f"{what}: {said.why}" for what, said in sorted(self._said.items(), key=itemgetter(0))
        ]

    def hear(self, what: str, error: BaseException) -> None:
        """Redis did not do this."""
        self._observer.refused(what, error)
        # Heard again and again by whatever is asked, as long as it lasts.
        lasts_s = math.inf
        if isinstance(error, NameTaken):
            what, lasts_s = "name", _LAPSES_S
        now_s, former = self._clock(), self._said.get(what)
        about = (type(error), getattr(error, "command", None), getattr(error, "key", None))
        said = _Said(about, f"{type(error).__name__}: {error}", now_s, now_s + lasts_s)
        if former is not None and former.about == about and now_s - former.at_s < _AGAIN_S:
            said.at_s = former.at_s
        else:
            log.warning("%s: %s; trying on", what, said.why)
        self._said[what] = said

    def end(self, what: str) -> None:
        """Redis does it."""
        if self._said.pop(what, None) is not None:
            log.info("%s: works again", what)


@dataclass(slots=True)
class _Said:
    about: tuple[object, ...]  # the same as long as this is: then it is not said again so soon
    why: str
    at_s: float
    until_s: float  # it is over then, if it is not heard again
