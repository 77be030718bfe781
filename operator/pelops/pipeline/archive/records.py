"""The archive's records of streams and groups: plans, snapshots and findings of the newest windows.

They are rows of the table `windows`. Each window has these rows, by `phase`: its plan; a note that
its entries are archived; and after its audit, one for the stream and one for each group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pydantic import TypeAdapter

from pelops.domain.entry_id import EntryId
from pelops.domain.records.audit import AuditSummary, parse_summary, render_summary_text
from pelops.pipeline.archive.tables import WINDOWS, Archive, make_rows
from pelops.pipeline.archive.windows import (
    Plan,
    StreamRecord,
    parse_plan,
    parse_record,
    render_plan,
    render_record,
)
from pelops.pipeline.errors import ArchiveUnusable


class WindowPhase(StrEnum):
    """The progress of a window."""

    PLANNED = "planned"
    ARCHIVED = "archived"
    AUDITED = "audited"
    PUBLISHED = "published"  # its findings are recorded in Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The state of a group that an audit keeps for the next one."""

    audited_after: EntryId  # start of the first window that was audited for the group
    audited_from: int  # that window
    open: int  # entries of the stream that can still change
    left: int  # rows to audit again: also copies, and entries with open copies
    followed: int  # of `left`: entries whose copies are open
    lowest_open: EntryId | None
    lowest_undelivered: EntryId | None
    left_out: int  # archived entries from before the group
    gone_before: int  # entries removed before the group began


