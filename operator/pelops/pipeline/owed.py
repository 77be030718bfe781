"""The part of a window that a group owes: all after the position that it began with.

A group that starts at the end of its stream was never given what was there before. Such entries are
no part of what was produced for it, so its window begins where the group does.
"""

from __future__ import annotations

from collections.abc import Callable
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

    @property
    def produced(self) -> int:
        return self.window.to_added - self.window.from_added


def find_owed(
    window: Window,
    stream: str,
    history: GroupHistory,
    archived: int,
    count_until: Callable[[EntryId], int],
) -> Owed:
    """The group's part of a window; `count_until` tells how many are archived up to an ID.

    Only the ledger knows where a group began. Of entries that were gone before the archive nobody
    knows on which side they lay: they stay, unless one from before the group is archived.
    """
    begin = _first_position(stream, history)
    if begin is None or begin <= window.from_id:
        return Owed(window=window, archived=archived)
    if begin >= window.to_id:
        none = replace(window, from_id=window.to_id, from_added=window.to_added)
        return Owed(window=none, archived=0, left_out=archived)
    left_out = count_until(begin)
    if not left_out:
        return Owed(window=window, archived=archived)
    # Trimming takes the oldest: with one from before the group left, all that are gone are older.
    missing = max(0, window.to_added - window.from_added - archived)
    added = min(window.from_added + left_out + missing, window.to_added)
    mine = replace(window, from_id=begin, from_added=added)
    return Owed(window=mine, archived=archived - left_out, left_out=left_out)


def _first_position(stream: str, history: GroupHistory) -> EntryId | None:
    """Where the group was made for the first time; None when the ledger does not tell."""
    for details in history.of(LedgerKind.GROUP_CREATED):
        if details.get("stream", stream) == stream and details.get("why") == CreationReason.FIRST:
            try:
                return parse_entry_id(details.get("position", ""))
            except InvalidSpec:
                return None
    return None
