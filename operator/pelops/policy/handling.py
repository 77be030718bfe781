"""How long workers hold an entry, on average: from the first delivery to the acknowledgement.

No single entry is followed. By Little's law it is the number held at a time, times that time, for
each entry that was acknowledged in it; a buffer of prefetched entries counts as held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import Final

FADE_S: Final = 300.0
LEAST_ACKNOWLEDGED: Final = 5.0  # fewer tell nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """Entry-seconds that were spent, and what came of them; empty after a start."""

    held_s: float = 0.0  # entries times seconds, ...
    acknowledged: float = 0.0  # ... and the entries that this brought to an end
    open_held_s: float = 0.0  # what was spent since the last one was acknowledged, ...
    open_s: float = 0.0  # ... and for how long

    @property
    def mean_s(self) -> float | None:
        """Seconds that a worker holds an entry; None while too little was seen."""
        if self.acknowledged < LEAST_ACKNOWLEDGED:
            return None
        return self.held_s / self.acknowledged


def watch_handling(
    handling: Handling, *, held: float, acknowledged: int, seconds: float
) -> Handling:
    """What is known after so many seconds with `held` entries in the workers' hands. Total.

    Time in which nothing is acknowledged counts only when something is, and for no more than
    `FADE_S`: else entries whose handlers failed would pass for long work once traffic ends.
    """
    counted = max(0.0, min(seconds, FADE_S - handling.open_s))
    open_held_s = handling.open_held_s + held * counted
    open_s = handling.open_s + counted
    if acknowledged <= 0:
        return replace(handling, open_held_s=open_held_s, open_s=open_s)
    left = exp(-open_s / FADE_S)
    return Handling(
        held_s=handling.held_s * left + open_held_s,
        acknowledged=handling.acknowledged * left + acknowledged,
    )
