"""The part of a window that a group must process: all entries after its first position.

A group that starts at the end of its stream never receives the entries before. They do not count as
produced for it, so its window begins at its first position.

An entry below the position that is not pending counts as acknowledged only if deliveries moved the
position. XGROUP CREATE at an ID, XGROUP SETID, and deleting and creating a group again move it past
entries that were never delivered.

An unknown `entries-read` shows this. It is unknown for a group that was created at or set to an ID
in the middle, until a read reaches the end of the stream. For a group that read from the beginning,
it becomes unknown only after XDEL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.audit import Window
from pelops.domain.records.ledger import CreationReason, LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.ledger import GroupHistory
from pelops.pipeline.archive.redis_reader import GroupSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousGroupState:
    """A group at the end of the previous audit; empty for the first audit."""

    group: GroupSnapshot | None = None
    was_missing: bool = False  # the stream was audited, and had no such group

    @property
    def position(self) -> EntryId:
        """The position; the lowest ID if unknown."""
        return self.group.position if self.group else EntryId.MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """The part of a window that belongs to one group."""

    window: Window
    archived: int
    left_out: int = 0  # archived entries from before the group
    removed: int = 0  # entries removed before the first archive that may be the group's
    gone_before: int = 0  # other entries removed by then: before the group began
    begin: EntryId | None = None  # where the group was created; None: unknown

    @property
    def produced(self) -> int:
        return self.window.to_added - self.window.from_added

    @property
    def after(self) -> EntryId:
        """Entries after it are the group's, including those removed before the first archive.

        After a break of the stream, only the counters report such entries: other evidence of lower
        IDs may belong to the previous stream.
        """
        if not self.removed or self.window.number:
            return self.window.from_id
        return self.begin or EntryId.MIN

    @property
    def whole(self) -> Window:
        """The window extended by the entries that were removed before the first archive."""
        if not self.removed:
            return self.window
        added = max(0, self.window.from_added - self.removed)
        return replace(self.window, from_id=self.after, from_added=added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The window that the statuses of a group's entries add up to."""

    window: Window
    unknown_before: int  # removed before the first archive, outcome unknown


