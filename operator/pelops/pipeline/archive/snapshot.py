"""Positions and pending entries, in the order that makes them comparable.

The position before, the pending entries, what is left after the positions, the position after: an
entry that is gone and lies after the last of these was never delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.archive.stream_entries import read_slice
from pelops.pipeline.engine.sql import DataFrame, bounded, is_on_driver, unite
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.errors import StageFailed
from pelops.pipeline.redis_reader import GroupSnapshot, RedisReader, StreamSnapshot
from pelops.pipeline.stages import Content, WindowWork, run_stage, write_part, write_sorted
from pyspark_redis_streams.errors import GroupMissing, RedisStreamsError, StreamMissing
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.server_connections import ServerConnections

PENDING: Final = "ms BIGINT, seq BIGINT, consumer STRING, idle_ms BIGINT, delivery_count BIGINT"
_PENDING_PAGE: Final = 1000
_CHECKED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the looks said, for one group."""

    before: GroupSnapshot | None  # None: there was no such group
    after: GroupSnapshot | None
    stream: StreamSnapshot  # at the end
    pending: int  # rows
    at_ms: int
    counts_trimmed: bool = False  # see `ServerSnapshot`


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousGroupState:
    """A group at the end of the audit before; of a first one nothing is known."""

    group: GroupSnapshot | None = None
    was_missing: bool = False  # the stream was looked at, and had no such group

    @property
    def position(self) -> EntryId:
        return self.group.position if self.group else EntryId.MIN


def take_snapshot(work: WindowWork) -> Content:
    """Look at all groups of the window's stream. Answers what `read_snapshot` reads."""
    plan, watch = work.plan, work.run.watch

    def make(directory: str) -> Content:
        at_ms = watch.now_ms(plan.stream)
        before, stream = watch.groups(plan.stream), watch.stream(plan.stream)
        names = sorted(before)
        before = {t.group: before[t.group] for t in plan.targets if t.group in before}
        before = {group: _complete(watch, plan.stream, group, one) for group, one in before.items()}
        pending = {
            target.group: _write_pending(
                work,
                plan.stream,
                target.group,
                stream,
                f"{directory}/group={slug(target.group)}/pending",
            )
            for target in plan.targets
            if target.group in before
        }
        present = _write_present(work, directory)
        retries = {t.group: _look_at_retries(work, t.group, directory) for t in plan.targets}
        after, last = watch.groups(plan.stream), watch.stream(plan.stream)
        return {
            "at_ms": at_ms,
            "rows": {"present": present, "pending": pending},
            "before": {t.group: _render(before.get(t.group)) for t in plan.targets},
            "after": {t.group: _render(after.get(t.group)) for t in plan.targets},
            "retries": retries,
            "stream": _render_stream(last),
            "all_groups": names,
            "counts_trimmed": watch.server(plan.stream).counts_trimmed,
        }

    return run_stage(work, "snapshot", make)


def read_snapshot(content: Mapping[str, Any], group: str) -> Snapshot:
    """One group's part of what `take_snapshot` answered."""
    return Snapshot(
        before=parse_snapshot(content["before"][group]),
        after=parse_snapshot(content["after"][group]),
        stream=parse_stream_snapshot(content["stream"]),
        pending=content["rows"]["pending"].get(group, 0),
        at_ms=content["at_ms"],
        counts_trimmed=content.get("counts_trimmed", False),
    )


def read_previous_state(work: WindowWork, group: str) -> PreviousGroupState:
    """The group when the window before was looked at."""
    content = None
    if work.place.number and not work.plan.breaks:
        content = work.run.storage.read_json(work.place.before.part("snapshot.json"))
    if content is None:
        return PreviousGroupState()
    return PreviousGroupState(
        group=parse_snapshot(content["after"].get(group)),
        was_missing="all_groups" in content and group not in content["all_groups"],
    )


def lowest_position(work: WindowWork) -> EntryId:
    """Nothing at or below it need be looked for: every group had passed it before the archive."""
    plan = work.plan
    positions = [plan.positions.get(t.group, EntryId.MIN) for t in plan.targets]
    in_window = max(min(positions, default=EntryId.MIN), plan.window.from_id)
    return min(in_window, settled_to(work, "lowest_undelivered"), plan.window.to_id)


