"""Claiming idle entries in bounded turns, where XREADGROUP has no CLAIM."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from pelops.redis_streams.transport import Reply
from pelops.worker.server.names import Names
from pelops.worker.server.scripts import Parts

_PAGE: Final = 500  # pending entries looked at in one turn: a third of a millisecond
MAX_BYTES: Final = 256 * 1024  # of bodies that a script reads
_BETWEEN_TURNS_S: Final = 0.02
_PASSES_PER_LIMIT: Final = 3


class ClaimTurns:
    """Passes over what is pending, a page of each stream at a time."""

    def __init__(self, names: Names, idle_limit_ms: int, now: Callable[[], float]) -> None:
        self._names = names
        self._idle_limit_ms = idle_limit_ms
        self._now = now
        self._due = now()
        self._at: dict[bytes, str | bytes] = {}  # where each stream's pass goes on

    @property
    def wait_s(self) -> float:
        """Until the next turn; 0 when it is due."""
        return max(0.0, self._due - self._now())

    def calls(self, keys: Sequence[bytes], count: int) -> list[Parts]:
        """One turn. Its replies are to be given to `take`, one after the other."""
        self._at = self._at or dict.fromkeys(keys, "-")
        return [
            self._names.recording(
                "claim", key, "idle", self._idle_limit_ms, start, _PAGE, count, MAX_BYTES
            )
            for key, start in self._at.items()
        ]

    def keys(self) -> list[bytes]:
        """The streams of the turn under way, in the order of its calls."""
        return list(self._at)

    def take(self, key: bytes, reply: Reply) -> list[list[object]]:
        """The entries that a turn has claimed; none when it was refused."""
        if isinstance(reply, Exception):
            del self._at[key]  # the next pass tries again; a missing group is the read's to tell
            return []
        start, taken, _ = reply
        if start:
            self._at[key] = start
        else:
            del self._at[key]
        return list(taken)

    def finish(self) -> None:
        """The turn is over: the next is due soon, or after a rest when this was the pass."""
        rest = self._idle_limit_ms / 1000 / _PASSES_PER_LIMIT * random.uniform(0.8, 1.2)
        self._due = self._now() + (_BETWEEN_TURNS_S if self._at else rest)
