"""Windows of a stream, their plans, and the record that an audit keeps for the next one.

A run closes windows at checkpoints of the ledger, or at the end of the stream. The plan of a window
is made once, before entries are read, and every repetition uses it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Annotated, Final

from pydantic import TypeAdapter

from pelops.clock import from_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.audit import Window
from pelops.domain.records.json_codec import Stored
from pelops.domain.records.ledger import LedgerEvent, LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.redis_reader import GroupSnapshot, StreamSnapshot
from pelops.pipeline.settings import ArchivedPayload, AuditTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A point of a stream: `added` entries were ever added, the last with the ID `at_id`."""

    at_id: EntryId
    added: int
    at: datetime  # by the server's clock


def read_checkpoint(event: LedgerEvent, stream: str) -> Checkpoint | None:
    """Read a checkpoint of this stream from a ledger event; None for any other event."""
    details = event.details
    if event.kind != LedgerKind.CHECKPOINT or details.get("stream") != stream:
        return None
    added = details.get("entries_added", "")
    try:
        at_id = parse_entry_id(details.get("last_generated", ""))
    except InvalidSpec:
        return None
    if not (added.isascii() and added.isdigit()):
        return None
    return Checkpoint(at_id=at_id, added=int(added), at=from_ms(event.entry_id.ms))


# A scheduled run may be a little late, and the next one then too early.
_TOLERANCE = 0.1