def settled_to(work: WindowWork, lowest_of: str) -> EntryId:
    """Before the lowest entry of earlier windows of which a group's marker tells by this name.

    To be asked when the window before is audited: one that is only archived tells nothing yet.
    """
    lowest = [EntryId.MAX]
    for target in work.plan.targets:
        found = work.run.storage.read_json(
            work.place.before.part(f"group={slug(target.group)}.json")
        )
        if found and found.get(lowest_of):
            lowest.append(parse_entry_id(found[lowest_of]).before())
    return min(lowest)


def _complete(watch: RedisReader, stream: str, group: str, look: GroupSnapshot) -> GroupSnapshot:
    """With the time of the last delivery, where the server does not know how much was read."""
    if look.entries_read is not None or not look.consumers:
        return look
    return replace(look, given_ms=watch.given_ms(stream, group))


def _write_present(work: WindowWork, directory: str) -> int:
    """IDs that are still there, of those that a group had not passed when the archive began."""
    plan, after, last = work.plan, lowest_position(work), work.plan.window.to_id
    edges = [after, *(cut for cut in plan.cuts if after < cut < last), last]
    options = {"pageSize": str(plan.page_size)}
    slices = [
        read_slice(work.run, plan.stream, ends, "ms BIGINT, seq BIGINT", options)
        for ends in pairwise(edges)
    ]
    return write_part(work, unite(slices), f"{directory}/present")


def _write_pending(
    work: WindowWork, stream: str, group: str, look: StreamSnapshot, path: str
) -> int:
    """The pending entries of a stream, each with whether its body is there."""
    try:
        frame = _with_bodies(work, _pending_frame(work, stream, group), stream, look)
        return write_sorted(work, frame, path, "ms", "seq")
    except (StageFailed, GroupMissing, StreamMissing):
        # The group may have gone since it was seen: then there is nothing pending.
        if group in work.run.watch.groups(stream):
            raise
        none = work.session.createDataFrame([], f"{PENDING}, has_body BOOLEAN")
        return write_sorted(work, none, path, "ms", "seq")


def _pending_frame(work: WindowWork, stream: str, group: str) -> DataFrame:
    given = {
        "stream": stream,
        "view": "pending",
        "group": group,
        "pageSize": str(_PENDING_PAGE),
        "missingStream": "empty",
        **work.run.watch.place.options,
    }
    frame = work.session.read.format("redis_streams").schema(PENDING).options(**given).load()
    return frame.where(F.col("ms").isNotNull() & F.col("seq").isNotNull())


def _with_bodies(
    work: WindowWork, frame: DataFrame, stream: str, look: StreamSnapshot
) -> DataFrame:
    """Below the first entry there is none; within, only XDEL can have left a hole."""
    first = look.first or look.last_generated
    is_below = _before("ms", "seq", first) if look.first else F.lit(True)
    options = work.run.watch.options(work.run.watch.place, stream=stream)
    check = _BodyCheck(stream, options, at_once=min(_CHECKED_AT_ONCE, work.plan.page_size))
    if is_on_driver():
        has_entry = F.arrow_udf(check.of_arrays, "BOOLEAN")  # type: ignore[attr-defined]
    else:
        has_entry = F.udf(check, "BOOLEAN", useArrow=False)
    is_suspect = ~_after("ms", "seq", look.max_deleted)
    has_body = F.when(is_below, F.lit(False)).when(is_suspect, has_entry("ms", "seq"))
    return frame.withColumn("has_body", has_body.otherwise(F.lit(True)))


