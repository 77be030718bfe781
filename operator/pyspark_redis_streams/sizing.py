"""How many entries to ask for at once, so that neither Redis nor we choke on large ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BYTES_OF_A_PAGE = 1_000_000  # Redis needs about a millisecond for it, and serves nobody else

_FIRST_COUNT = 64
_LOOKED_AT = 8


class PageSizer:
    """Begins with few entries, and follows the size of those that come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = min(most, _FIRST_COUNT)

    def observe(self, page: Sequence[Any]) -> None:
        """Learn from a page, by some of its entries; an empty one teaches nothing."""
        if page:
            some = page[:: max(1, len(page) // _LOOKED_AT)]
            average = sum(len(b"".join(entry[1])) for entry in some) // len(some) + 1
            self.count = max(1, min(self._most, BYTES_OF_A_PAGE // average))
