"""How much to read, and when. Pure: callers give `now`.

A worker holds no more than it can start soon: what it can run at once, and beside that what it has
been finishing within a fraction of a second. Entries that come slowly are waited for by a
blocking read; while they pour in, reads travel with the acknowledgements, at no round trip.
"""

from __future__ import annotations

import math
from typing import Final

AHEAD_S: Final = 0.2  # what can be started within this time may wait here
_WINDOW_S: Final = 0.05  # over which the rate is measured
_FIRST_WINDOW_S: Final = 0.01  # a rough idea soon is better than none
_FIRST_READ: Final = 10  # entries, while nothing is known of their size
_MANY: Final = 16  # entries of one read, from which on more are expected at once


class FinishRate:
    """How many entries a second are finished, lately."""

    def __init__(self, now_s: float) -> None:
        self.per_s = 0.0
        self._since_s = now_s
        self._count = 0

    def count(self, finished: int, now_s: float) -> None:
        """So many more have been finished."""
        self._count += finished
        passed_s = now_s - self._since_s
        is_first = self.per_s == 0
        if passed_s >= (_FIRST_WINDOW_S if is_first else _WINDOW_S):
            # What was long ago says nothing.
            weight = 1.0 if is_first or passed_s >= 1 else 0.5
            self.per_s += weight * (self._count / passed_s - self.per_s)
            self._since_s, self._count = now_s, 0


class Sizes:
    """How large entries are, lately; quick to grow and slow to shrink."""

    def __init__(self) -> None:
        self.average: float | None = None

    def count(self, entries: int, size: int) -> None:
        """So many entries had so many bytes together."""
        if entries:
            found = size / entries
            known = self.average
            grew = known is None or found >= known
            self.average = found if grew or known is None else known + (found - known) / 8

    def fit(self, bytes_free: float) -> int:
        """How many such entries there is room for."""
        if self.average is None:
            return _FIRST_READ
        return int(min(bytes_free / max(self.average, 1.0), 1e9))


class Prefetcher:
    """Decides how many entries to ask for next."""

    def __init__(self, *, concurrency: int, prefetch: int, prefetch_bytes: int) -> None:
        self.is_pouring = False  # there was more than was asked for
        self.sizes = Sizes()
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._bytes = prefetch_bytes

    def room(self, *, held: int, waiting: int, per_s: float) -> int:
        """How many more may come, when `held` run or wait for their turn.

        Those that wait for their backoff leave room for others, up to ten times the prefetch.
        """
        if waiting >= max(10 * self._prefetch, 10 * self._concurrency):
            return 0
        target = self._concurrency + min(self._prefetch, math.ceil(per_s * AHEAD_S))
        by_bytes = self.sizes.fit(self._bytes) - held - waiting
        # One entry at a time is always taken, however large it is.
        return max(min(target - held, by_bytes), 1 if held + waiting == 0 else 0)

    def learn(self, *, asked: int, got: int) -> None:
        """What a read brought tells whether the next one has to wait."""
        self.is_pouring = got >= min(asked, _MANY)

    def is_worth_reading(self, room: int, queued: int) -> bool:
        """Whether a round trip for nothing but entries pays."""
        return room > 0 and (queued == 0 or room >= self._concurrency // 2)
