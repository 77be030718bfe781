"""The part of a window that a group owes: all after the position that it began with.

A group that starts at the end of its stream was never given what was there before. Such entries are
no part of what was produced for it, so its window begins where the group does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import CreationReason, LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.acts import GroupHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """What of a window belongs to one group."""

    window: Window
    archived: int
    left_out: int = 0  # archived entries from before the group
    removed: int = 0  # entries that were gone before the first archive, and may be the group's
    begin: EntryId | None = None  # where the group was created; None: that is not known

    @property
    def produced(self) -> int:
        return self.window.to_added - self.window.from_added

    @property
    def after(self) -> EntryId:
        """Entries after it are the group's, also those that were gone before the first archive.

        After a break of the stream only the counters tell of such entries: what other evidence says
        of lower IDs may be of the stream before.
        """
        if not self.removed or self.window.number:
            return self.window.from_id
        return self.begin or EntryId.MIN

    @property
    def whole(self) -> Window:
        """The window with what was gone before the first archive."""
        if not self.removed:
            return self.window
        added = max(0, self.window.from_added - self.removed)
        return replace(self.window, from_id=self.after, from_added=added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What the statuses of a group's entries add up to."""

    window: Window
    unknown_before: int  # gone before the first archive, and nothing tells what became of them


def close_balance(owed: Owed, total: int, unaccounted: int) -> Balance:
    """Tell entries that were gone before the first archive, and of which nothing tells, apart.

    `unaccounted` are those of the `total` that nobody has seen and nothing tells of. All others are
    part of the window, which then begins before the first entry that was left.
    """
    unknown = min(owed.removed, unaccounted)
    produced = total - unknown
    if not owed.removed or produced <= owed.produced:
        return Balance(window=owed.window, unknown_before=unknown)
    window = owed.window
    wider = replace(window, from_id=owed.after, from_added=max(0, window.to_added - produced))
    return Balance(window=wider, unknown_before=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Entries of a stream that were added and removed before it was archived for the first time."""

    entries: int
    max_deleted: EntryId  # the highest ID that XDEL removed; trimming takes the lowest

    def after(self, begin: EntryId | None, first: EntryId) -> int:
        """How many may lie after `begin`; `first` is before the first entry that is left."""
        if begin is None or begin < max(first, self.max_deleted):
            return self.entries
        return 0


def find_owed(
    window: Window,
    archived: int,
    count_until: Callable[[EntryId], int],
    *,
    begin: EntryId | None,
    removed: Removed | None = None,
) -> Owed:
    """The group's part of a window; `count_until` tells how many are archived up to an ID.

    Only the ledger and append-only files tell where a group began. Of entries that were gone before
    the archive nobody knows on which side they lay: they stay, unless one from before the group is
    archived. `removed` is of the first window.
    """
    gone = 0 if removed is None else removed.after(begin, window.from_id)
    if begin is None or begin <= window.from_id:
        return Owed(window=window, archived=archived, removed=gone, begin=begin)
    if begin >= window.to_id:
        none = replace(window, from_id=window.to_id, from_added=window.to_added)
        return Owed(window=none, archived=0, left_out=archived, begin=begin)
    left_out = count_until(begin)
    if not left_out:
        return Owed(window=window, archived=archived, removed=gone, begin=begin)
    # Trimming takes the oldest: with one from before the group left, all that are gone are older.
    missing = max(0, window.to_added - window.from_added - archived)
    added = min(window.from_added + left_out + missing, window.to_added)
    mine = replace(window, from_id=begin, from_added=added)
    kept = archived - left_out
    return Owed(window=mine, archived=kept, left_out=left_out, removed=gone, begin=begin)


def read_first_position(stream: str, history: GroupHistory) -> EntryId | None:
    """Where the group was created for the first time; None when the ledger does not tell."""
    try:
        return parse_entry_id(_first_creation(stream, history).get("position", ""))
    except InvalidSpec:
        return None


def read_first_added(stream: str, history: GroupHistory) -> int | None:
    """How many entries had been added to the stream until then; None: the ledger does not tell."""
    text = _first_creation(stream, history).get("added", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None


def _first_creation(stream: str, history: GroupHistory) -> Mapping[str, str]:
    for details in history.of(LedgerKind.GROUP_CREATED):
        if details.get("stream", stream) == stream and details.get("why") == CreationReason.FIRST:
            return details
    return {}
