"""How many entries to ask for at once, so that neither Redis nor we choke on large ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Redis needs about a millisecond for either, and serves nobody else meanwhile.
BYTES_OF_A_PAGE = 1_000_000
PARTS_OF_A_PAGE = 20_000  # names and values

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
            size = sum(len(b"".join(entry[1])) for entry in some) // len(some) + 1
            parts = sum(len(entry[1]) for entry in some) // len(some) + 1
            few = min(BYTES_OF_A_PAGE // size, PARTS_OF_A_PAGE // parts)
            self.count = max(1, min(self._most, few))
