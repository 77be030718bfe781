"""Entries that the group had passed before the archive, and of which nothing else is known.

Of a large window they are nearly all: each gets a row in the table of statuses, and all have the
same status. With Spark such a row costs some microseconds, most of them to write it; on local files
this process writes them from the files of entries, a tenth of that a row. One file of entries
becomes one file of statuses, so that rows keep the order of IDs, and a repeat makes the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow.parquet as pq

from pelops.domain.audit import EntryStatus
from pelops.pipeline.archive.footers import list_files
from pelops.pipeline.archive.local_files import plain_path
from pelops.pipeline.engine.arrow.parquet_output import FileOfFrames
from pelops.pipeline.engine.functions import DataFrame, is_on_driver, on_driver
from pelops.pipeline.engine.functions import functions as F  # noqa: N812
from pelops.pipeline.engine.id_columns import IDS, at_or_before
from pelops.pipeline.reconcile.copies import PART as COPIES
from pelops.pipeline.reconcile.entries import Case, join_known, owed_entries, with_roots
from pelops.pipeline.reconcile.file_scan import explained, read_ids, scan_entries
from pelops.policy.audit.classification import Why

# Of the archived entries; what else there is, such as payloads, is not read.
_COLUMNS: Final = (*IDS, "root_ms", "root_seq", "retry_count")
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

    scan_entries(case.work, _COLUMNS, write)
