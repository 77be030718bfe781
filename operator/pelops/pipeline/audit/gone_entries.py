"""Entries that are gone: losses that the operator recorded, and what nobody has archived.

The operator records a loss as a gap between a position and the first entry that was left. Entries
that were gone before the archive have no row of their own: they are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pelops.domain.audit import EntryStatus, Window
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.ledger import GroupHistory
from pelops.pipeline.redis_reader import GroupSnapshot


def certain_losses(history: GroupHistory) -> list[Mapping[str, str]]:
    """Losses but for possible ones, which lie outside of what was watched."""
    losses = history.of(LedgerKind.DATA_LOSS)
    return [one for one in losses if one.get("at_least") != "0" or one.get("cause") != "trimmed"]


def gap_of(details: Mapping[str, str]) -> tuple[EntryId, EntryId]:
    """After and up to which entries were lost, as the ledger tells; else all there is."""
    try:
        after = parse_entry_id(details.get("after", ""))
        text = details.get("before", "")
        return after, parse_entry_id(text).before() if text else EntryId.MAX
    except InvalidSpec:
        return EntryId.MIN, EntryId.MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """How many entries of a window nobody has seen, and what the counters say of them."""

    missing: int  # produced, not archived, and neither pending nor acted on
    removed: int  # entries of the whole stream that were gone when the window was archived
    seen: int = 0  # archived entries that lay in a gap which the operator told: these are no others
    undelivered: int = 0  # of the missing, by the counters: see `count_undelivered`


def account_for_gone(
    gone: Gone, window: Window, history: GroupHistory, stream: str
) -> dict[EntryStatus, int]:
    """The statuses of the missing entries of a stream; they add up to `missing`.

    The operator trims nothing that a group still owes, and counts what others trimmed too early.
    """
    # Both may report the same entries.
    lost = min(gone.missing, max(0, _lost(window, history) - gone.seen, gone.undelivered))
    trimmed = min(gone.missing - lost, _trimmed(gone, window, history, stream))
    rest = gone.missing - lost - trimmed
    found = {
        EntryStatus.LOST: lost,
        EntryStatus.ACKNOWLEDGED_INFERRED: trimmed,
        EntryStatus.INDETERMINATE: rest,
    }
    return {status: count for status, count in found.items() if count}


def count_undelivered(
    look: GroupSnapshot | None, window: Window, *, counts_trimmed: bool, known: int, missing: int
) -> int:
    """Of the missing entries of a window, those that lie after the group's position.

    `entries-read` is how many were ever added up to the position. So many more were added after it;
    what is in neither the archive nor the ledger of these (`known`) was gone undelivered. Numbers
    that contradict each other show nothing.
    """
    if look is None or look.entries_read is None or not counts_trimmed:
        return 0
    if look.position >= window.to_id or look.entries_read > window.to_added:
        return 0
    if look.position <= window.from_id and look.entries_read > window.from_added:
        return 0
    ahead = window.to_added - max(look.entries_read, window.from_added)
    found = ahead - known
    return found if 0 <= found <= missing else 0


def _lost(window: Window, history: GroupHistory) -> int:
    """What the operator saw lost for certain; a gap that has grown is reported again, as a
    whole."""
    gaps: dict[EntryId, int] = {}
    for details in history.of(LedgerKind.DATA_LOSS):
        after, before = gap_of(details)
        if window.from_id <= after and before <= window.to_id:
            gaps[after] = max(gaps.get(after, 0), _number(details, "at_least"))
    return sum(gaps.values())


def _trimmed(gone: Gone, window: Window, history: GroupHistory, stream: str) -> int:
    """What the operator trimmed of the window, for certain; it trims the retry stream as well."""
    trims = [one for one in history.of(LedgerKind.TRIMMED) if one.get("stream") == stream]
    since = gone.removed - window.from_added
    if since > 0 and sum(_number(one, "count") for one in trims) >= gone.removed:
        return gone.missing  # all that was ever removed
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
