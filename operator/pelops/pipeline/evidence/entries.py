"""The entries of one stream, as the files saw them come and go: 17 bytes each.

An entry is referred to by a number: from 0 on when the files saw it added, in the stream's order;
below 0 when it was there before them (`stray`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import Final, TypeAlias

from pelops.pipeline.evidence.fates import Removal

Id: TypeAlias = tuple[int, int]
MIN: Final[Id] = (0, 0)
_PRESENT: Final = int(Removal.PRESENT)  # a plain number is stored faster
_REMEMBERED: Final = 8192  # an ID comes back soon: added, delivered, acknowledged


@lru_cache(maxsize=_REMEMBERED)
def parse_id(word: bytes) -> Id:
    """The ID that a command names; one without a sequence number is the first of its time.

    Raises ValueError for anything else.
    """
    ms, _, seq = word.partition(b"-")
    return int(ms), int(seq or 0)


class EntryTable:
    """Which entries were added, which of them are gone, and why."""

    def __init__(self, after: Id = MIN) -> None:
        self.after = after  # entries up to it are not looked at
        self.ms = array("Q")
        self.seq = array("Q")
        self.removals = bytearray()
        self.strays: dict[Id, int] = {}
        self.last: Id = MIN
        self.uncovered = 0  # so many of the first were there before the files
        self.is_exact = True  # its length is known; False: only what an ID bounds is
        self._newest: Id = MIN  # of those that are kept
        self._present = 0
        self._head = 0  # nothing before it is present
        self._hint = 0  # entries are looked for in their order, mostly

    def __len__(self) -> int:
        return len(self.ms)

    def add(self, entry_id: Id, *, is_covered: bool = True) -> int | None:
        """An entry was added; from which number on others are forgotten, when its ID is not new.

        Only a stream that was deleted gives IDs again.
        """
        forgotten = None
        if entry_id <= self._newest:
            forgotten = self.lower_bound(entry_id)
            self._forget_from(forgotten)
        self.last = entry_id
        if entry_id > self.after:
            self._newest = entry_id
            self.ms.append(entry_id[0])
            self.seq.append(entry_id[1])
            self.removals.append(_PRESENT)
            self._present += 1
            if not is_covered:
                self.uncovered = len(self.ms)
        return forgotten

    def find(self, entry_id: Id) -> int | None:
        """Its number; None when the files did not see it added."""
        at = self._hint
        if at < len(self.ms) and self.ms[at] == entry_id[0] and self.seq[at] == entry_id[1]:
            self._hint = at + 1
            return at
        at = self.lower_bound(entry_id)
        if at < len(self.ms) and self.ms[at] == entry_id[0] and self.seq[at] == entry_id[1]:
            self._hint = at + 1
            return at
        return self.strays.get(entry_id)

    def find_or_note(self, entry_id: Id) -> int | None:
        """Its number, a new one for an entry from before the files; None when not looked at."""
        found = self.find(entry_id)
        if found is None and entry_id > self.after:
            found = self.strays[entry_id] = -1 - len(self.strays)
        return found

    def lower_bound(self, entry_id: Id) -> int:
        """The number of the first entry that is not smaller."""
        ms, seq = entry_id
        start = bisect_left(self.ms, ms)
        end = bisect_right(self.ms, ms, lo=start)
        return bisect_left(self.seq, seq, lo=start, hi=end)

    def upper_bound(self, entry_id: Id) -> int:
        """The number of the first entry that is greater."""
        return self.lower_bound((entry_id[0], entry_id[1] + 1))

    def removal_of(self, number: int) -> int:
        """A `Removal`."""
        return self.removals[number] if number >= 0 else Removal.UNKNOWN

    def delete(self, entry_id: Id, why: Removal = Removal.DELETED) -> int | None:
        """It was deleted, or perhaps; its number."""
        number = self.find(entry_id)
        if number is not None and number >= 0:
            self._remove(number, why)
        return number

    def trim_below(self, entry_id: Id) -> range:
        """Everything smaller was trimmed; the numbers that this concerns."""
        return self._trim_to(min(self.lower_bound(entry_id), len(self.ms)), Removal.TRIMMED)

    def trim_to_length(self, length: int) -> range:
        """All but so many were trimmed; the numbers that this concerns."""
        end, surplus = self._head, self._present - length
        while surplus > 0 and end < len(self.removals):
            surplus -= self.removals[end] == Removal.PRESENT
            end += 1
        return self._trim_to(end, Removal.TRIMMED if self.is_exact else Removal.UNKNOWN)

    def delete_stream(self) -> None:
        """The key went, or holds something else now."""
        self._trim_to(len(self.ms), Removal.STREAM_DELETED)
        self.last = MIN
        self.is_exact = True

    def doubt(self) -> None:
        """What went with the stream may be there again."""
        for number, removal in enumerate(self.removals):
            if removal == Removal.STREAM_DELETED:
                self.removals[number] = Removal.UNKNOWN

    def _trim_to(self, end: int, why: Removal) -> range:
        concerned = range(self._head, max(end, self._head))
        for number in concerned:
            self._remove(number, why)
        self._head = concerned.stop
        return concerned

    def _remove(self, number: int, why: Removal) -> None:
        if self.removals[number] == Removal.PRESENT:
            self.removals[number] = why
            self._present -= 1

    def _forget_from(self, number: int) -> None:
        del self.ms[number:], self.seq[number:], self.removals[number:]
        self._head, self._hint = min(self._head, number), 0
        self._present = self.removals.count(_PRESENT)
        self._newest = (self.ms[-1], self.seq[-1]) if self.ms else MIN
