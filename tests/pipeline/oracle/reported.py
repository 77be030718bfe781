"""The results of an audit from its archive: the only module here that knows their format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.dataset as ds
from pydantic import TypeAdapter

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.records import GroupRecord, WindowPhase, read_summaries
from pelops.pipeline.archive.tables import STATUSES, WINDOWS, Archive, find_archive
from pelops.pipeline.report.model import GroupReport

_DONE = {EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_INFERRED}

Id = bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What is said of an entry that was requeued."""

    root: Id
    window: int
    status: EntryStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReport:
    """What one window says of one group."""

    summary: AuditSummary
    report: GroupReport
    record: GroupRecord
    named: Mapping[Id, EntryStatus]  # entries of the window, by the table of statuses
    again: Mapping[Id, EntryStatus]  # the same of earlier windows
    exceptions: Mapping[Id, EntryStatus]  # entries of the window that are not acknowledged
    settled: Mapping[Id, EntryStatus]  # entries of earlier windows that were open until now
    open: Mapping[Id, EntryStatus]  # of this and earlier windows
    roots: Sequence[Root]
    retried: Mapping[Id, EntryStatus]
    moved: Mapping[Id, EntryStatus]  # entries of earlier windows whose dead letters were moved
    moved_copies: Mapping[Id, EntryStatus]  # the same of copies in the retry stream

    @property
    def limits(self) -> str:
        return " ".join(one.sentence for one in self.report.unproven if one.why == "limit")

    @property
    def root_counts(self) -> dict[EntryStatus, int]:
        return dict(self.report.roots or {})

    @property
    def before_the_group(self) -> int:
        return self.record.left_out

    @property
    def removed_before_the_group(self) -> int:
        return self.record.gone_before


def read_reported(archive: str, stream: str, group: str, number: int) -> WindowReport:
    """All that the archive says of a group in a window."""
    opened = Archive(find_archive(archive, s3_endpoint=None, s3_region=None))
    found = _read_window(opened, stream, group, number)
    retry = derive_keys(stream, group).retry
    condition = (ds.field("group") == group) & (ds.field("as_of") == number)
    rows = opened.read(STATUSES, condition).to_pylist()
    main = [row for row in rows if row["stream"] == stream]
    named = {_id(row): _status(row) for row in main if row["window"] == number}
    again = {_id(row): _status(row) for row in main if row["window"] != number}
    open_rows = {_id(row): _status(row) for row in main if _is_open(row)}
    return WindowReport(
        summary=read_summaries(opened, {(stream, group): [number]})[stream, group][0],
        report=GroupReport.model_validate_json(found["report"]),
        record=TypeAdapter(GroupRecord).validate_json(found["state"]),
        named=named,
        again=again,
        exceptions={one: status for one, status in named.items() if status not in _DONE},
        settled={one: status for one, status in again.items() if one not in open_rows},
        open=open_rows,
        roots=[
            Root(root=_id(row), window=row["window"], status=EntryStatus(row["outcome"]))
            for row in main
            if row["outcome"] is not None
        ],
        retried={_id(row): _status(row) for row in rows if row["stream"] == retry},
        moved={},
        moved_copies={},
    )


def _read_window(archive: Archive, stream: str, group: str, number: int) -> dict[str, Any]:
    condition = (ds.field("stream") == stream) & (ds.field("group") == group)
    condition &= (ds.field("window") == number) & (ds.field("phase") == WindowPhase.AUDITED.value)
    [found] = archive.read(WINDOWS, condition).to_pylist()
    return dict(found)


def _id(row: Mapping[str, Any]) -> Id:
    assert parse_entry_id(row["id"])
    return str(row["id"]).encode()


def _status(row: Mapping[str, Any]) -> EntryStatus:
    return EntryStatus(row["status"])


def _is_open(row: Mapping[str, Any]) -> bool:
    """By its own status: that of its last copy may be open as well."""
    return bool(row["is_open"]) and row["outcome"] is None
