"""Slower looks where very many groups ask for them, so that one replica keeps up with all."""

from __future__ import annotations

from typing import Final

from pelops.controller.versions import Name

# A look costs the process somewhat less than a millisecond.
BUSY_PER_S: Final = 400
IDLE_PER_S: Final = 80
MOST_FOR_IDLE: Final = 3  # times as long; then the process may become busy


class Crowd:
    """How many groups are looked at often, and how many now and then."""

    def __init__(self) -> None:
        self._busy: set[Name] = set()
        self._idle: set[Name] = set()

    def stretch(self, name: Name, wait_s: float, *, is_idle: bool) -> float:
        """How long the next look at this group should wait, instead of this."""
        joined, left = (self._idle, self._busy) if is_idle else (self._busy, self._idle)
        left.discard(name)
        joined.add(name)
        if is_idle:
            return max(wait_s, min(len(joined) / IDLE_PER_S, MOST_FOR_IDLE * wait_s))
        return max(wait_s, len(joined) / BUSY_PER_S)

    def forget(self, name: Name) -> None:
        """It is looked at no more."""
        self._busy.discard(name)
        self._idle.discard(name)
