"""One group in one window: everything that its audit needs, except the entries.

`build_sides` turns it into the constants that the rules compare entries with: one row for the
stream, and one for the group's retry stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.ledger import CreationReason, LedgerKind
from pelops.pipeline.archive.ids import bounded
from pelops.pipeline.archive.ledger import GroupHistory
from pelops.pipeline.archive.records import GroupRecord, Known
from pelops.pipeline.archive.redis_reader import GroupSnapshot
from pelops.pipeline.archive.snapshot import GroupSnapshots, Presence, WindowSnapshot
from pelops.pipeline.archive.windows import Plan, StreamRecord
from pelops.pipeline.audit.gone_entries import certain_losses, gap_of
from pelops.pipeline.audit.group_share import (
    ArchivedWindow,
    GroupShare,
    GroupStart,
    PreviousGroupState,
    Removed,
    find_audited_after,
    find_beginning,
    find_position_doubt,
    find_share,
    read_first_creation,
    read_moves,
)
from pelops.pipeline.settings import AuditTarget

_RANGE: Final = pa.struct([(name, pa.int64()) for name in ("after_ms", "after_seq", "ms", "seq")])
_ID_COLUMNS: Final = (
    "owed_after", "after", "upto", "audited_after", "reached_before", "position", "position_after",
    "from", "last_known", "begins", "ends", "sure_after", "max_deleted", "archived_upto",
    "whole_after",
)  # fmt: skip
SIDES: Final = pa.schema(
    [
        ("g", pa.int32()),
        ("copy", pa.bool_()),
        ("stream", pa.string()),
        ("grp", pa.string()),
        ("window", pa.int32()),
        ("run_before", pa.int64()),
        ("at_ms", pa.int64()),
        ("closed_ms", pa.int64()),
        ("stuck_after_ms", pa.int64()),
        ("may_miss_entries", pa.bool_()),
        ("exists", pa.bool_()),
        ("is_reached_still", pa.bool_()),
        ("position_holds", pa.bool_()),
        ("position_was_read", pa.bool_()),
        ("is_recreated", pa.bool_()),
        *(
            (name, pa.list_(_RANGE))
            for name in ("seen", "watched", "gaps", "dropped", "dropped_since")
        ),
        *((f"{name}_{part}", pa.int64()) for name in _ID_COLUMNS for part in ("ms", "seq")),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCreation:
    """A group's first creation, according to append-only files."""

    position: EntryId | None = None  # None: they do not record it
    gone_before: int = 0  # entries below the window, removed by then: not the group's


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCounts:
    """Counts of the archived entries of a stream in a window."""

    entries: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    # Entries whose IDs the archive cannot hold, due to their milliseconds or sequence numbers.
    beyond: int = 0
    beyond_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One group in one window."""

    g: int
    plan: Plan
    target: AuditTarget
    snapshots: GroupSnapshots
    window_snapshot: WindowSnapshot
    history: GroupHistory
    counts: StreamCounts
    share: GroupShare  # the group's part of the window
    known: Known
    has_files: bool
    audited_after: EntryId  # start of the first window that was audited for the group
    previous: PreviousGroupState  # at the audit of the previous window

    @property
    def record(self) -> GroupRecord | None:
        """The group's record of the previous window; None if it was not audited then."""
        return previous_record(self.plan, self.known, self.target.group)

    @property
    def retry(self) -> str:
        """The group's own retry stream."""
        return derive_keys(self.plan.stream, self.target.group).retry

    @property
    def reached_before(self) -> EntryId:
        """The group's position before the window was archived."""
        return self.plan.positions.get(self.target.group, EntryId.MIN)

    @property
    def is_reached_still(self) -> bool:
        """Whether the position is still at or after `reached_before`.

        The snapshot does not check the presence of entries below that.
        """
        before = self.snapshots.before
        return before is not None and before.position >= self.reached_before

    @property
    def position_holds(self) -> bool:
        """Whether the position moved only forward, and only by deliveries."""
        before, after = self.snapshots.before, self.snapshots.after
        if before is None or after is None or after.is_another(before):
            return False
        if not self.reached_before <= before.position <= after.position:
            return False
        if before.position < self.previous.position:
            return False
        if self.position_doubt is not None and self.previous.group is None:
            return False  # its position before it was set is unknown, and may have been higher
        created = self.history.of(LedgerKind.GROUP_CREATED)
        new = [one for one in created if one.get("why") != CreationReason.FIRST]
        return not new and not self.history.of(LedgerKind.POSITION_CHANGED)

    @property
    def last_known_position(self) -> EntryId:
        """The last position of a group that is missing now; the highest ID if unknown."""
        known = max(self.reached_before, self.previous.position)
        return EntryId.MAX if known == EntryId.MIN else known

    @property
    def position_doubt(self) -> str | None:
        """Why entries up to the position may not have been delivered; None: they were."""
        before = self.snapshots.before
        if before is None:
            return None
        return find_position_doubt(
            before,
            self.previous,
            max_deleted=self.window_snapshot.stream.max_deleted,
            created_at=self.share.begin,
        )

    @property
    def position_was_read(self) -> bool:
        """Whether every entry below the position was delivered."""
        return self.position_holds and self.position_doubt is None

    @property
    def may_miss_entries(self) -> bool:
        """Whether entries of the group may have been removed before they were archived."""
        return self.share.archived < self.share.produced or bool(self.share.removed)


