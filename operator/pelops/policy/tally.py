"""Counts over times that fade together, so that a rate follows what is new."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A count over a time, both fading together."""

    count: float = 0.0
    seconds: float = 0.0

    def fade(self, over_s: float, fade_s: float) -> Tally:
        """What is left of it `over_s` seconds later."""
        left = exp(-over_s / fade_s)
        return Tally(count=self.count * left, seconds=self.seconds * left)

    def add(self, count: float, seconds: float) -> Tally:
        """The tally with more of both."""
        return Tally(count=self.count + count, seconds=self.seconds + seconds)

    def rate(self, *, shortest_s: float = 0.0) -> float | None:
        """Count per second, over `shortest_s` at least; None when nothing was seen."""
        seconds = max(self.seconds, shortest_s)
        return self.count / seconds if self.seconds > 0 else None
