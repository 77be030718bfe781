"""Evidence of append-only files about a round's entries, as rows of the table `events`.

`proof` and `act` are input of `policy.audit.classification`, where the ledger has priority: `act`
serves for ledger events that were trimmed. The driver reads the files, so they must be on its
machine. They must be read after the snapshot, so that they contain everything up to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.records import Known
from pelops.pipeline.archive.tables import EVENTS, SCHEMAS, Archive
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.audit.cases import FileCreation, previous_record
from pelops.pipeline.audit.known_entries import is_at_or_before
from pelops.pipeline.evidence.entry_histories import ENDING_ACTS, Fate, Removal, name_of
from pelops.pipeline.evidence.file_evidence import EvidenceLocation, FileEvidence, read_evidence
from pelops.pipeline.settings import PipelineSettings

SOURCE: Final = "file"  # of the rows
BEFORE_GROUP: Final = name_of(Fate.BEFORE_GROUP)
STREAM_DELETED: Final = name_of(Removal.STREAM_DELETED)
_ENDINGS: Final = pa.array([kind.value for kind in ENDING_ACTS.values()])


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFindings:
    """The evidence of the files about the groups of a round."""

    rows: int
    created: Mapping[tuple[str, str], FileCreation]  # by stream and group


def archive_evidence(
    archive: Archive, settings: PipelineSettings, plans: Sequence[Plan], known: Mapping[str, Known]
) -> FileFindings:
    """Append the evidence about the windows' entries, and about earlier ones that are open.

    Raises EvidenceUnusable and ArchiveUnusable.
    """
    groups = [derive_keys(plan.stream, target.group) for plan in plans for target in plan.targets]
    after = min((_begin(plan, known[plan.stream]) for plan in plans), default=EntryId.MIN)
    assert settings.aof_path is not None
    source = EvidenceLocation(
        directory=Path(settings.aof_path), database=settings.place.endpoint.db, after=after
    )
    evidence = read_evidence(source, groups)
    reading = _FileReading(evidence=evidence, created={})
    rows = archive.append_batches(EVENTS, reading.rows(plans))
    return FileFindings(rows=rows, created=reading.created)


def _begin(plan: Plan, known: Known) -> EntryId:
    if plan.is_first:
        return EntryId.MIN  # also entries that were removed before it
    records = [previous_record(plan, known, target.group) for target in plan.targets]
    lowest = [one.lowest_open.before() for one in records if one is not None and one.lowest_open]
    return min([plan.window.from_id, *lowest])


@dataclass(frozen=True, slots=True)
class _FileReading:
    evidence: FileEvidence
    created: dict[tuple[str, str], FileCreation]

    def rows(self, plans: Sequence[Plan]) -> Iterator[pa.RecordBatch]:
        for plan in plans:
            for target in plan.targets:
                yield from self._of_group(plan, target.group)

    def _of_group(self, plan: Plan, group: str) -> Iterator[pa.RecordBatch]:
        gone = 0
        for batch in self.evidence.batches(plan.stream, group):
            table = pa.Table.from_batches([batch]).filter(is_at_or_before(plan.window.to_id))
            if plan.is_first:
                gone += _count_gone(table, plan.window.from_id)
            yield from _shape(table, plan, group).to_batches()
        position = self.evidence.created_at(plan.stream, group)
        self.created[plan.stream, group] = FileCreation(position=position, gone_before=gone)


def _count_gone(table: pa.Table, before: EntryId) -> int:
    """Number of entries from before the group that were removed before the window began."""
    chosen = table.filter(is_at_or_before(before) & pc.field("covered"))
    is_ours = pc.equal(chosen["fate"].cast(pa.string()), BEFORE_GROUP)
    was_removed = pc.not_equal(chosen["removal"].cast(pa.string()), STREAM_DELETED)
    return int(pc.sum(pc.and_(is_ours, pc.fill_null(was_removed, False))).as_py() or 0)


def _shape(table: pa.Table, plan: Plan, group: str) -> pa.Table:
    size = table.num_rows
    act = table["act"].cast(pa.string())
    is_ending = pc.fill_null(pc.is_in(act, _ENDINGS), False)
    columns: dict[str, Any] = {
        "date": pa.repeat(pa.scalar(plan.day, pa.date32()), size),
        "stream": pa.repeat(plan.stream, size),
        "window": pa.repeat(pa.scalar(plan.number, pa.int32()), size),
        "group": pa.repeat(group, size),
        "source": pa.repeat(SOURCE, size),
        "kind": table["fate"],
        "act": pc.if_else(is_ending, act, None),
        "in_stream": pa.repeat(plan.stream, size),
        "event_ms": table["at_ms"],
    }
    same = (
        "ms",
        "seq",
        "removal",
        "covered",
        "proof",
        "consumer",
        "deliveries",
        "first_delivered_ms",
    )
    columns |= {name: table[name] for name in same}
    schema = SCHEMAS[EVENTS]
    return pa.table(
        [
            columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(size, field.type)
            for field in schema
        ],
        schema=schema,
    )