_GROUPS: Final = TypeAdapter(GroupRecord)
_LAST_RUNS: Final = 20  # that are searched for unfinished ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The archive's records of one stream."""

    unfinished: tuple[Plan, ...] = ()  # planned windows that were not audited, in order
    archived: Mapping[int, int] = field(default_factory=dict)  # unfinished ones: their runs
    last: Plan | None = None  # of the newest window
    record: StreamRecord | None = None  # of the newest window that was audited
    groups: Mapping[str, GroupRecord] = field(default_factory=dict)  # of the same window
    run: int = 0  # that audited this window

    @property
    def next_number(self) -> int:
        """The number of the next window."""
        return 0 if self.last is None else self.last.number + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The rows of `windows`, without their texts."""

    archive: Archive
    run: int  # the newest claimed run
    rows: pa.Table
    windows: Mapping[tuple[str, WindowPhase], Mapping[int, int]]  # by phase: windows and their runs
    audited: Mapping[tuple[str, str], Sequence[int]]  # windows by stream and group, in order

    @classmethod
    def read(cls, archive: Archive) -> Journal:
        """Read the current journal."""
        run = archive.newest_run()
        rows = archive.read(WINDOWS, columns=("stream", "window", "run", "phase", "group", "date"))
        windows: dict[tuple[str, WindowPhase], dict[int, int]] = {}
        audited: dict[tuple[str, str], set[int]] = {}
        for row in rows.sort_by("run").to_pylist():
            phase = WindowPhase(row["phase"])
            windows.setdefault((row["stream"], phase), {})[row["window"]] = row["run"]
            if phase is WindowPhase.AUDITED and row["group"] is not None:
                audited.setdefault((row["stream"], row["group"]), set()).add(row["window"])
        return cls(
            archive=archive,
            run=run,
            rows=rows,
            windows=windows,
            audited={key: sorted(numbers) for key, numbers in audited.items()},
        )

    @property
    def streams(self) -> list[str]:
        """The streams of the archive."""
        return sorted({stream for stream, _ in self.windows})

    def dead_runs(self) -> dict[int, bool]:
        """Recent runs that did not finish, each with whether it archived its entries."""
        last = self.rows.filter(pc.greater(self.rows["run"], self.run - _LAST_RUNS)).to_pylist()
        planned, archived, audited = (
            {row["run"] for row in last if row["phase"] == phase}
            for phase in (WindowPhase.PLANNED, WindowPhase.ARCHIVED, WindowPhase.AUDITED)
        )
        return {run: run in archived for run in sorted(planned - audited)}

    def numbers(self, stream: str, phase: WindowPhase) -> list[int]:
        """The windows of a stream that reached a phase, in order."""
        return sorted(self.windows.get((stream, phase), ()))

    def groups(self, stream: str) -> list[str]:
        """The groups of a stream that were ever audited."""
        return sorted(group for name, group in self.audited if name == stream)

    def know(self, streams: Collection[str]) -> dict[str, Known]:
        """Read the records of these streams. Raises ArchiveUnusable."""
        states = self._states(streams)
        return {stream: self._know(stream, states.get(stream, [])) for stream in streams}

    def _states(self, streams: Collection[str]) -> dict[str, list[dict[str, Any]]]:
        """Rows with their states, of unfinished windows and of the newest audited one."""
        runs = set()
        for stream in streams:
            audited = self.windows.get((stream, WindowPhase.AUDITED), {})
            planned = self.windows.get((stream, WindowPhase.PLANNED), {})
            runs |= {run for number, run in planned.items() if number not in audited}
            runs |= {audited[number] for number in sorted(audited)[-1:]}
        if not runs:
            return {}
        columns = ("stream", "window", "run", "phase", "group", "state")
        condition = ds.field("run").isin(sorted(runs)) & ds.field("stream").isin(list(streams))
        rows_by_stream: dict[str, list[dict[str, Any]]] = {}
        for row in self.archive.read(WINDOWS, condition, columns=columns).to_pylist():
            rows_by_stream.setdefault(row["stream"], []).append(row)
        return rows_by_stream

    def _know(self, stream: str, rows: Iterable[Mapping[str, Any]]) -> Known:
        audited = self.windows.get((stream, WindowPhase.AUDITED), {})
        last = max(audited, default=None)
        plans: dict[int, Plan] = {}
        record, groups, run = None, {}, 0
        for row in rows:
            number = row["window"]
            with _explained(number, stream):
                if row["phase"] == WindowPhase.PLANNED and number not in audited:
                    plans[number] = parse_plan(row["state"])
                if row["phase"] == WindowPhase.AUDITED and number == last:
                    run = row["run"]
                    if row["group"] is None:
                        record = parse_record(row["state"])
                    else:
                        groups[row["group"]] = _GROUPS.validate_json(row["state"])
        unfinished = tuple(plans[number] for number in sorted(plans))
        newest = unfinished[-1] if unfinished else (None if record is None else record.plan)
        archived = self.windows.get((stream, WindowPhase.ARCHIVED), {})
        return Known(
            unfinished=unfinished,
            archived={number: run for number, run in archived.items() if number not in audited},
            last=newest,
            record=record,
            groups=groups,
            run=run,
        )


@contextmanager
def _explained(number: int, stream: str) -> Iterator[None]:
    """Raise ArchiveUnusable for a text that cannot be parsed."""
    try:
        yield
    except ValueError as error:
        raise ArchiveUnusable(
            f"the archive's record of window {number} of {stream} cannot be read:"
            f" {str(error).splitlines()[0]}. Restore the table windows from a backup"
        ) from error


def read_summaries(
    archive: Archive, chosen: Mapping[tuple[str, str], Collection[int]]
) -> dict[tuple[str, str], list[AuditSummary]]:
    """The summaries of these windows of groups, in order; by stream and group."""
    texts_by_group = read_texts(
        archive, "summary", {(name, group): chosen[name, group] for name, group in chosen}
    )
    return {
        key: [parse_summary(texts[number]) for number in sorted(texts)]
        for key in chosen
        for texts in [texts_by_group.get(key, {})]
    }


def read_records(
    archive: Archive, chosen: Mapping[str, Collection[int]]
) -> dict[str, list[StreamRecord]]:
    """The records of these windows of streams, in order; by stream."""
    texts_by_stream = read_texts(
        archive, "state", {(name, None): some for name, some in chosen.items()}
    )
    return {
        name: [parse_record(texts[number]) for number in sorted(texts)]
        for name in chosen
        for texts in [texts_by_stream.get((name, None), {})]
    }


def read_texts(
    archive: Archive, column: str, chosen: Mapping[tuple[str, str | None], Collection[int]]
) -> dict[tuple[str, str | None], dict[int, str]]:
    """The texts that audits wrote for groups, and for streams (group None), by window.

    All in one read. Raises ArchiveUnusable.
    """
    numbers = {number for some in chosen.values() for number in some}
    if not numbers:
        return {}
    rows = archive.read(
        WINDOWS,
        ds.field("stream").isin([stream for stream, _ in chosen]),
        ds.field("window").isin(sorted(numbers)) & (ds.field("phase") == WindowPhase.AUDITED.value),
        columns=("stream", "group", "window", "run", column),
    )
    texts: dict[tuple[str, str | None], dict[int, str]] = {}
    for row in rows.sort_by("run").to_pylist():
        key = (row["stream"], row["group"])
        if row["window"] in chosen.get(key, ()):
            texts.setdefault(key, {})[row["window"]] = row[column]
    return texts


# Rows to write.


def plan_rows(plans: Iterable[Plan]) -> pa.Table:
    """A row for each planned window."""
    return make_rows(
        WINDOWS, [_row(plan, WindowPhase.PLANNED, state=render_plan(plan)) for plan in plans]
    )


def archived_rows(plans: Iterable[Plan]) -> pa.Table:
    """A row for each window whose entries are archived."""
    return make_rows(WINDOWS, [_row(plan, WindowPhase.ARCHIVED) for plan in plans])


def published_rows(plans: Iterable[Plan]) -> pa.Table:
    """A row for each window whose findings are recorded in Redis."""
    return make_rows(WINDOWS, [_row(plan, WindowPhase.PUBLISHED) for plan in plans])


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedGroup:
    """The results of an audit of a group."""

    summary: AuditSummary
    record: GroupRecord
    report: str  # as JSON: see `report.model.GroupReport`


def audited_rows(record: StreamRecord, groups: Iterable[AuditedGroup]) -> pa.Table:
    """The row of an audited stream, and a row for each of its groups."""
    return make_rows(WINDOWS, list(_audited(record, groups)))


def _audited(record: StreamRecord, groups: Iterable[AuditedGroup]) -> Iterator[dict[str, Any]]:
    yield _row(record.plan, WindowPhase.AUDITED, state=render_record(record))
    for group in groups:
        summary = group.summary
        yield _row(record.plan, WindowPhase.AUDITED) | {
            "group": summary.group,
            "from_id": str(summary.window.from_id),
            "produced": summary.produced,
            "archived": summary.archived,
            "open": summary.open,
            "verdict": summary.verdict.value,
            "certainty": summary.certainty.value,
            "sentence": summary.sentence,
            "summary": render_summary_text(summary),
            "state": _GROUPS.dump_json(group.record).decode(),
            "report": group.report,
        }


def _row(plan: Plan, phase: WindowPhase, **more: Any) -> dict[str, Any]:
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