def find_break(known: Checkpoint, snapshot: StreamSnapshot) -> str | None:
    """Why the stream does not continue the known one; None if it does."""
    if snapshot.added < known.added or snapshot.last_generated < known.at_id:
        return (
            f"the stream went back from {known.added} entries added (last ID {known.at_id}) to "
            f"{snapshot.added} (last ID {snapshot.last_generated}); it was deleted or flushed and "
            "created again, or a failover or a restored snapshot lost its end; which entries "
            "were added in between is unknown"
        )
    added = snapshot.added - known.added
    if snapshot.first is not None and snapshot.first > known.at_id and snapshot.length > added:
        return (
            f"the stream was deleted or flushed and created again: it holds {snapshot.length} "
            f"entries after {known.at_id}, but its counter grew by only {added} since then; which "
            "other entries were added in between is unknown"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Evidence whether a stream with higher counters is the archived one."""

    was_there: bool  # the last entry of the newest window was in the stream when it was planned
    is_same: bool | None  # whether that entry is unchanged; None: it was removed
    max_deleted: EntryId  # of the stream when the newest window was planned
    restarted: bool  # another server process answers now
    began_empty: bool  # that process certainly loaded no data at its start
    ledger_is_left: bool | None  # an archived event is still there; None: none was


def find_replacement(known: Checkpoint, snapshot: StreamSnapshot, traces: Traces) -> Replacement:
    """Whether another stream replaced the archived one and grew beyond it.

    Trimming can also remove all archived entries. Then only a restart of the server shows the
    difference.
    """
    at = known.at_id
    if traces.is_same is False:
        return Replacement(
            broken=f"the stream was replaced: its entry {at} differs from the archived one"
        )
    if traces.is_same or (snapshot.added, snapshot.last_generated) == (known.added, at):
        return Replacement()
    if snapshot.max_deleted < traces.max_deleted:
        return Replacement(
            broken="the stream was deleted or flushed and created again: its "
            "max-deleted-entry-id went "
            f"back from {traces.max_deleted} to {snapshot.max_deleted}"
        )
    nothing_left = snapshot.first is None or snapshot.first > at
    if traces.was_there and not nothing_left and snapshot.max_deleted < at:
        return Replacement(
            broken=f"the stream was replaced: its entry {at} is missing although it was not "
            "deleted "
            "and older entries exist"
        )
    if traces.ledger_is_left or not nothing_left:
        return Replacement()
    if traces.restarted and traces.began_empty:
        return Replacement(
            broken="the server restarted without its data, and the stream holds no archived entry: "
            "which entries were added in between is unknown"
        )
    if snapshot.length == snapshot.added - known.added and (
        known.added or traces.ledger_is_left is None
    ):
        return Replacement()  # exactly the archived entries were removed: it is the same
    server = ", and another server process answers" if traces.restarted else ""
    return Replacement(
        doubt=f"the stream holds no archived entry{server}: it was trimmed beyond them, or it was "
        "deleted and created again; then the entries added in between are in no window"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Why a stream is certainly another one (`broken`), or may be another one (`doubt`)."""

    broken: str | None = None
    doubt: str | None = None


def beginning(snapshot: StreamSnapshot, now: Checkpoint) -> Checkpoint:
    """The beginning of a new archive of a stream: before the first remaining entry."""
    before = (
        EntryId.MIN
        if snapshot.removed == 0
        else (snapshot.first or snapshot.last_generated).before()
    )
    if snapshot.first is None:
        before = snapshot.last_generated
    return Checkpoint(at_id=before, added=snapshot.removed, at=now.at)


def close_windows(
    begin: Checkpoint, checkpoints: Iterable[Checkpoint], *, span: timedelta | None, number: int
) -> list[Window]:
    """Windows from `begin` on, each at least about `span` long; None: one up to the last
    checkpoint.

    A window begins where the previous one ended. Without a checkpoint that is late enough, no
    window is closed. Checkpoints may be in any order; contradictory ones are left out.
    """
    ends = _choose_ends(begin, _consistent(begin, checkpoints), span)
    return [
        Window(
            number=number + place,
            from_id=one.at_id,
            to_id=other.at_id,
            from_added=one.added,
            to_added=other.added,
            at=other.at,
        )
        for place, (one, other) in enumerate(pairwise([begin, *ends]))
    ]


def _choose_ends(
    begin: Checkpoint, checkpoints: Sequence[Checkpoint], span: timedelta | None
) -> list[Checkpoint]:
    if span is None:
        return list(checkpoints[-1:])
    least, ends, last = span * (1 - _TOLERANCE), [], begin
    for checkpoint in checkpoints:
        if checkpoint.at - last.at >= least:
            ends.append(checkpoint)
            last = checkpoint
    return ends


def _consistent(begin: Checkpoint, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Checkpoints in order of time, without those whose ID or count is lower than before."""
    kept: list[Checkpoint] = []
    last = begin
    for checkpoint in sorted(checkpoints, key=lambda one: (one.at, one.added, one.at_id)):
        if checkpoint.added >= last.added and checkpoint.at_id >= last.at_id:
            kept.append(checkpoint)
            last = checkpoint
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArchivedWindow:
    """A window in the archive, where an ID is an object and a time is in ISO 8601."""

    number: int
    from_id: EntryId
    to_id: EntryId
    from_added: int
    to_added: int
    at: datetime

    @classmethod
    def of(cls, window: Window) -> _ArchivedWindow:
        """The form of a window in the archive."""
        return cls(**{one.name: getattr(window, one.name) for one in fields(cls)})

    def window(self) -> Window:
        """The window."""
        return Window(**{one.name: getattr(self, one.name) for one in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that determines the content of a window's archive."""

    stream: str
    window: Annotated[Window, Stored(_ArchivedWindow, _ArchivedWindow.window, _ArchivedWindow.of)]
    targets: tuple[AuditTarget, ...]
    payload: ArchivedPayload
    business_key: str | None = None
    positions: dict[str, EntryId] = field(default_factory=dict)  # by group, before the archive
    # Copies in the group's retry stream: after the first ID, up to the second.
    retries: dict[str, tuple[EntryId, EntryId]] = field(default_factory=dict)
    ledger_from: dict[str, EntryId] = field(default_factory=dict)  # by group: read after this
    removed: int = 0  # entries removed from the stream when the run began
    retention_margin: float | None = None
    breaks: tuple[str, ...] = ()  # why this window does not continue the last one
    doubts: tuple[str, ...] = ()  # why the stream may not be the last window's
    # Lets the next run check whether the stream is the same.
    end_digest: str | None = None  # of the window's last entry; None: it was removed
    max_deleted: EntryId = EntryId.MIN
    run_id: str = ""  # of the server; empty: unknown

    @property
    def number(self) -> int:
        """The number of the window."""
        return self.window.number

    @property
    def end(self) -> Checkpoint:
        """Where the next window begins."""
        return Checkpoint(at_id=self.window.to_id, added=self.window.to_added, at=self.window.at)

    @property
    def day(self) -> date:
        """The date of the window: the partition of its rows."""
        return self.window.at.date()

    @property
    def is_first(self) -> bool:
        """Whether the archive begins with it; entries removed before are in no window."""
        return self.window.number == 0

    @property
    def starts_over(self) -> bool:
        """Whether it begins at the first remaining entry instead of a previous window."""
        return self.is_first or bool(self.breaks)

    @property
    def produced(self) -> int:
        """Entries that were added in the window."""
        return self.window.to_added - self.window.from_added


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySnapshots:
    """A group on its retry stream, read in the same order as on the stream."""

    before: GroupSnapshot | None
    after: GroupSnapshot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """The snapshots of a stream and its groups that an audit keeps for the next one."""

    plan: Plan
    at_ms: int  # of the first snapshot
    stream: StreamSnapshot  # at the end
    before: dict[str, GroupSnapshot]  # existing groups
    after: dict[str, GroupSnapshot]
    all_groups: tuple[str, ...]  # including those that were not audited
    retries: dict[str, RetrySnapshots]
    ledgers: dict[str, LedgerEnd]
    counts_trimmed: bool  # see `ServerSnapshot`


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEnd:
    """How far a group's ledgers were read."""

    exists: bool
    last: EntryId  # the last event of the operator's ledger
    of_workers: EntryId
    has_events: bool = False  # an event of the operator's ledger was read


_PLANS: Final = TypeAdapter(Plan)
_RECORDS: Final = TypeAdapter(StreamRecord)


def render_plan(plan: Plan) -> str:
    """The plan as JSON."""
    return _PLANS.dump_json(plan).decode()


def parse_plan(text: str) -> Plan:
    """Parse the output of `render_plan`. Raises ValueError."""
    return _PLANS.validate_json(text)


def render_record(record: StreamRecord) -> str:
    """The record as JSON."""
    return _RECORDS.dump_json(record).decode()


def parse_record(text: str) -> StreamRecord:
    """Parse the output of `render_record`. Raises ValueError."""
    return _RECORDS.validate_json(text)
