"""Entries with equal keys run one after another, and whose turn it is to run alone. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from zlib import crc32

from pelops.worker.entry import Entry

OrderBy = Callable[[Entry], Hashable]


class Ordering:
    """Who waits behind whom. Without a rule nobody does."""

    def __init__(self, order_by: OrderBy | None) -> None:
        self.is_on = order_by is not None
        self._order_by = order_by
        self._rows: dict[Hashable, deque[Entry]] = {}  # by key; the first one may run

    def has_to_wait(self, entry: Entry) -> bool:
        """Whether others with its key come first; it is behind them now."""
        entry.order = self._find_key(entry)
        if entry.order is None:
            return False
        row = self._rows.setdefault(entry.order, deque())
        row.append(entry)
        return row[0] is not entry

    def _find_key(self, entry: Entry) -> Hashable | None:
        if self._order_by is None:
            return None
        try:
            key = self._order_by(entry)
            hash(key)
        except Exception:
            return None  # what cannot be read has no order to keep; its handler will say so
        return key

    def free(self, entry: Entry) -> Entry | None:
        """It is done with. Answers the one that may run now."""
        row = self._rows.get(entry.order) if entry.order is not None else None
        if not row:
            return None
        if row[0] is not entry:
            if entry in row:
                row.remove(entry)
            return None
        row.popleft()
        if row:
            return row[0]
        del self._rows[entry.order]
        return None

    def waiting(self) -> int:
        """How many have others before them."""
        return sum(len(row) - 1 for row in self._rows.values())

    def clear(self) -> None:
        """Nobody waits any more."""
        self._rows.clear()


def turn_of(entry: Entry) -> int:
    """The place of an entry among those that run alone: another one after each delivery.

    Without an operator nobody knows which of them ended the processes that had them. Those which
    always came behind it would never run.
    """
    return crc32(b"%b %d" % (entry.raw_id, entry.deliveries)) if entry.deliveries else 0
