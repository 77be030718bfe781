"""The part of a window that a group must process: all after its first position.

A group that starts at the end of its stream was never given what was there before. Such entries are
no part of what was produced for it, so its window begins where the group does.

An entry below the position that is not pending counts as acknowledged only where the position was
moved by deliveries. XGROUP CREATE at an ID, XGROUP SETID, and a group that was deleted and created
again move it past entries that were never delivered.

`entries-read` is the sign: the server does not know it for a group that was created or set to an ID
in the middle, until a read reaches the end of the stream. A group that read from the beginning on
loses it only where entries were deleted by XDEL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import CreationReason, LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.ledger import GroupHistory
from pelops.pipeline.redis_reader import GroupSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousGroupState:
    """A group at the end of the audit before; of a first one nothing is known."""

    group: GroupSnapshot | None = None
    was_missing: bool = False  # the stream was looked at, and had no such group

    @property
    def position(self) -> EntryId:
        """The position; the lowest ID where it is not known."""
        return self.group.position if self.group else EntryId.MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """What of a window belongs to one group."""

    window: Window
    archived: int
    left_out: int = 0  # archived entries from before the group
    removed: int = 0  # entries that were gone before the first archive, and may be the group's
    gone_before: int = 0  # others that were gone by then: they went before the group began
    begin: EntryId | None = None  # where the group was created; None: that is not known

    @property
    def produced(self) -> int:
        return self.window.to_added - self.window.from_added

    @property
    def after(self) -> EntryId:
        """Entries after it are the group's, also those that were gone before the first archive.

        After a break of the stream only the counters report such entries: what other evidence says
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


def close_balance(share: GroupShare, total: int, unaccounted: int) -> Balance:
    """Tell entries that were gone before the first archive, and of which nothing tells, apart.

    `unaccounted` are those of the `total` that nobody has seen and nothing reports. All others are
    part of the window, which then begins before the first entry that was left.
    """
    unknown = min(share.removed, unaccounted)
    produced = total - unknown
    if not share.removed or produced <= share.produced:
        return Balance(window=share.window, unknown_before=unknown)
    window = share.window
    wider = replace(window, from_id=share.after, from_added=max(0, window.to_added - produced))
    return Balance(window=wider, unknown_before=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """What was there of a window when it was archived."""

    entries: int
    count_until: Callable[[EntryId], int]  # how many of these lie up to an ID
    # Entries that the archive cannot hold: by the milliseconds of their IDs, which are the last of
    # the window, or only by their sequence numbers, which lie anywhere.
    beyond: int = 0
    beyond_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStart:
    """Where a group began, and how much of the stream was gone by then: never the group's."""

    at: EntryId | None = None  # None: nothing tells
    gone: int = 0  # entries


def find_beginning(
    ledger: FirstCreation,
    files: GroupStart,
    archived: Archived,
    *,
    position: EntryId | None,
) -> GroupStart:
    """By the ledger, by append-only files, and by the group's `position` now, None without a group.

    A group whose position was set back to before its beginning owes what lies between. What was
    gone by then it never owes: files tell how much that was, and so does the ledger, of a group
    that was not set back, by what had been added less what is archived of it.
    """
    reported = [one for one in (*ledger.positions, files.at) if one is not None]
    if not reported:
        return files
    at = min(reported if position is None else [*reported, position])
    gone = files.gone
    if ledger.added is not None and at == ledger.positions[0]:
        left = archived.count_until(at) + archived.beyond_seq  # at most
        gone = max(gone, ledger.added - left)
    return GroupStart(at=at, gone=gone)


def find_audited_after(
    reported: EntryId, moves: Iterable[EntryId], *, position: EntryId | None, last: EntryId
) -> EntryId:
    """After which entry all are audited: as the window before `told`, or before that.

    A group that was set back to before its first window owes what lies between: `moves` are where
    the ledger says that it was put, and `position` counts when it is lower than at the `last` look.
    """
    went_back = [position] if position is not None and position < last else []
    return min([reported, *moves, *went_back])


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


def find_share(
    window: Window,
    archived: Archived,
    *,
    begin: EntryId | None,
    removed: Removed | None = None,
) -> GroupShare:
    """The group's part of a window.

    Only the ledger and append-only files tell where a group began. Of entries that were gone before
    the archive nobody knows on which side they lay: they stay, unless one from before the group is
    archived. So do those that the archive cannot hold. `removed` is of the first window.
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
    # Trimming takes the oldest: with one from before the group left, all that are gone are older.
    there = archived.entries + archived.beyond + archived.beyond_seq
    missing = max(0, window.to_added - window.from_added - there)
    added = min(window.from_added + left_out + missing, window.to_added)
    mine = replace(window, from_id=begin, from_added=added)
    kept = archived.entries - left_out
    return GroupShare(window=mine, archived=kept, left_out=left_out, removed=gone, begin=begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCreation:
    """What the ledger reports a group's first creation; without it the group began elsewhere."""

    positions: tuple[EntryId, ...] = ()  # where it was created, and where it was put later
    added: int | None = None  # entries that had been added to the stream until it was created


def read_first_creation(stream: str, history: GroupHistory) -> FirstCreation:
    """Of a group, from its ledger; nothing when the ledger does not tell where it was created."""
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
    """Where a group was put after its first creation, otherwise than by reads."""
    again = [one for one in _creations(stream, history) if not _is_first(one)]
    reported = [_position(one, "position") for one in again]
    reported += [_position(one, "to") for one in history.of(LedgerKind.POSITION_CHANGED)]
    return [one for one in reported if one is not None]


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
    look: GroupSnapshot,
    last: PreviousGroupState,
    *,
    max_deleted: EntryId,
    created_at: EntryId | None,
) -> str | None:
    """Why entries up to the position may never have been delivered; None when nothing shows it.

    `max_deleted` is the highest ID that XDEL ever removed from the stream; `created_at` is where
    the group was created in this window, as the ledger or append-only files tell.
    """
    if look.position in {EntryId.MIN, created_at}:
        return None
    if last.was_missing and created_at is None:
        return "the group was created since the audit before"
    if last.group is not None and look.is_another(last.group):
        return "the group was deleted and created again since the audit before"
    if look.entries_read is not None:
        return None
    at = f"the group's position {look.position} was set by XGROUP CREATE or SETID"
    # It stays unknown, once it is, while reads do not reach the end.
    was_unknown = created_at not in {None, EntryId.MIN} or (
        last.group is not None and last.group.entries_read is None
    )
    if max_deleted == EntryId.MIN and not was_unknown:
        return f"{at}: the server does not know how much was read up to it"
    if look.given_ms is None:
        return f"{at}, or its consumers were deleted: none of them was ever given an entry"
    if look.given_ms < look.position.ms:
        return f"{at}: no consumer was given an entry since that one was added"
    return None
