"""A stream and its consumer group as Redis counts them, its lag above all.

The rules are those of the server's `streamReplyWithCGLag`, `streamRangeHasTombstones` and
`streamEstimateDistanceFromFirstEverEntry`; IDs are 1, 2, 3 and so on. Entries that were delivered
stay in the stream unless they are deleted, as they do for most users.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Cohort:
    """Entries with IDs in a row that were added together."""

    first: int
    count: int
    added_at: float
    is_poison: bool = False

    def take(self, count: int) -> Cohort:
        """Part with the oldest of them."""
        taken = Cohort(self.first, count, self.added_at, self.is_poison)
        self.first += count
        self.count -= count
        return taken


class StreamGroup:
    """One stream with one group."""

    def __init__(self) -> None:
        self.exists = True  # the group; the stream always does
        self.added = 0  # entries-added
        self.end = 0  # last-generated-id
        self.length = 0
        self.first = 1  # ID of the oldest entry that is left
        self.delivered = 0  # last-delivered-id
        self.max_deleted = 0
        self.entries_read: int | None = 0  # None: the server lost count
        self.ahead: deque[Cohort] = deque()
        self.undelivered = 0  # how many entries `ahead` holds

    def add(self, count: int, now: float, *, is_poison: bool = False) -> None:
        """XADD, so many times."""
        if not count:
            return
        if self.exists:
            self.ahead.append(Cohort(self.end + 1, count, now, is_poison))
            self.undelivered += count
        self.added += count
        self.end += count
        self.length += count

    def deliver(self, count: int) -> list[Cohort]:
        """XREADGROUP with `>`: up to so many entries, the oldest first."""
        given: list[Cohort] = []
        while count and self.ahead:
            oldest = self.ahead[0]
            taken = self.ahead.popleft() if oldest.count <= count else oldest.take(count)
            self._pass(taken)
            given.append(taken)
            count -= taken.count
        return given

    def _pass(self, taken: Cohort) -> None:
        self.undelivered -= taken.count
        counted = taken.count
        if not self._counts_on():
            self.delivered = taken.first
            self.entries_read = self._estimate_read()
            counted -= 1
        is_counted = self._counts_on()
        self.delivered = taken.first + taken.count - 1
        if is_counted and self.entries_read is not None:
            self.entries_read += counted
        elif counted:
            self.entries_read = self._estimate_read()

    def _counts_on(self) -> bool:
        """Whether the next entry delivered is one more, else its place is estimated."""
        is_within = self.entries_read is not None and self.delivered >= self.first
        return is_within and not self._has_tombstone_ahead()

    def delete_delivered(self, count: int, last: int) -> None:
        """XDEL of entries that were acknowledged; the greatest has the ID `last`."""
        self.length -= count
        self.max_deleted = max(self.max_deleted, last)

    def delete_ahead(self) -> None:
        """XDEL of the last entry but one, right after three or more were added."""
        newest = self.ahead.pop()
        if newest.count > 2:
            self.ahead.append(newest.take(newest.count - 2))
        self.max_deleted = newest.first
        if self.first == newest.first:
            self.first += 1
        self.ahead.append(Cohort(newest.first + 1, 1, newest.added_at))
        self.length -= 1
        self.undelivered -= 1

    def move_back(self, count: int, now: float) -> None:
        """XGROUP SETID to so many entries before the last delivered one; these are lag again."""
        self.delivered -= count
        self.ahead.appendleft(Cohort(self.delivered + 1, count, now))
        self.undelivered += count
        self.entries_read = None
        self.entries_read = self._estimate_read()

    def create_at_end(self) -> None:
        """XGROUP CREATE at `$`."""
        self.exists = True
        self.delivered = self.end
        self.entries_read = None
        self.ahead.clear()
        self.undelivered = 0

    def destroy(self) -> None:
        """XGROUP DESTROY: the group no longer has pending and undelivered entries."""
        self.exists = False
        self.ahead.clear()
        self.undelivered = 0

    def repair(self) -> None:
        """XGROUP SETID to where it stands, with the ENTRIESREAD that was counted."""
        self.entries_read = self.added - self.undelivered

    @property
    def reported_lag(self) -> int | None:
        """The lag that XINFO GROUPS returns; None for NULL."""
        if self.added == 0:
            return 0
        if self.delivered < self.first and self.max_deleted < self.first:
            return self.length  # nothing of what is left was delivered
        read = self.entries_read
        if read is None or self._has_tombstone_ahead():
            read = self._estimate_read()
        return None if read is None else self.added - read

    def has_tombstone_ahead(self) -> bool:
        """Whether an entry at or after the group's position was deleted."""
        return self._has_tombstone_ahead()

    def _has_tombstone_ahead(self) -> bool:
        is_within_stream = self.length > 0 and self.first <= self.max_deleted
        return is_within_stream and self.delivered <= self.max_deleted <= self.end

    def _estimate_read(self) -> int | None:
        """What the position alone says of how many entries lie behind it."""
        if self.delivered == self.end:
            return self.added
        if self.max_deleted and self.max_deleted >= self.first:
            return None
        if self.delivered < self.first:
            return self.added - self.length
        return self.added - self.length + 1 if self.delivered == self.first else None
