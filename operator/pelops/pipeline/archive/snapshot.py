"""Positions and pending entries, read in an order that makes them comparable.

The order is: position, pending entries, present entries, position again. An entry that is not
present and is after the second position was never delivered.

Present entries are a range and a list. Trimming removes the first entries, and XDEL none after the
stream's max-deleted-entry-id. So all entries after it are present, and only those before it are
listed. https://redis.io/docs/latest/commands/xinfo-stream/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.ids import LAST_HELD, is_held
from pelops.pipeline.archive.records import Known
from pelops.pipeline.archive.redis_reader import GroupSnapshot, RedisReader, StreamSnapshot
from pelops.pipeline.archive.windows import Plan, RetrySnapshots
from pyspark_redis_streams.errors import GroupMissing, StreamMissing

PENDING: Final = pa.schema(
    [
        ("ms", pa.int64()),
        ("seq", pa.int64()),
        ("consumer", pa.string()),
        ("idle_ms", pa.int64()),
        ("delivery_count", pa.int64()),
        ("pending_body", pa.bool_()),
    ]
)
IDS: Final = pa.schema([("ms", pa.int64()), ("seq", pa.int64())])
_ROWS: Final = 10_000  # held as Python objects


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Which entries of a stream were present."""

    begins: EntryId  # the first entry; the highest ID if the stream was empty
    ends: EntryId  # the last ID that was ever added
    sure_after: EntryId  # all entries after it were present
    listed: pa.Table  # present ones up to `sure_after`: see `IDS`


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshots:
    """One group on one stream."""

    before: GroupSnapshot | None  # None: the group did not exist
    after: GroupSnapshot | None
    pending: pa.Table  # see `PENDING`


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSnapshot:
    """A stream and its groups, and their own retry streams."""

    at_ms: int
    stream: StreamSnapshot  # at the end
    presence: Presence
    groups: Mapping[str, GroupSnapshots]  # the audited ones
    retries: Mapping[str, tuple[GroupSnapshots, Presence]]
    all_groups: tuple[str, ...]
    counts_trimmed: bool  # see `ServerSnapshot`

    @property
    def retry_snapshots(self) -> dict[str, RetrySnapshots]:
        """The snapshots of the retry streams that the next audit needs."""
        return {
            group: RetrySnapshots(before=snapshot.before, after=snapshot.after)
            for group, (snapshot, _) in self.retries.items()
        }


def take_snapshot(watch: RedisReader, plan: Plan, known: Known) -> WindowSnapshot:
    """Take a snapshot of all groups of a window's stream. Raises RedisStreamsError."""
    name = plan.stream
    groups = [target.group for target in plan.targets]
    at_ms = watch.now_ms(name)
    there, stream = watch.groups(name), watch.stream(name)
    before = {
        group: _complete(watch, name, group, there[group]) for group in groups if group in there
    }
    pending = {group: _read_pending(watch, name, group, stream) for group in before}
    presence = _find_present(watch, name, _lowest_checked(plan, known), plan.window.to_id)
    retries = {group: _read_retries(watch, plan, group) for group in groups}
    after, last = watch.groups(name), watch.stream(name)
    none = PENDING.empty_table()
    return WindowSnapshot(
        at_ms=at_ms,
        stream=last,
        presence=presence,
        groups={
            group: GroupSnapshots(
                before=before.get(group),
                after=after.get(group),
                pending=pending.get(group, none),
            )
            for group in groups
        },
        retries={group: snapshot for group, snapshot in retries.items() if snapshot is not None},
        all_groups=tuple(sorted(there)),
        counts_trimmed=watch.server(name).counts_trimmed,
    )


def _lowest_checked(plan: Plan, known: Known) -> EntryId:
    """The ID after which presence is checked: every group had passed it before the archive."""
    positions = [plan.positions.get(t.group, EntryId.MIN) for t in plan.targets]
    lowest = [max(min(positions, default=EntryId.MIN), plan.window.from_id), plan.window.to_id]
    for target in plan.targets:
        record = known.groups.get(target.group)
        if record is not None and record.lowest_undelivered is not None:
            lowest.append(record.lowest_undelivered.before())
    return min(lowest)


