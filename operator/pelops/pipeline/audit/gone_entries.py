"""Entries that were removed: losses that the operator recorded, and unarchived entries.

The operator records a loss as a gap between a position and the first remaining entry. Entries that
were removed before they could be archived have no row; they are only counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import Window
from pelops.domain.records.ledger import LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.ledger import GroupHistory
from pelops.pipeline.archive.redis_reader import GroupSnapshot


def certain_losses(history: GroupHistory) -> list[Mapping[str, str]]:
    """Losses, except possible ones, which are outside the watched ranges."""
    losses = history.of(LedgerKind.DATA_LOSS)
    return [one for one in losses if one.get("at_least") != "0" or one.get("cause") != "trimmed"]


def gap_of(details: Mapping[str, str]) -> tuple[EntryId, EntryId]:
    """The range of a loss in the ledger: after the first ID, up to the second.

    The range of all IDs if the event does not name them.
    """
    try:
        after = parse_entry_id(details.get("after", ""))
        text = details.get("before", "")
        return after, parse_entry_id(text).before() if text else EntryId.MAX
    except InvalidSpec:
        return EntryId.MIN, EntryId.MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Counts of entries of a window that were not archived."""

    missing: int  # produced, not archived, not pending, and without an act
    removed: int  # entries of the whole stream that were removed when the window was archived
    seen: int = 0  # archived entries within a recorded gap, to subtract from its count
    undelivered: int = 0  # of `missing`: see `count_undelivered`


def account_for_gone(
    gone: Gone, window: Window, history: GroupHistory, stream: str
) -> dict[EntryStatus, int]:
    """The statuses of the missing entries of a stream; they add up to `missing`.

    The operator never trims unprocessed entries, and counts those that others trimmed too early.
    """
    # The ledger and the counters may report the same entries.
    lost = min(gone.missing, max(0, _lost(window, history) - gone.seen, gone.undelivered))
    trimmed = min(gone.missing - lost, _trimmed(gone, window, history, stream))
    rest = gone.missing - lost - trimmed
    counts = {
        EntryStatus.LOST: lost,
        EntryStatus.ACKNOWLEDGED_INFERRED: trimmed,
        EntryStatus.INDETERMINATE: rest,
    }
    return {status: count for status, count in counts.items() if count}


def count_undelivered(
    snapshot: GroupSnapshot | None,
    window: Window,
    *,
    counts_trimmed: bool,
    known: int,
    missing: int,
) -> int:
    """Number of missing entries of a window that are after the group's position.

    `entries-read` is the number of entries ever added up to the position; the rest were added after
    it. Of these, the ones in neither the archive nor the ledger (`known`) were removed undelivered.
    0 if the numbers contradict each other.
    """
    if snapshot is None or snapshot.entries_read is None or not counts_trimmed:
        return 0
    if snapshot.position >= window.to_id or snapshot.entries_read > window.to_added:
        return 0
    if snapshot.position <= window.from_id and snapshot.entries_read > window.from_added:
        return 0
    ahead = window.to_added - max(snapshot.entries_read, window.from_added)
    undelivered = ahead - known
    return undelivered if 0 <= undelivered <= missing else 0


def _lost(window: Window, history: GroupHistory) -> int:
    """Certain losses that the operator recorded. A gap that grew is recorded again, as a
    whole."""
    gaps: dict[EntryId, int] = {}
    for details in history.of(LedgerKind.DATA_LOSS):
        after, before = gap_of(details)
        if window.from_id <= after and before <= window.to_id:
            gaps[after] = max(gaps.get(after, 0), _number(details, "at_least"))
    return sum(gaps.values())


def _trimmed(gone: Gone, window: Window, history: GroupHistory, stream: str) -> int:
    """Entries of the window that the operator certainly trimmed.

    It also trims the retry stream.
    """
    trims = [one for one in history.of(LedgerKind.TRIMMED) if one.get("stream") == stream]
    since = gone.removed - window.from_added
    if since > 0 and sum(_number(one, "count") for one in trims) >= gone.removed:
        return gone.missing  # the operator trimmed all that was removed
    begins, inside = None, 0
    for details in trims:
        ends = _first_after(details)
        if begins is not None and ends is not None and window.from_id <= begins:
            inside += _number(details, "count") if ends <= window.to_id else 0
        begins = ends
    return inside


def _first_after(details: Mapping[str, str]) -> EntryId | None:
    try:
        return parse_entry_id(details.get("first_id_after", ""))
    except InvalidSpec:
        return None


def _number(details: Mapping[str, str], name: str) -> int:
    text = details.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