def close_balance(share: GroupShare, total: int, unaccounted: int) -> Balance:
    """Separate entries that were removed before the first archive and have no known outcome.

    `unaccounted` is the part of `total` that was not archived and has no record. All others belong
    to the window, which then begins before the first remaining entry.
    """
    unknown = min(share.removed, unaccounted)
    produced = total - unknown
    if not share.removed or produced <= share.produced:
        return Balance(window=share.window, unknown_before=unknown)
    window = share.window
    wider = replace(window, from_id=share.after, from_added=max(0, window.to_added - produced))
    return Balance(window=wider, unknown_before=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedWindow:
    """The entries of a window that existed when it was archived."""

    entries: int
    count_until: Callable[[EntryId], int]  # number of these up to an ID
    # Entries that the archive cannot hold, due to the milliseconds of their IDs (the last entries
    # of the window), or only due to their sequence numbers (anywhere in the window).
    beyond: int = 0
    beyond_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStart:
    """Where a group began, and how many entries had been removed by then: not the group's."""

    at: EntryId | None = None  # None: unknown
    gone: int = 0  # entries


def find_beginning(
    ledger: FirstCreation,
    files: GroupStart,
    archived: ArchivedWindow,
    *,
    position: EntryId | None,
) -> GroupStart:
    """Find the start of a group by the ledger, append-only files, and its present `position`.

    `position` is None without a group. A group that was set back to before its start must also
    process the entries between, except those removed by then. Their number is in the files. For a
    group that was not set back, it also follows from the ledger: entries added minus archived.
    """
    known_positions = [one for one in (*ledger.positions, files.at) if one is not None]
    if not known_positions:
        return files
    at = min(known_positions if position is None else [*known_positions, position])
    gone = files.gone
    if ledger.added is not None and at == ledger.positions[0]:
        left = archived.count_until(at) + archived.beyond_seq  # upper bound
        gone = max(gone, ledger.added - left)
    return GroupStart(at=at, gone=gone)


def find_audited_after(
    audited_after: EntryId, moves: Iterable[EntryId], *, position: EntryId | None, last: EntryId
) -> EntryId:
    """The ID after which all entries are audited: `audited_after` of the previous window, or lower.

    A group that was set back to before its first window must also process the entries between.
    `moves` are positions that the ledger records. `position` counts if it is lower than `last`,
    that of the previous audit.
    """
    went_back = [position] if position is not None and position < last else []
    return min([audited_after, *moves, *went_back])


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Entries that were added to a stream and removed before its first archive."""

    entries: int
    max_deleted: EntryId  # the highest ID that XDEL removed; trimming removes the lowest

    def after(self, begin: EntryId | None, first: EntryId) -> int:
        """Most that may be after `begin`; `first` is the ID before the first remaining entry."""
        if begin is None or begin < max(first, self.max_deleted):
            return self.entries
        return 0


def find_share(
    window: Window,
    archived: ArchivedWindow,
    *,
    begin: EntryId | None,
    removed: Removed | None = None,
) -> GroupShare:
    """The group's part of a window.

    Only the ledger and append-only files show where a group began. For entries that were removed
    before the archive, the side is unknown: they count as the group's, unless an entry from before
    the group is archived. The same holds for entries that the archive cannot hold. `removed` is
    given for the first window only.
    """
    gone = 0 if removed is None else removed.after(begin, window.from_id)
    if begin is None or begin <= window.from_id:
        return GroupShare(window=window, archived=archived.entries, removed=gone, begin=begin)
    if begin >= window.to_id:
        none = replace(window, from_id=window.to_id, from_added=window.to_added)
        return GroupShare(window=none, archived=0, left_out=archived.entries, begin=begin)
    left_out = archived.count_until(begin)
    if not left_out:
        return GroupShare(window=window, archived=archived.entries, removed=gone, begin=begin)
    # Trimming removes the oldest: if an entry from before the group remains, all removed are older.
    there = archived.entries + archived.beyond + archived.beyond_seq
    missing = max(0, window.to_added - window.from_added - there)
    added = min(window.from_added + left_out + missing, window.to_added)
    mine = replace(window, from_id=begin, from_added=added)
    kept = archived.entries - left_out
    return GroupShare(window=mine, archived=kept, left_out=left_out, removed=gone, begin=begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCreation:
    """A group's first creation, according to the ledger; empty if it does not record it."""

    positions: tuple[EntryId, ...] = ()  # where it was created, then where it was moved
    added: int | None = None  # entries added to the stream before it was created


def read_first_creation(stream: str, history: GroupHistory) -> FirstCreation:
    """Read a group's first creation from its ledger."""
    first = next(filter(_is_first, _creations(stream, history)), {})
    begin = _position(first, "position")
    if begin is None:
        return FirstCreation()
    text = first.get("added", "")
    is_number = text.isascii() and text.isdigit() and len(text) <= 19
    return FirstCreation(
        positions=(begin, *read_moves(stream, history)),
        added=int(text) if is_number else None,
    )


def read_moves(stream: str, history: GroupHistory) -> list[EntryId]:
    """Positions to which a group was moved after its first creation, except by reads."""
    again = [one for one in _creations(stream, history) if not _is_first(one)]
    positions = [_position(one, "position") for one in again]
    positions += [_position(one, "to") for one in history.of(LedgerKind.POSITION_CHANGED)]
    return [one for one in positions if one is not None]


def _creations(stream: str, history: GroupHistory) -> list[Mapping[str, str]]:
    created = history.of(LedgerKind.GROUP_CREATED)
    return [one for one in created if one.get("stream", stream) == stream]


def _is_first(details: Mapping[str, str]) -> bool:
    return details.get("why") == CreationReason.FIRST


def _position(details: Mapping[str, str], name: str) -> EntryId | None:
    try:
        return parse_entry_id(details.get(name, ""))
    except InvalidSpec:
        return None


def find_position_doubt(
    snapshot: GroupSnapshot,
    last: PreviousGroupState,
    *,
    max_deleted: EntryId,
    created_at: EntryId | None,
) -> str | None:
    """Why entries up to the position may not have been delivered; None: nothing shows that.

    `max_deleted` is the highest ID that XDEL ever removed from the stream. `created_at` is where
    the group was created in this window, according to the ledger or append-only files.
    """
    if snapshot.position in {EntryId.MIN, created_at}:
        return None
    if last.was_missing and created_at is None:
        return "the group was created since the audit before"
    if last.group is not None and snapshot.is_another(last.group):
        return "the group was deleted and created again since the audit before"
    if snapshot.entries_read is not None:
        return None
    at = f"the group's position {snapshot.position} was set by XGROUP CREATE or SETID"
    # Once unknown, it stays unknown until a read reaches the end.
    was_unknown = created_at not in {None, EntryId.MIN} or (
        last.group is not None and last.group.entries_read is None
    )
    if max_deleted == EntryId.MIN and not was_unknown:
        return f"{at}: the server does not know how much was read up to it"
    if snapshot.given_ms is None:
        return f"{at}, or its consumers were deleted: none of them was ever given an entry"
    if snapshot.given_ms < snapshot.position.ms:
        return f"{at}: no consumer was given an entry since that one was added"
    return None
