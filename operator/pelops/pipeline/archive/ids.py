"""Entry IDs as two signed 64-bit numbers, for columns."""

from __future__ import annotations

from typing import Final

from pelops.domain.entry_id import EntryId

LARGEST: Final = 2**63 - 1
LAST_HELD: Final = EntryId(LARGEST, 2**64 - 1)  # the highest ID whose milliseconds fit a column


def bounded(entry_id: EntryId) -> tuple[int, int]:
    """Both numbers, limited to the range of such columns, for comparisons."""
    return min(entry_id.ms, LARGEST), min(entry_id.seq, LARGEST)


def is_held(entry_id: EntryId) -> bool:
    """Whether both numbers of an ID fit such columns."""
    return entry_id.ms <= LARGEST and entry_id.seq <= LARGEST