def _complete(
    watch: RedisReader, stream: str, group: str, snapshot: GroupSnapshot
) -> GroupSnapshot:
    """Add the time of the last delivery if `entries-read` is unknown."""
    if snapshot.entries_read is not None or not snapshot.consumers:
        return snapshot
    return replace(snapshot, given_ms=watch.given_ms(stream, group))


def _read_pending(watch: RedisReader, name: str, group: str, snapshot: StreamSnapshot) -> pa.Table:
    """The pending entries of a group, each with whether its body exists."""
    parts: list[pa.RecordBatch] = []
    rows: list[tuple[EntryId, str, int, int]] = []
    try:
        for row in watch.pending(name, group):
            if is_held(row[0]):
                rows.append(row)
            if len(rows) == _ROWS:
                parts.append(_with_bodies(watch, name, snapshot, rows))
                rows = []
    except (GroupMissing, StreamMissing):
        # The group was deleted meanwhile: nothing is pending.
        return PENDING.empty_table()
    if rows:
        parts.append(_with_bodies(watch, name, snapshot, rows))
    return pa.Table.from_batches(parts, PENDING)


def _with_bodies(
    watch: RedisReader,
    name: str,
    snapshot: StreamSnapshot,
    rows: Sequence[tuple[EntryId, str, int, int]],
) -> pa.RecordBatch:
    """Add whether the bodies exist. Redis is asked only for IDs that XDEL may have removed."""
    ids = [row[0] for row in rows]
    first = snapshot.first
    has_body = [first is not None and one >= first for one in ids]
    asked = [at for at, one in enumerate(ids) if has_body[at] and one <= snapshot.max_deleted]
    for at, there in zip(asked, watch.are_there(name, [ids[at] for at in asked]), strict=True):
        has_body[at] = there
    _, consumers, idle, deliveries = zip(*rows, strict=True)
    columns: list[Any] = [[one.ms for one in ids], [one.seq for one in ids]]
    columns += [consumers, idle, deliveries, has_body]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PENDING, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PENDING)


def _find_present(watch: RedisReader, name: str, after: EntryId, last: EntryId) -> Presence:
    snapshot = watch.stream(name)
    first = EntryId.MAX if snapshot.first is None else snapshot.first
    end = min(snapshot.max_deleted, last, LAST_HELD)
    begin = max(after, first.before())
    return Presence(
        begins=first,
        ends=snapshot.last_generated,
        sure_after=snapshot.max_deleted,
        listed=_list(watch, name, begin, end),
    )


def _list(watch: RedisReader, name: str, after: EntryId, last: EntryId) -> pa.Table:
    parts: list[pa.RecordBatch] = []
    some: list[EntryId] = []

    def flush() -> None:
        columns = [[one.ms for one in some], [one.seq for one in some]]
        parts.append(
            pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], schema=IDS)
        )
        some.clear()

    for entry_id in _ids(watch, name, after, last):
        some.append(entry_id)
        if len(some) == _ROWS:
            flush()
    flush()
    return pa.Table.from_batches(parts, IDS)


def _ids(watch: RedisReader, name: str, after: EntryId, last: EntryId) -> Iterator[EntryId]:
    if after < last:
        yield from (one for one, _ in watch.entries(name, after, last) if is_held(one))


def _read_retries(
    watch: RedisReader, plan: Plan, group: str
) -> tuple[GroupSnapshots, Presence] | None:
    """The group's retry stream, read in the same order; None if there is none."""
    if group not in plan.retries:
        return None
    name = derive_keys(plan.stream, group).retry
    before, snapshot = watch.groups(name).get(group), watch.stream(name)
    pending = PENDING.empty_table()
    if before is not None:
        pending = _read_pending(watch, name, group, snapshot)
    presence = _find_present(watch, name, EntryId.MIN, plan.retries[group][1])
    after = watch.groups(name).get(group)
    return GroupSnapshots(before=before, after=after, pending=pending), presence
