"""Removal of rows that exceed the retention of the archive, and compaction of small files."""

from __future__ import annotations

import logging
from typing import Final

import pyarrow.compute as pc

from pelops.pipeline.archive.records import Journal
from pelops.pipeline.archive.tables import ENTRIES, EVENTS, STATUSES, WINDOWS
from pelops.pipeline.context import PipelineRun

log: Final = logging.getLogger(__name__)
_KEPT: Final = 2  # newest windows of each stream, always kept: the next audit continues from them


def remove_old_rows(run: PipelineRun, journal: Journal) -> None:
    """Remove rows that exceed the retention, and compact small files. Safe to repeat.

    Whole days are removed. Entries that their windows left open have rows in later windows. Raises
    ArchiveUnusable.
    """
    dates = journal.rows["date"]
    newest = pc.max(dates).as_py()
    if newest is None:
        return
    retention = run.settings.retention
    if retention is not None and retention.days < (newest - pc.min(dates).as_py()).days:
        before = newest - retention
        kept = sorted(_runs_to_keep(journal))
        spare = f" AND run NOT IN ({', '.join(map(str, kept))})" if kept else ""
        for table in (ENTRIES, EVENTS, STATUSES, WINDOWS):
            removed = run.archive.remove(table, f"date < '{before.isoformat()}'{spare}")
            if removed:
                log.info("removed %d rows of %s from before %s", removed, table, before)
    run.archive.maintain(newest)


def _runs_to_keep(journal: Journal) -> set[int]:
    """The runs of the newest windows of each stream."""
    runs: dict[str, dict[int, set[int]]] = {}
    for row in journal.rows.to_pylist():
        runs.setdefault(row["stream"], {}).setdefault(row["window"], set()).add(row["run"])
    return {
        run
        for windows in runs.values()
        for number in sorted(windows)[-_KEPT:]
        for run in windows[number]
    }