class _BodyCheck:
    """Whether an entry is there: asked of Redis by the task, a call of microseconds for each."""

    def __init__(self, stream: str, options: ReadOptions, *, at_once: int) -> None:
        self._stream = stream
        self._options = options
        self._at_once = at_once  # entries: each is answered whole
        self._connections: ServerConnections | None = None

    def __call__(self, ms: int, seq: int) -> bool:
        return self._of([f"{ms}-{seq}"])[0]

    def of_arrays(self, ms: pa.Array, seq: pa.Array) -> pa.Array:
        """The same of many entries, as many in one round trip as Redis answers in a moment."""
        ids = [f"{one}-{two}" for one, two in zip(ms.to_pylist(), seq.to_pylist(), strict=True)]
        starts = range(0, len(ids), self._at_once)
        parts = [self._of(ids[start : start + self._at_once]) for start in starts]
        return pa.array([one for part in parts for one in part], pa.bool_())

    def _of(self, ids: Sequence[str]) -> list[bool]:
        connections = self._connections = self._connections or ServerConnections(
            self._options.server
        )
        commands = [("XRANGE", self._stream, one, one) for one in ids]

        def ask() -> list[bool]:
            link = connections.link_for(self._stream)
            for command in commands:
                link.send(*command)
            return [bool(link.receive(*command)) for command in commands]

        try:
            return connections.persist(ask)
        except RedisStreamsError:
            connections.forget()  # replies that nobody has fetched are those of no other question
            raise

    def __getstate__(self) -> tuple[str, ReadOptions, int]:
        return self._stream, self._options, self._at_once

    def __setstate__(self, state: tuple[str, ReadOptions, int]) -> None:
        self._stream, self._options, self._at_once = state
        self._connections = None


def _look_at_retries(work: WindowWork, group: str, directory: str) -> Content | None:
    """The group's own retry stream, looked at in the same order; None when there is none."""
    if group not in work.plan.retries:
        return None
    watch: RedisReader = work.run.watch
    stream = derive_keys(work.plan.stream, group).retry
    before, look = watch.groups(stream).get(group), watch.stream(stream)
    rows = 0
    if before is not None:
        path = f"{directory}/group={slug(group)}/retry_pending"
        rows = _write_pending(work, stream, group, look, path)
    _write_copies(work, group, stream, directory)
    after = watch.groups(stream).get(group)
    return {
        "before": _render(before),
        "after": _render(after),
        "pending": rows,
        "first": str(look.first or ""),
    }


def _write_copies(work: WindowWork, group: str, stream: str, directory: str) -> None:
    """IDs of the copies that are still in the retry stream: few, since acknowledged ones go."""
    options = {"pageSize": str(work.plan.page_size)}
    ends = EntryId.MIN, work.plan.retries[group][1]
    frame = read_slice(work.run, stream, ends, "ms BIGINT, seq BIGINT", options)
    write_part(work, frame, f"{directory}/group={slug(group)}/retry_present")


def _before(ms: str, seq: str, entry_id: EntryId) -> Any:
    at_ms, at_seq = bounded(entry_id)
    return (F.col(ms) < at_ms) | ((F.col(ms) == at_ms) & (F.col(seq) < at_seq))


def _after(ms: str, seq: str, entry_id: EntryId) -> Any:
    at_ms, at_seq = bounded(entry_id)
    return (F.col(ms) > at_ms) | ((F.col(ms) == at_ms) & (F.col(seq) > at_seq))


def _render(look: GroupSnapshot | None) -> Content | None:
    if look is None:
        return None
    return {
        "position": str(look.position),
        "pending": look.pending,
        "entries_read": look.entries_read,
        "consumers": look.consumers,
        "given_ms": look.given_ms,
    }


def parse_snapshot(found: Mapping[str, Any] | None) -> GroupSnapshot | None:
    """A group as a snapshot's marker reports it."""
    if found is None:
        return None
    return GroupSnapshot(
        position=parse_entry_id(found["position"]),
        pending=found["pending"],
        entries_read=found["entries_read"],
        consumers=found["consumers"],
        given_ms=found.get("given_ms"),
    )


def parse_stream_snapshot(found: Mapping[str, Any]) -> StreamSnapshot:
    """A stream as a snapshot's marker reports it."""
    return StreamSnapshot(
        length=found["length"],
        added=found["added"],
        last_generated=parse_entry_id(found["last_generated"]),
        max_deleted=parse_entry_id(found["max_deleted"]),
        first=parse_entry_id(found["first"]) if found["first"] else None,
        exists=found["exists"],
    )


def _render_stream(look: StreamSnapshot) -> Content:
    return {
        "length": look.length,
        "added": look.added,
        "last_generated": str(look.last_generated),
        "max_deleted": str(look.max_deleted),
        "first": str(look.first) if look.first else None,
        "exists": look.exists,
    }
