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
from pelops.domain.entry_id import EntryId
from pelops.pipeline.layout import STATUSES, WindowPlace

Id = bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What is said of an entry that was requeued."""

    root: Id
    window: int
    status: EntryStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one window says of one group."""

    summary: AuditSummary
    content: Mapping[str, Any]  # audit.json
    named: Mapping[Id, EntryStatus]  # every entry of the window that the archive names
    settled: Mapping[Id, EntryStatus]  # entries of earlier windows that were open until now
    open: Mapping[Id, EntryStatus]  # of this and earlier windows
    roots: Sequence[Root]
    retried: Mapping[Id, EntryStatus]
    statuses: Mapping[Id, EntryStatus] | None = None  # the window's rows of the table for everybody

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


def read_told(archive: str, stream: str, group: str, number: int, *, has_files: bool) -> Told:
    """All that the archive says of a group in a window."""
    place = WindowPlace(root=archive, stream=stream, number=number)
    content = json.loads(Path(place.of_group(group, "audit.json")).read_text())
    summary = parse_summary(json.dumps(content["summary"]))
    return Told(
        summary=summary,
        content=content,
        named=_named(place, group, summary, has_files=has_files),
        settled=_statuses(place, group, "settled"),
        open=_statuses(place, group, "open"),
        roots=[
            Root(root=b"%d-%d" % (ms, seq), window=window, status=EntryStatus(status))
            for ms, seq, window, status in _rows(place.of_group(group, "roots"), "window", "status")
        ],
        retried=_statuses(place, group, "retried"),
        statuses=_of_table(archive, stream, group, number),
    )


def _named(
    place: WindowPlace, group: str, summary: AuditSummary, *, has_files: bool
) -> dict[Id, EntryStatus]:
    """Entries that are no exceptions are acknowledged: proven where the files say so."""
    after, last = _pair(summary.window.from_id), _pair(summary.window.to_id)
    told = {
        b"%d-%d" % (ms, seq): EntryStatus.ACKNOWLEDGED_INFERRED
        for ms, seq in _rows(place.part("entries"))
        if after < (ms, seq) <= last
    }
    if has_files:
        told |= {
            b"%d-%d" % (ms, seq): EntryStatus.ACKNOWLEDGED_PROVEN
            for ms, seq, proof in _rows(place.part(f"evidence/group={group}"), "proof")
            if proof == "acknowledged" and after < (ms, seq) <= last
        }
    for part in ("exceptions", "unarchived"):
        told |= _statuses(place, group, part)
    return told


def _of_table(archive: str, stream: str, group: str, number: int) -> dict[Id, EntryStatus]:
    table = dataset(f"{archive}/{STATUSES}", format="parquet", partitioning=None)
    is_ours = (field("stream") == stream) & (field("group") == group) & (field("as_of") == number)
    rows = table.to_table(columns=["id", "status"], filter=is_ours)
    columns = (rows.column(name).to_pylist() for name in ("id", "status"))
    return {one.encode(): EntryStatus(status) for one, status in zip(*columns, strict=True)}


def _statuses(place: WindowPlace, group: str, part: str) -> dict[Id, EntryStatus]:
    rows = _rows(place.of_group(group, part), "status")
    return {b"%d-%d" % (ms, seq): EntryStatus(status) for ms, seq, status in rows}


def _rows(path: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The ID of each row as two numbers, and these columns; nothing without such a part."""
    if not Path(path).exists():
        return
    table = pq.read_table(path, columns=["ms", "seq", *columns], partitioning=None)
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _pair(entry_id: EntryId) -> tuple[int, int]:
    return entry_id.ms, entry_id.seq
