"""Entry IDs as two numbers of 64 bits with sign, as columns hold them."""

from __future__ import annotations

from typing import Final

from pelops.domain.entry_id import EntryId

LARGEST: Final = 2**63 - 1
LAST_HELD: Final = EntryId(LARGEST, 2**64 - 1)  # of the IDs whose milliseconds fit a column


def bounded(entry_id: EntryId) -> tuple[int, int]:
    """Both numbers as such columns can be compared with."""
    return min(entry_id.ms, LARGEST), min(entry_id.seq, LARGEST)


def is_held(entry_id: EntryId) -> bool:
    """Whether columns can hold an ID."""
    return entry_id.ms <= LARGEST and entry_id.seq <= LARGEST
