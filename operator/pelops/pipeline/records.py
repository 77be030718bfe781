"""What the archive knows of streams and groups: plans, looks and findings of their newest windows.

All of it are rows of the table `windows`. Of a window there are, by `phase`: its plan; that its
entries are archived; and, once it was audited, a row of the stream and a row of each group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pydantic import TypeAdapter

from pelops.domain.audit import AuditSummary, parse_summary, render_summary_text
from pelops.domain.entry_id import EntryId
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.tables import WINDOWS, Archive, make_rows
from pelops.pipeline.windows import (
    Plan,
    StreamRecord,
    parse_plan,
    parse_record,
    render_plan,
    render_record,
)


class Phase(StrEnum):
    """How far a window has come."""

    PLANNED = "planned"
    ARCHIVED = "archived"
    AUDITED = "audited"
    PUBLISHED = "published"  # its findings are recorded in Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """What an audit keeps of a group for the next one."""

    audited_after: EntryId  # the first window that was audited for the group begins here
    audited_from: int  # that window
    open: int  # entries of the stream that can still change
    left: int  # rows that the next audit looks at again: also copies, and entries that they follow
    followed: int  # of them: entries whose copies are not done
    lowest_open: EntryId | None
    lowest_undelivered: EntryId | None
    left_out: int  # archived entries from before the group
    gone_before: int  # entries that were gone before the group began


_GROUPS: Final = TypeAdapter(GroupRecord)
_LAST_RUNS: Final = 20  # among which runs are looked for that did not end
_COLUMNS: Final = ("stream", "window", "run", "phase", "group", "date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the archive knows of one stream."""

    unfinished: tuple[Plan, ...] = ()  # planned windows that were not audited, in order
    archived: Mapping[int, int] = field(default_factory=dict)  # of these: the run that archived
    last: Plan | None = None  # of the newest window
    record: StreamRecord | None = None  # of the newest window that was audited
    groups: Mapping[str, GroupRecord] = field(default_factory=dict)  # of the same window
    run: int = 0  # which audited it

    @property
    def next_number(self) -> int:
        """The number of the next window."""
        return 0 if self.last is None else self.last.number + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The rows of `windows`, without their texts."""

    archive: Archive
    run: int  # the newest that was claimed
    rows: pa.Table

    @classmethod
    def read(cls, archive: Archive) -> Journal:
        """The journal as it is now."""
        run = archive.newest_run()
        return cls(archive=archive, run=run, rows=archive.read(WINDOWS, columns=_COLUMNS))

    @property
    def streams(self) -> list[str]:
        """The streams of the archive."""
        return sorted(pc.unique(self.rows["stream"]).to_pylist())

    def dead_runs(self) -> dict[int, bool]:
        """Of the last runs, those that did not end; of each whether it has archived its entries."""
        planned, archived, audited = (
            {row["run"] for row in self._of(phase)}
            for phase in (Phase.PLANNED, Phase.ARCHIVED, Phase.AUDITED)
        )
        last = {run for run in planned - audited if run > self.run - _LAST_RUNS}
        return {run: run in archived for run in sorted(last)}

    def numbers(self, stream: str, phase: Phase, group: str | None = None) -> list[int]:
        """The windows of a stream, or of one of its groups, that have come so far; in order."""
        return sorted(
            {
                row["window"]
                for row in self._of(phase)
                if row["stream"] == stream and group in (None, row["group"])
            }
        )

    def groups(self, stream: str) -> list[str]:
        """The groups of a stream that were ever audited."""
        found = {row["group"] for row in self._of(Phase.AUDITED) if row["stream"] == stream}
        return sorted(found - {None})

    def know(self, streams: Collection[str]) -> dict[str, Known]:
        """What the archive knows of these streams. Raises ArchiveUnusable."""
        newest: dict[tuple[str, Phase], dict[int, int]] = {}
        for row in self.rows.to_pylist():
            if row["stream"] in streams:
                of_phase = newest.setdefault((row["stream"], Phase(row["phase"])), {})
                of_phase[row["window"]] = max(row["run"], of_phase.get(row["window"], 0))
        wanted: dict[str, tuple[set[int], dict[int, int], int | None]] = {}
        for stream in streams:
            planned = newest.get((stream, Phase.PLANNED), {})
            audited = newest.get((stream, Phase.AUDITED), {})
            left = {number for number in planned if number not in audited}
            archived = newest.get((stream, Phase.ARCHIVED), {})
            last = max(audited, default=None)
            wanted[stream] = (
                left,
                {number: run for number, run in archived.items() if number in left},
                last,
            )
        texts = self._texts(wanted, newest)
        return {stream: _know(texts.get(stream, []), *wanted[stream]) for stream in streams}

    def _texts(
        self,
        wanted: Mapping[str, tuple[set[int], dict[int, int], int | None]],
        newest: Mapping[tuple[str, Phase], dict[int, int]],
    ) -> dict[str, list[dict[str, Any]]]:
        """The rows with their texts: of unfinished windows, and of the newest that was audited."""
        runs = set()
        for stream, (left, _, last) in wanted.items():
            runs |= {newest[stream, Phase.PLANNED][number] for number in left}
            if last is not None:
                runs.add(newest[stream, Phase.AUDITED][last])
        if not runs:
            return {}
        columns = ("stream", "window", "run", "phase", "group", "state")
        condition = ds.field("run").isin(sorted(runs)) & ds.field("stream").isin(list(wanted))
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self.archive.read(WINDOWS, condition, columns=columns).to_pylist():
            found.setdefault(row["stream"], []).append(row)
        return found

    def summaries(self, stream: str, group: str, most: int) -> list[AuditSummary]:
        """Of the newest windows of a group, in order."""
        numbers = self.numbers(stream, Phase.AUDITED, group)[-most:]
        return read_summaries(self.archive, stream, group, numbers)

    def _of(self, phase: Phase) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.rows.filter(
            pc.equal(self.rows["phase"], phase.value)
        ).to_pylist()
        return rows


def read_summaries(
    archive: Archive, stream: str, group: str, numbers: Sequence[int]
) -> list[AuditSummary]:
    """The summaries of a group in these windows, in order."""
    if not numbers:
        return []
    rows = archive.read(
        WINDOWS,
        (ds.field("stream") == stream) & (ds.field("group") == group),
        ds.field("window").isin(list(numbers)) & (ds.field("phase") == Phase.AUDITED.value),
        columns=("window", "summary"),
    ).sort_by("window")
    return [parse_summary(text) for text in rows["summary"].to_pylist()]


def read_records(archive: Archive, stream: str, numbers: Sequence[int]) -> list[StreamRecord]:
    """The records of these windows of a stream, in order."""
    if not numbers:
        return []
    rows = archive.read(
        WINDOWS,
        (ds.field("stream") == stream) & (ds.field("phase") == Phase.AUDITED.value),
        ds.field("window").isin(list(numbers)) & ds.field("group").is_null(),
        columns=("window", "state"),
    ).sort_by("window")
    return [parse_record(text) for text in rows["state"].to_pylist()]


def _know(
    rows: Iterable[Mapping[str, Any]],
    left: Collection[int],
    archived: Mapping[int, int],
    last: int | None,
) -> Known:
    plans: dict[int, Plan] = {}
    record, groups, run = None, {}, 0
    for row in rows:
        try:
            if row["phase"] == Phase.PLANNED and row["window"] in left:
                plans[row["window"]] = parse_plan(row["state"])
            if row["phase"] == Phase.AUDITED and row["window"] == last:
                run = row["run"]
                if row["group"] is None:
                    record = parse_record(row["state"])
                else:
                    groups[row["group"]] = _GROUPS.validate_json(row["state"])
        except ValueError as error:
            raise ArchiveUnusable(
                f"the archive's record of window {row['window']} of {row['stream']} cannot be read:"
                f" {str(error).splitlines()[0]}. Restore the table windows from a backup"
            ) from error
    unfinished = tuple(plans[number] for number in sorted(plans))
    newest = unfinished[-1] if unfinished else (None if record is None else record.plan)
    return Known(
        unfinished=unfinished,
        archived=dict(archived),
        last=newest,
        record=record,
        groups=groups,
        run=run,
    )


# What is written.


def plan_rows(plans: Iterable[Plan]) -> pa.Table:
    """A row for each window that is planned."""
    return make_rows(
        WINDOWS, [_row(plan, Phase.PLANNED, state=render_plan(plan)) for plan in plans]
    )


def archived_rows(plans: Iterable[Plan]) -> pa.Table:
    """A row for each window whose entries are archived."""
    return make_rows(WINDOWS, [_row(plan, Phase.ARCHIVED) for plan in plans])


def published_rows(plans: Iterable[Plan]) -> pa.Table:
    """A row for each window whose findings are recorded in Redis."""
    return make_rows(WINDOWS, [_row(plan, Phase.PUBLISHED) for plan in plans])


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedGroup:
    """What an audit has found of a group."""

    summary: AuditSummary
    record: GroupRecord
    report: str  # as JSON: see `report.model.GroupReport`


def audited_rows(record: StreamRecord, groups: Iterable[AuditedGroup]) -> pa.Table:
    """The row of a stream that was audited, and a row for each of its groups."""
    return make_rows(WINDOWS, list(_audited(record, groups)))


def _audited(record: StreamRecord, groups: Iterable[AuditedGroup]) -> Iterator[dict[str, Any]]:
    yield _row(record.plan, Phase.AUDITED, state=render_record(record))
    for one in groups:
        summary = one.summary
        yield _row(record.plan, Phase.AUDITED) | {
            "group": summary.group,
            "from_id": str(summary.window.from_id),
            "produced": summary.produced,
            "archived": summary.archived,
            "open": summary.open,
            "verdict": summary.verdict.value,
            "certainty": summary.certainty.value,
            "sentence": summary.sentence,
            "summary": render_summary_text(summary),
            "state": _GROUPS.dump_json(one.record).decode(),
            "report": one.report,
        }


def _row(plan: Plan, phase: Phase, **more: Any) -> dict[str, Any]:
    return {
        "date": plan.day,
        "stream": plan.stream,
        "window": plan.number,
        "phase": phase.value,
        "from_id": str(plan.window.from_id),
        "to_id": str(plan.window.to_id),
        "closed_at": plan.window.at,
        "produced": plan.produced,
        **more,
    }
