"""Entry IDs as pairs of numbers, which compare as Redis compares them."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

LARGEST_PART = 2**64 - 1

_SHAPE = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


class EntryId(NamedTuple):
    """Milliseconds and sequence number of one entry; each goes up to 2^64 - 1."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    def following(self) -> EntryId:
        """The smallest ID above this one; the largest ID of all has none and answers itself."""
        if self.seq < LARGEST_PART:
            return EntryId(self.ms, self.seq + 1)
        return EntryId(self.ms + 1, 0) if self.ms < LARGEST_PART else self

    def preceding(self) -> EntryId:
        """The largest ID below this one; 0-0 answers itself."""
        if self.seq:
            return EntryId(self.ms, self.seq - 1)
        return EntryId(self.ms - 1, LARGEST_PART) if self.ms else self

    @property
    def rank(self) -> int:
        """A single number that orders IDs, for arithmetic on distances."""
        return (self.ms << 64) | self.seq

    @classmethod
    def at_rank(cls, rank: int) -> Self:
        """The ID with this `rank`."""
        return cls(rank >> 64, rank & LARGEST_PART)


FIRST = EntryId(0, 0)
LAST = EntryId(LARGEST_PART, LARGEST_PART)


def parse_entry_id(text: str | bytes, *, missing_seq: int = 0) -> EntryId:
    """The ID that a text names; "5" means 5-`missing_seq`. Raises ValueError."""
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text.strip()
    found = _SHAPE.fullmatch(plain)
    if found is None:
        raise ValueError(f"'{plain}' is no entry ID: write it as <milliseconds>-<sequence>")
    parsed = EntryId(int(found[1]), missing_seq if found[2] is None else int(found[2]))
    if max(parsed) > LARGEST_PART:
        raise ValueError(f"'{plain}' is no entry ID: a part is larger than 2^64 - 1")
    return parsed
