"""What an audit says, read from its archive: the only module here that knows how results lie."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow.dataset import dataset, field

from pelops.domain.audit import AuditSummary, EntryStatus, parse_summary
from pelops.pipeline.archive.layout import STATUSES, WindowPlace

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
    content: Mapping[str, Any]  # audit.json
    named: Mapping[Id, EntryStatus]  # entries of the window, by the table of statuses
    again: Mapping[Id, EntryStatus]  # the same of earlier windows
    exceptions: Mapping[Id, EntryStatus]  # entries of the window that are not acknowledged
    settled: Mapping[Id, EntryStatus]  # entries of earlier windows that were open until now
    open: Mapping[Id, EntryStatus]  # of this and earlier windows
    roots: Sequence[Root]
    retried: Mapping[Id, EntryStatus]
    moved: Mapping[Id, EntryStatus]  # entries of earlier windows whose letters were moved
    moved_copies: Mapping[Id, EntryStatus]  # the same of copies in the retry stream

    @property
    def limits(self) -> str:
        return " ".join(self.content["limits"])

    @property
    def root_counts(self) -> dict[EntryStatus, int]:
        return {EntryStatus(name): count for name, count in self.content["roots"].items()}

    @property
    def before_the_group(self) -> int:
        found: int = self.content["before_the_group"]
        return found

    @property
    def removed_before_the_group(self) -> int:
        found: int = self.content["removed_before_the_group"]
        return found


def read_reported(archive: str, stream: str, group: str, number: int) -> WindowReport:
    """All that the archive says of a group in a window."""
    place = WindowPlace(root=archive, stream=stream, number=number)
    content = json.loads(Path(place.of_group(group, "audit.json")).read_text())
    rows = _of_table(archive, stream, group, number)
    return WindowReport(
        summary=parse_summary(json.dumps(content["summary"])),
        content=content,
        named={one: status for one, window, status in rows if window == number},
        again={one: status for one, window, status in rows if window != number},
        exceptions={
            **_statuses(place, group, "exceptions"),
            **_statuses(place, group, "unarchived"),
        },
        settled=_statuses(place, group, "settled"),
        open=_statuses(place, group, "open"),
        roots=[
            Root(root=b"%d-%d" % (ms, seq), window=window, status=EntryStatus(status))
            for ms, seq, window, status in _rows(place.of_group(group, "roots"), "window", "status")
        ],
        retried=_statuses(place, group, "retried"),
        moved=_moved(place, group, in_retry=False),
        moved_copies=_moved(place, group, in_retry=True),
    )


def _of_table(
    archive: str, stream: str, group: str, number: int
) -> list[tuple[Id, int, EntryStatus]]:
    """What the audit of a window says of each entry, in the table that is for everybody."""
    table = dataset(f"{archive}/{STATUSES}", format="parquet", partitioning=None)
    is_ours = (field("stream") == stream) & (field("group") == group) & (field("as_of") == number)
    rows = table.to_table(columns=["id", "window", "status"], filter=is_ours)
    columns = (rows.column(name).to_pylist() for name in ("id", "window", "status"))
    return [
        (one.encode(), window, EntryStatus(status))
        for one, window, status in zip(*columns, strict=True)
    ]


def _statuses(place: WindowPlace, group: str, part: str) -> dict[Id, EntryStatus]:
    rows = _rows(place.of_group(group, part), "status")
    return {b"%d-%d" % (ms, seq): EntryStatus(status) for ms, seq, status in rows}


def _moved(place: WindowPlace, group: str, *, in_retry: bool) -> dict[Id, EntryStatus]:
    rows = _rows(place.of_group(group, "moved"), "status", "in_retry_stream")
    return {
        b"%d-%d" % (ms, seq): EntryStatus(status)
        for ms, seq, status, is_copy in rows
        if is_copy == in_retry
    }


def _rows(path: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The ID of each row as two numbers, and these columns; nothing without such a part."""
    if not Path(path).exists():
        return
    table = pq.read_table(path, columns=["ms", "seq", *columns], partitioning=None)
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