def previous_record(plan: Plan, known: Known, group: str) -> GroupRecord | None:
    """The record of a group from the window before this plan's; None if there is none."""
    record = known.record
    if record is None or record.plan.number != plan.number - 1:
        return None
    return known.groups.get(group)


def previous_state(plan: Plan, record: StreamRecord | None, group: str) -> PreviousGroupState:
    """The state of the group at the audit of the previous window."""
    if record is None or plan.breaks or record.plan.number != plan.number - 1:
        return PreviousGroupState()
    return PreviousGroupState(
        group=record.after.get(group), was_missing=group not in record.all_groups
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseParts:
    """The parts of a case, before the start of the group is determined."""

    g: int
    plan: Plan
    target: AuditTarget
    window_snapshot: WindowSnapshot
    history: GroupHistory
    created: FileCreation
    counts: StreamCounts
    known: Known
    has_files: bool


def build_case(parts: CaseParts, count_until: Callable[[EntryId], int]) -> Case:
    """Build a case. `count_until` returns the number of archived entries up to an ID."""
    plan, known, group = parts.plan, parts.known, parts.target.group
    snapshots, previous = (
        parts.window_snapshot.groups[group],
        previous_state(plan, known.record, group),
    )
    position = None if snapshots.before is None else snapshots.before.position
    there = ArchivedWindow(
        entries=parts.counts.entries,
        count_until=count_until,
        beyond=parts.counts.beyond,
        beyond_seq=parts.counts.beyond_seq,
    )
    begin = find_beginning(
        read_first_creation(plan.stream, parts.history),
        GroupStart(at=parts.created.position, gone=parts.created.gone_before),
        there,
        position=position,
    )
    gone_before = min(begin.gone, plan.window.from_added) if plan.starts_over else 0
    removed = Removed(
        entries=plan.window.from_added - gone_before,
        max_deleted=parts.window_snapshot.stream.max_deleted,
    )
    share = find_share(
        plan.window, there, begin=begin.at, removed=removed if plan.starts_over else None
    )
    record = previous_record(plan, known, group)
    after = share.after  # if the stream was created again, this window is the first
    if record is not None and not plan.breaks:
        after = find_audited_after(
            record.audited_after,
            read_moves(plan.stream, parts.history),
            position=position,
            last=previous.position,
        )
    return Case(
        g=parts.g,
        plan=plan,
        target=parts.target,
        snapshots=snapshots,
        window_snapshot=parts.window_snapshot,
        history=parts.history,
        counts=parts.counts,
        share=replace(share, gone_before=gone_before),
        known=known,
        has_files=parts.has_files,
        audited_after=after,
        previous=previous,
    )


def build_sides(cases: Iterable[Case]) -> pa.Table:
    """The constants of all groups, as rows of `SIDES`."""
    return pa.Table.from_pylist([row for case in cases for row in _sides(case)], SIDES)


def _sides(case: Case) -> list[dict[str, Any]]:
    plan, target = case.plan, case.target
    shared = {
        "g": case.g,
        "grp": target.group,
        "window": plan.number,
        "run_before": case.known.run if case.record is not None else 0,
        "at_ms": case.window_snapshot.at_ms,
        "closed_ms": bounded(EntryId(max(0, int(plan.window.at.timestamp() * 1000))))[0],
        "stuck_after_ms": target.stuck_after_ms,
        "is_recreated": bool(plan.breaks),
    }
    snapshots, presence = case.snapshots, case.window_snapshot.presence
    losses = certain_losses(case.history)
    exact = [one for one in losses if one.get("at_least", "") == one.get("at_most")]
    since = EntryId(0 if case.known.record is None else case.known.record.at_ms)
    dropped = case.history.dropped
    main = shared | {
        "copy": False,
        "stream": plan.stream,
        "may_miss_entries": case.may_miss_entries,
        "exists": snapshots.before is not None,
        "is_reached_still": case.is_reached_still,
        "position_holds": case.position_holds,
        "position_was_read": case.position_was_read,
        "seen": _ranges(gap_of(one) for one in exact),
        "watched": _ranges((one.after, one.upto) for one in case.history.watched),
        "gaps": _ranges(gap_of(one) for one in losses),
        "dropped": _ranges((one.after, one.upto) for one in dropped),
        "dropped_since": _ranges((one.after, one.upto) for one in dropped if one.at > since),
    }
    main |= _ids(
        **{"from": plan.window.from_id},
        owed_after=case.share.window.from_id if case.share.left_out else EntryId.MIN,
        after=case.share.after,
        upto=case.share.window.to_id,
        audited_after=case.audited_after,
        reached_before=case.reached_before,
        **_positions(snapshots),
        last_known=case.last_known_position,
        **_presence(presence),
        max_deleted=case.window_snapshot.stream.max_deleted,
        archived_upto=plan.window.to_id,
        whole_after=case.share.whole.from_id,
    )
    retry = case.window_snapshot.retries.get(target.group)
    if retry is None or retry[0].before is None:
        return [main]
    return [main, shared | _retry_side(case, *retry)]


def _retry_side(case: Case, snapshots: GroupSnapshots, presence: Presence) -> dict[str, Any]:
    is_watched = case.history.exists and case.history.checkpoints > 0
    everything = [(EntryId.MIN, EntryId.MAX)] if is_watched else []
    before, after = _position(snapshots.before), _position(snapshots.after)
    return {
        "copy": True,
        "stream": case.retry,
        "may_miss_entries": False,
        "exists": True,
        "is_reached_still": False,
        "position_holds": before <= after,
        "position_was_read": before <= after,
        "seen": [],
        "watched": _ranges(everything),
        "gaps": [],
        "dropped": [],
        "dropped_since": [],
    } | _ids(
        **{"from": EntryId.MIN},
        owed_after=EntryId.MIN,
        after=EntryId.MIN,
        upto=EntryId.MIN,
        audited_after=EntryId.MIN,
        reached_before=EntryId.MIN,
        **_positions(snapshots),
        last_known=EntryId.MAX,
        **_presence(presence),
        max_deleted=EntryId.MIN,
        archived_upto=case.plan.retries[case.target.group][1],
        whole_after=EntryId.MIN,
    )


def _position(snapshot: GroupSnapshot | None) -> EntryId:
    return EntryId.MIN if snapshot is None else snapshot.position


def _positions(snapshots: GroupSnapshots) -> dict[str, EntryId]:
    return {"position": _position(snapshots.before), "position_after": _position(snapshots.after)}


def _presence(presence: Presence) -> dict[str, EntryId]:
    return {
        "begins": presence.begins,
        "ends": presence.ends,
        "sure_after": presence.sure_after,
    }


def _ids(**ids: EntryId) -> dict[str, int]:
    found = {}
    for name, entry_id in ids.items():
        found[f"{name}_ms"], found[f"{name}_seq"] = bounded(entry_id)
    return found


def _ranges(pairs: Iterable[tuple[EntryId, EntryId]]) -> list[dict[str, int]]:
    found = []
    for after, upto in pairs:
        (after_ms, after_seq), (ms, seq) = bounded(after), bounded(upto)
        found.append({"after_ms": after_ms, "after_seq": after_seq, "ms": ms, "seq": seq})
    return found
