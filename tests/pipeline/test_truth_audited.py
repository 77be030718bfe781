"""An audit of a group that went through everything says of every entry what it in truth became."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from local_cluster.redis_servers import start_standalone
from pelops.domain.audit import AuditSummary, EntryStatus
from pelops.domain.audit import Evidence as Kind
from pelops.pipeline.layout import WindowPlace
from pelops.pipeline.place import read_place
from pelops.pipeline.run import open_run, run_audit
from pelops.pipeline.settings import Settings, Target
from tests.pipeline.evidence_door import FILES
from tests.pipeline.mishaps import GROUP, STREAM, STUCK_MS, live, open_life
from tests.pipeline.truth import Truth

ENTRIES: Final = 6_000
DONE: Final = {EntryStatus.ACKNOWLEDGED_PROVEN, EntryStatus.ACKNOWLEDGED_INFERRED}
Told = dict[bytes, EntryStatus]


@pytest.mark.timeout(900)
async def test_an_audit_is_true_with_files_and_honest_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    with start_standalone("8.6", options=FILES) as servers:
        async with open_life(servers, seed=11, size=400) as life:
            settings = Settings(
                place=read_place({}, f"redis://127.0.0.1:{life.port}/0"),
                archive=str(tmp_path / "with-files"),
                targets=(Target(stream=STREAM, group=GROUP, stuck_after_ms=STUCK_MS),),
                aof_path=str(servers.server.directory / "appendonlydir"),
            )
            without = replace(settings, aof_path=None, archive=str(tmp_path / "without"))
            # The stream is empty: a window begins here, and no entry is trimmed before it.
            _audit(spark, settings)
            shutil.copytree(settings.archive, without.archive)
            await live(life, ENTRIES)
            _check_with_files(spark, settings, life.driver.main)
            _check_without_files(spark, without, life.driver.main)


def _check_with_files(spark: SparkSession, settings: Settings, truth: Truth) -> None:
    summary, told = _audit(spark, settings)
    assert summary.evidence is Kind.AOF
    true = dict(zip(truth.ids, truth.statuses(), strict=True))
    assert told == {one: status for one, status in true.items() if status not in DONE}
    assert Counter(summary.counts) == Counter(truth.counts())


def _check_without_files(spark: SparkSession, settings: Settings, truth: Truth) -> None:
    summary, told = _audit(spark, settings)
    true = dict(zip(truth.ids, truth.statuses(), strict=True))
    assert summary.counts[EntryStatus.ACKNOWLEDGED_PROVEN] == 0
    wrong = {one: (status, true[one]) for one, status in told.items() if status is not true[one]}
    assert {status for status, _ in wrong.values()} <= {EntryStatus.INDETERMINATE}
    for status in set(EntryStatus) - DONE - {EntryStatus.INDETERMINATE}:
        assert summary.counts[status] <= truth.counts()[status], status


def _audit(spark: SparkSession, settings: Settings) -> tuple[AuditSummary, Told]:
    """The summary of the next window, and the status of every entry that is not acknowledged."""
    run = open_run(spark, settings)
    try:
        [summary] = run_audit(run)
    finally:
        run.watch.close()
    place = WindowPlace(root=settings.archive, stream=STREAM, number=summary.window.number)
    told: Told = {}
    for part in ("exceptions", "unarchived"):
        path = place.of_group(GROUP, part)
        if run.storage.exists(path):
            told |= dict(_statuses(spark.read.parquet(path).collect()))
    return summary, told


def _statuses(rows: list[Any]) -> list[tuple[bytes, EntryStatus]]:
    return [(b"%d-%d" % (row["ms"], row["seq"]), EntryStatus(row["status"])) for row in rows]
