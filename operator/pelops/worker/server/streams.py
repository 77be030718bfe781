"""Which of the group's streams are read: the retry and hand-over streams only while they exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pelops.worker.server.names import Names

_NAMED: Final = re.compile(r"No such key '(.*)' or consumer group", re.DOTALL)
_LOOK_AGAIN_S: Final = 10.0  # a resource may ask for another strategy while its workers run


class Streams:
    """One missing stream would have the whole read refused, so what is missing is left out."""

    def __init__(self, names: Names, now: Callable[[], float]) -> None:
        self._stream = names.stream
        self._optional = (names.retry, names.handover)
        self._handover = names.handover
        self._missing_until: dict[bytes, float] = {}
        self._now = now

    def to_read(self) -> list[bytes]:
        """The streams to name in a read."""
        if self._missing_until:
            now = self._now()
            self._missing_until = {
                key: until for key, until in self._missing_until.items() if until > now
            }
        missing = self._missing_until
        return [self._stream, *(key for key in self._optional if key not in missing)]

    def with_entries(self) -> list[bytes]:
        """Those whose entries are worked on: all but the hand-over stream."""
        return [key for key in self.to_read() if key != self._handover]

    @property
    def may_offer(self) -> bool:
        """Whether an offer would be read by the others, as far as is known."""
        return self._handover not in self._missing_until

    def learn_missing(self, refusal: str) -> bool:
        """Note the stream that NOGROUP names; False when the group itself is what is missing."""
        named = _NAMED.search(refusal)
        key = named[1].encode("utf-8", "surrogateescape") if named else b""
        if key not in self._optional:
            return False
        self._missing_until[key] = self._now() + _LOOK_AGAIN_S
        return True
