"""Reads the ledgers of a group: one row for each act on each entry.

The operator's ledger also has events of the group as a whole: losses, trims, changes of its
position. From the worker ledger, only acts on entries are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.ledger import (
    WORKER_KINDS,
    LedgerEvent,
    LedgerKind,
    parse_ledger_event,
)
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.ids import bounded
from pelops.pipeline.archive.redis_reader import RedisReader
from pelops.pipeline.archive.windows import LedgerEnd

ACTS: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("in_stream", pa.string()),
        ("target", pa.string()),
        *((name, pa.int64()) for name in ("ms", "seq", "new_ms", "new_seq", "root_ms", "root_seq")),
        ("retry_count", pa.int32()),
        ("deliveries", pa.int64()),
        ("idle_ms", pa.int64()),
        ("reason", pa.string()),
        ("consumer", pa.string()),
        ("event_ms", pa.int64()),
        ("event_seq", pa.int64()),
    ]
)
_TEXT: Final = 512  # maximum number of characters of a reason
_ROWS: Final = 10_000  # held as Python objects
_MOST_EVENTS: Final = 10_000  # of a group as a whole
_MOST_RANGES: Final = 100
# Events of the group as a whole; there are few.
_OF_GROUP: Final = frozenset(
    {
        LedgerKind.DATA_LOSS,
        LedgerKind.TRIMMED,
        LedgerKind.POSITION_CHANGED,
        LedgerKind.GROUP_CREATED,
        LedgerKind.GROUP_ADOPTED,
        LedgerKind.PENDING_DROPPED,
        LedgerKind.DEAD_LETTERS_EXPIRED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedInWindow:
    """Pending entries that may have been removed with a deleted consumer."""

    at: EntryId  # the event in the ledger
    at_most: int
    after: EntryId  # lower bound of their IDs, by an earlier checkpoint
    upto: EntryId  # upper bound: the group's position at a later checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRange:
    """A range in which each entry is present, or was delivered before its removal."""

    after: EntryId
    upto: EntryId

    @classmethod
    def read(cls, checkpoint: LedgerEvent) -> WatchedRange | None:
        """The range of a checkpoint; None if the checkpoint has none."""
        after, upto = _id_of(checkpoint, "watched_from"), _id_of(checkpoint, "last_delivered")
        return None if after is None or upto is None else cls(after=after, upto=upto)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """The acts and events in a group's ledgers since the window began."""

    end: LedgerEnd
    acts: pa.Table  # on entries: see `ACTS`
    events: tuple[LedgerEvent, ...] = ()  # of the group as a whole, in order
    checkpoints: int = 0
    watched: tuple[WatchedRange, ...] = ()  # in order, disjoint
    dropped: tuple[DroppedInWindow, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether there is a ledger."""
        return self.end.exists

    def of(self, kind: LedgerKind) -> list[Mapping[str, str]]:
        """The details of all events of a kind."""
        return [one.details for one in self.events if one.kind == kind]


def read_history(watch: RedisReader, keys: GroupKeys, after: EntryId) -> GroupHistory:
    """Read both ledgers of a group after an ID. Raises RedisStreamsError."""
    ledger, workers = watch.stream(keys.ledger), watch.stream(keys.worker_ledger)
    reading = _Reading()
    for event in _read_events(watch, keys.ledger, after, ledger.last_generated):
        reading.add(event)
    for event in _read_events(watch, keys.worker_ledger, after, workers.last_generated):
        if event.kind in WORKER_KINDS:
            # Workers may record acts on entries, but not events of the group.
            reading.add_acts(event)
    end = LedgerEnd(
        exists=ledger.exists,
        last=ledger.last_generated,
        of_workers=workers.last_generated,
        has_events=reading.has_events,
    )
    return reading.finish(end)


def _read_events(
    watch: RedisReader, ledger: str, after: EntryId, last: EntryId
) -> Iterator[LedgerEvent]:
    for entry_id, flat in watch.entries(ledger, after, last):
        pairs: dict[bytes, bytes] = {}
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            pairs.setdefault(name, value)  # of a repeated name, the first counts
        yield parse_ledger_event(entry_id, pairs)


@dataclass(slots=True)
class _Reading:
    """Acts and events as they are read."""

    parts: list[pa.RecordBatch] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[LedgerEvent] = field(default_factory=list)
    checkpoint_events: list[LedgerEvent] = field(default_factory=list)
    has_events: bool = False

    def add(self, event: LedgerEvent) -> None:
        self.has_events = True
        if event.kind == LedgerKind.CHECKPOINT:
            self.checkpoint_events.append(event)
        elif event.kind in _OF_GROUP and len(self.events) < _MOST_EVENTS:
            self.events.append(event)
        self.add_acts(event)

    def add_acts(self, event: LedgerEvent) -> None:
        self.rows += _rows(event)
        if len(self.rows) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            arrays = [pa.array(part, one.type) for part, one in zip(columns, ACTS, strict=True)]
            self.parts.append(pa.RecordBatch.from_arrays(arrays, schema=ACTS))
            self.rows = []

    def finish(self, end: LedgerEnd) -> GroupHistory:
        self._flush()
        dropped = [one for one in self.events if one.kind == LedgerKind.PENDING_DROPPED]
        return GroupHistory(
            end=end,
            acts=pa.Table.from_batches(self.parts, ACTS),
            events=tuple(self.events),
            checkpoints=len(self.checkpoint_events),
            watched=tuple(join_watched(self.checkpoint_events)),
            dropped=tuple(_bound(one, self.checkpoint_events) for one in dropped),
        )


def _rows(event: LedgerEvent) -> Iterator[tuple[Any, ...]]:
    details = event.details
    stream = details.get("stream")
    target = details.get("target", stream if event.kind == LedgerKind.REQUEUED else None)
    reason, consumer = details.get("reason", "")[:_TEXT], details.get("consumer", "")
    at = bounded(event.entry_id)
    for entry in event.entries:
        # Skip an entry whose ID the archive cannot hold: bounded, it would be the ID of another.
        if bounded(entry.entry_id) == (entry.entry_id.ms, entry.entry_id.seq):
            yield (
                event.kind, stream, target, *bounded(entry.entry_id),
                *(bounded(entry.new_id) if entry.new_id else (None, None)), *bounded(entry.root_id),
                entry.retry_count, entry.deliveries, round(entry.idle.total_seconds() * 1000),
                reason, consumer, *at,
            )  # fmt: skip


def join_watched(checkpoint_events: Iterable[LedgerEvent]) -> list[WatchedRange]:
    """Join the watched ranges of checkpoints, given in order, to disjoint ranges in order.

    If there are too many, the last ones are kept. After the stream was created again, earlier
    ranges are dropped, because IDs may repeat.
    """
    ranges: list[WatchedRange] = []
    before = 0
    for checkpoint in checkpoint_events:
        added = _number(checkpoint.details.get("entries_added", ""))
        if added < before:
            ranges = []
        before = added
        watched = WatchedRange.read(checkpoint)
        if watched is not None and watched.after < watched.upto:
            ranges.append(watched)
    joined: list[WatchedRange] = []
    for watched in sorted(ranges, key=lambda each: (each.after, each.upto)):
        if joined and watched.after <= joined[-1].upto:
            last = joined.pop()
            joined.append(replace(last, upto=max(last.upto, watched.upto)))
        else:
            joined.append(watched)
    return joined[-_MOST_RANGES:]


def _bound(event: LedgerEvent, checkpoint_events: Sequence[LedgerEvent]) -> DroppedInWindow:
    """The range of IDs of pending entries that were removed with a consumer.

    Each was pending at the checkpoint before the deletion, or was delivered after it, and in any
    case before the next checkpoint.
    """
    observed_ms = _number(event.details.get("observed_ms", ""))
    after, upto = EntryId.MIN, EntryId.MAX
    for checkpoint in checkpoint_events:
        position = _id_of(checkpoint, "last_delivered")
        if position is not None and checkpoint.entry_id.ms <= observed_ms:
            lowest = _id_of(checkpoint, "lowest_pending")
            after = position if lowest is None else min(position, lowest.before())
        elif position is not None and checkpoint.entry_id > event.entry_id:
            upto = position
            break
    at_most = _number(event.details.get("at_most", ""))
    return DroppedInWindow(at=event.entry_id, at_most=at_most, after=after, upto=upto)


def _id_of(checkpoint: LedgerEvent, name: str) -> EntryId | None:
    try:
        return parse_entry_id(checkpoint.details.get(name, ""))
    except InvalidSpec:
        return None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
