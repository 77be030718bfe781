"""The table `statuses`: every entry, for every group, with its status and the evidence for it.

The audit of a window (`as_of`) writes a row for each entry of that window, and for each entry of an
earlier window that was still open, or whose dead letter was moved since. Of the rows of one entry
and group the one with the highest `as_of` counts: see `current_statuses`.

Nearly all entries of a large window were passed by the group before the archive, and nothing else
is known of them: all have the same status. With Spark such a row costs some microseconds, most of
them to write it; on local files this process writes them from the files of entries, at a tenth of
that. One file of entries becomes one file of statuses, so that rows keep the order of IDs, and a
repeat makes the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import pyarrow.parquet as pq

from pelops.domain.audit import EntryStatus
from pelops.domain.naming import derive_keys
from pelops.domain.site import page_url
from pelops.pipeline.archive.footers import list_files
from pelops.pipeline.archive.layout import STATUSES, statuses_path
from pelops.pipeline.archive.local_files import plain_path
from pelops.pipeline.archive.windows import milliseconds
from pelops.pipeline.engine.arrow.parquet_output import FileOfFrames
from pelops.pipeline.engine.sql import (
    IDS,
    MOST_BROADCAST,
    Column,
    DataFrame,
    at_or_before,
    is_on_driver,
    on_driver,
    unite,
)
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.reconcile.copies import PART as COPIES
from pelops.pipeline.reconcile.dead_letters import MOVED
from pelops.pipeline.reconcile.file_scan import explained, read_ids, scan_entries
from pelops.pipeline.reconcile.retry_copies import PART as RETRIED
from pelops.pipeline.reconcile.window_entries import (
    Case,
    Reconciled,
    is_many,
    join_known,
    owed_entries,
    with_roots,
)
from pelops.pipeline.stages import AS_OF, note_part, with_as_of, write_part, write_sorted
from pelops.policy.audit.classification import Why

SCHEMA_VERSION: Final = 1
_SCHEMA: Final = "_schema.json"
# Columns are only added, at the end; what is there keeps its type and its meaning.
COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "stream": (
        "string",
        "Stream that holds the entry: the audited one, or the group's retry stream",
    ),
    "group": ("string", "Consumer group"),
    "id": ("string", "Entry ID"),
    "ms": ("bigint", "First part of the entry ID"),
    "seq": ("bigint", "Second part of the entry ID"),
    "root": ("string", "ID of the entry that this one is a copy of; null when it is not a copy"),
    "status": ("string", f"Status: see {page_url('audits/pipeline')}"),
    "why": ("string", "Rule that decided the status"),
    "evidence": ("string", "Evidence: append-only-file, ledger, snapshot, inferred or none"),
    "added_at": ("timestamp", "Time of the entry ID; null where the ID holds no time"),
    "delivered_at": ("timestamp", "Last delivery of an entry that is pending"),
    "acted_at": (
        "timestamp",
        "Time at which the operator requeued or dead-lettered the entry, or moved its dead letter",
    ),
    "audited_at": ("timestamp", "End of the window `as_of`"),
    "consumer": ("string", "Consumer that has the entry pending"),
    "deliveries": ("bigint", "Delivery count of a pending entry"),
    "retry_count": ("int", "Failed attempts that a copy carries"),
    "new_id": (
        "string",
        "ID of the copy that a requeued or redriven entry became, or of its dead letter",
    ),
    "reason": ("string", "Reason of the operator's act"),
    "window": ("int", "Window that the entry belongs to"),
    AS_OF: ("int", "Window whose audit wrote the row"),
}
_COST_OF_A_FILE: Final = "spark.sql.files.openCostInBytes"
_BYTES_OF_A_TASK: Final = "spark.sql.files.maxPartitionBytes"
_LAST_MS: Final = 253_370_764_800_000  # the year 9999: later ones are no times
_PENDING: Final = (EntryStatus.IN_FLIGHT, EntryStatus.STUCK, EntryStatus.PAYLOAD_GONE)


class Basis(StrEnum):
    """What a status rests on."""

    FILE = "append-only-file"
    LEDGER = "ledger"
    SNAPSHOT = "snapshot"  # what Redis held when the audit looked
    INFERRED = "inferred"
    NONE = "none"


BASES: Final[Mapping[Why, Basis]] = {
    Why.LEDGER: Basis.LEDGER,
    Why.LOSS_SEEN: Basis.LEDGER,
    Why.PENDING: Basis.SNAPSHOT,
    Why.BODY_GONE: Basis.SNAPSHOT,
    Why.NOT_REACHED: Basis.SNAPSHOT,
    Why.GONE_UNDELIVERED: Basis.SNAPSHOT,
    Why.PROVEN: Basis.FILE,
    Why.DROPPED: Basis.FILE,
    Why.SKIPPED: Basis.FILE,
    Why.NOACK: Basis.FILE,
    Why.DELIVERED: Basis.INFERRED,
    Why.SEEN_PENDING: Basis.INFERRED,
    Why.NO_LOSS_SEEN: Basis.INFERRED,
    Why.POSITION_IN_DOUBT: Basis.NONE,
    Why.PASSED_MEANWHILE: Basis.NONE,
    Why.TRIMMED_MEANWHILE: Basis.NONE,
    Why.CONSUMER_DELETED: Basis.LEDGER,
}


def current_statuses(statuses: DataFrame) -> DataFrame:
    """The row that counts of each entry and group: the one with the highest `as_of`."""
    last = F.max_by(F.struct(*statuses.columns), AS_OF)
    keys = ("stream", "group", *IDS)
    return statuses.groupBy(*keys).agg(last.alias("last")).select("last.*")


def write_statuses(case: Case, found: Reconciled) -> None:
    """Write the rows of this audit; `found` is what it found of the window.

    Entries are in the order of their IDs, in as many files as they are archived in.
    """
    work = case.work
    parts = [*found.statuses, *_earlier(case)]
    by_file = found.leaves_passed and case.reads_files
    if found.leaves_passed and not by_file:
        parts.append(passed_entries(case, work.read("entries"), read_known(case)))
    rows = [_rows(case, part, work.plan.stream) for part in parts]
    retry = derive_keys(work.plan.stream, case.target.group).retry
    retried, moved = f"{case.directory}/{RETRIED}", f"{case.directory}/{MOVED}"
    if work.run.storage.exists(retried):
        rows.append(_rows(case, work.load(retried), retry))
    if work.run.storage.exists(moved):
        is_copy, letters = F.col("in_retry_stream"), work.load(moved)
        rows.append(_rows(case, letters.where(~is_copy), work.plan.stream))
        rows.append(_rows(case, letters.where(is_copy), retry))
    _describe(case)
    path = f"{case.directory}/{STATUSES}"
    if is_many(found.looked_at) and not is_on_driver():
        _write_many(case, unite(rows), path)
    else:
        write_sorted(work, unite(rows), path, "stream", *IDS)
    if by_file:
        write_passed(case, lambda frame: _table_rows(case, frame), path)
        note_part(work, path)


def render_schema() -> dict[str, Any]:
    """The schema of the table as a JSON object."""
    columns = [
        {"name": name, "type": kind, "description": text} for name, (kind, text) in COLUMNS.items()
    ]
    return {"schema_version": SCHEMA_VERSION, "columns": columns}


def _describe(case: Case) -> None:
    """Put the schema beside the rows, where Spark does not take it for one of them."""
    storage = case.work.run.storage
    path = f"{statuses_path(case.work.place.root)}/{_SCHEMA}"
    found = storage.read_json(path)
    if found is None or found.get("schema_version", 0) < SCHEMA_VERSION:
        storage.write_json(path, render_schema())


def _table_rows(case: Case, frame: DataFrame) -> DataFrame:
    return with_as_of(case.work, _rows(case, frame, case.work.plan.stream))


def _write_many(case: Case, frame: DataFrame, path: str) -> None:
    """Write with all tasks; each reads a part of one file, so that the order of IDs stays.

    A join that moves rows between tasks loses the order: then each file is sorted by itself.
    """
    if case.has_files or case.snapshot.pending + case.history.rows > MOST_BROADCAST:
        frame = frame.sortWithinPartitions("stream", *IDS)
    conf = case.work.session.conf
    conf.set(_COST_OF_A_FILE, str(conf.get(_BYTES_OF_A_TASK)))
    try:
        write_part(case.work, frame, path, is_heavy=True)
    finally:
        conf.unset(_COST_OF_A_FILE)


def _earlier(case: Case) -> list[DataFrame]:
    """Entries of earlier windows that this audit looked at again."""
    number, storage = case.work.plan.window.number, case.work.run.storage
    if not number:
        return []
    still = case.work.load(f"{case.directory}/open")
    # The window of an entry that was found pending though none had it open is not known.
    still = still.where(~F.col("window").eqNullSafe(number))
    settled = f"{case.directory}/settled"
    return [still, *([case.work.load(settled)] if storage.exists(settled) else [])]


def _rows(case: Case, judged: DataFrame, stream: str) -> DataFrame:
    """The columns of the table, of rows that have a status; what they lack is null."""
    missing = {
        name: F.lit(None).cast(kind)
        for name, kind in _SOURCES.items()
        if name not in judged.columns
    }
    reported = judged.withColumns(missing)
    is_pending = F.col("status").isin([str(one) for one in _PENDING])
    last_delivery = F.when(is_pending & F.col("delivery_count").isNotNull(), _delivered(case))
    chosen = {
        "stream": F.lit(stream),
        "group": F.lit(case.target.group),
        "id": _id("ms", "seq"),
        "ms": F.col("ms"),
        "seq": F.col("seq"),
        "root": _id("root_ms", "root_seq"),
        "status": F.col("status"),
        "why": F.col("why"),
        "evidence": _basis(),
        "added_at": _time(F.col("ms")),
        "delivered_at": _time(last_delivery),
        "acted_at": _time(F.col("act_at_ms")),
        "audited_at": _time(F.lit(milliseconds(case.work.plan.window.at)).cast("bigint")),
        "consumer": F.col("consumer"),
        "deliveries": F.col("delivery_count"),
        "retry_count": F.col("retry_count"),
        "new_id": _id("new_ms", "new_seq"),
        "reason": F.col("reason"),
        "window": F.col("window"),
    }
    return reported.select(
        *(
            chosen[name].cast(kind).alias(name)
            for name, (kind, _) in COLUMNS.items()
            if name != AS_OF
        )
    )


_SOURCES: Final = {
    "root_ms": "bigint", "root_seq": "bigint", "act_at_ms": "bigint", "consumer": "string",
    "delivery_count": "bigint", "idle_ms": "bigint", "retry_count": "int", "new_ms": "bigint",
    "new_seq": "bigint", "reason": "string",
}  # fmt: skip


def _delivered(case: Case) -> Column:
    return F.lit(case.snapshot.at_ms).cast("bigint") - F.col("idle_ms")


def _id(ms: str, seq: str) -> Column:
    return F.concat(F.col(ms).cast("string"), F.lit("-"), F.col(seq).cast("string"))


def _time(ms: Column) -> Column:
    return F.when((ms > 0) & (ms < _LAST_MS), F.timestamp_millis(ms))


def _basis() -> Column:
    by_basis: dict[Basis, list[str]] = {}
    for why, basis in BASES.items():
        by_basis.setdefault(basis, []).append(str(why))
    chosen = F.when(F.lit(False), F.lit(""))
    for basis, whys in by_basis.items():
        chosen = chosen.when(F.col("why").isin(whys), F.lit(str(basis)))
    return chosen.otherwise(F.lit(str(Basis.NONE)))


# Of the archived entries; what else there is, such as payloads, is not read.
_OF_ENTRIES: Final = (*IDS, "root_ms", "root_seq", "retry_count")
_DIFFERENT: Final = ("id", "ms", "added_at")  # columns of the table: in nearly every row


def passed_entries(
    case: Case, entries: DataFrame, known: DataFrame, copies: DataFrame | None = None
) -> DataFrame:
    """Those of the entries that were passed, and that are not among the known: acknowledged.

    `copies`: those of the window, when they were read already.
    """
    passed = owed_entries(case, entries).where(at_or_before(case.reached_before))
    size = case.snapshot.pending + case.history.rows
    rest = join_known(passed, known.select(*IDS), size, "left_anti").withColumns(
        {
            "status": F.lit(str(EntryStatus.ACKNOWLEDGED_INFERRED)),
            "why": F.lit(str(Why.DELIVERED)),
            "window": F.lit(case.work.plan.window.number),
        }
    )
    return with_roots(case, rest, copies)


def read_known(case: Case) -> DataFrame:
    """The IDs of passed entries of which something is known: all of them are exceptions."""
    path = f"{case.directory}/exceptions"
    if is_on_driver():
        # There may be far more exceptions than these.
        return read_ids(case.work, [path], lambda ids: ids.where(at_or_before(case.reached_before)))
    return case.work.load(path).select(*IDS).where(at_or_before(case.reached_before))


def write_passed(case: Case, shape: Callable[[DataFrame], DataFrame], path: str) -> None:
    """Add files of the passed entries to a part of the table, of a case that `reads_files`.

    `shape` makes rows of the table of passed entries. The part has a file already, whose schema the
    new ones get. Raises ArchiveUnusable.
    """
    with explained("read", path):
        like = pq.read_schema(plain_path(list_files(case.work.run.storage, path)[0]))
    with on_driver():
        known = read_known(case)
        copies = case.work.read(COPIES) if case.copies else None

    def write(number: int, parts: Iterator[DataFrame]) -> None:
        made = plain_path(f"{path}/passed-{number:05d}.parquet")
        with explained("write", str(made)), FileOfFrames(made, like, _DIFFERENT) as file:
            for entries in parts:
                rows: Any = shape(passed_entries(case, entries, known, copies))
                file.write(rows)

    scan_entries(case.work, _OF_ENTRIES, write)
