"""The tables of an archive: each reads by its own path, and `statuses` holds every entry."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from pelops.domain.audit import AuditSummary
from pelops.pipeline import status_table
from pelops.pipeline.archive.layout import table_names
from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.engine.sql import on_driver
from pelops.pipeline.errors import ArchiveUnusable, StageFailed
from pelops.pipeline.reconcile.statuses import BASES, COLUMNS, current_statuses, render_schema
from pelops.pipeline.settings import AuditTarget, StatusTable, TableFormat
from pelops.pipeline.stages import PipelineRun
from pelops.policy.audit.classification import Why
from tests.pipeline.audited import GROUP, Audited

ODD = "2024-01-01 = é/%"
DAY_MS = 24 * 3600 * 1000


def fill(audited: Audited) -> list[str]:
    """Fifty entries for two groups: of one, ten each end as in `EXPECTED`."""
    audited.create_group()
    audited.client.xgroup_create(audited.stream, ODD, id="0")
    ids = audited.add(50)
    audited.deliver(40)
    audited.acknowledge(*ids[:30])
    audited.let_idle(ids[30], 120_000)
    audited.record("requeued", ids[0], f"5-0 {ids[0]} 1 1 40")
    audited.record("dead-lettered", "reason", "Poison", ids[1], f"6-0 {ids[1]} 1 1 40")
    return ids


def both(audited: Audited) -> tuple[AuditTarget, ...]:
    return tuple(audited.target(group) for group in (GROUP, ODD))


def statuses(audited: Audited) -> list[dict[str, object]]:
    frame = audited.session.read.parquet(str(audited.archive / "statuses"))
    return [row.asDict() for row in current_statuses(frame).orderBy("group", "ms", "seq").collect()]


def of(rows: list[dict[str, object]], group: str) -> dict[str, int]:
    return dict(Counter(str(row["status"]) for row in rows if row["group"] == group))


def reported(audited: Audited, summary: AuditSummary) -> dict[str, int]:
    return audited.counts(summary)


def test_each_table_reads_by_its_own_path_and_no_partition_hides_a_column(
    audited: Audited,
) -> None:
    fill(audited)
    audited.audit(targets=both(audited))
    audited.add(5)
    audited.audit(targets=both(audited))
    names = table_names(Storage(audited.session), str(audited.archive))
    assert {"entries", "acts", "snapshot_pending", "exceptions", "open", "statuses"} <= set(names)
    for name in names:
        base = audited.archive / name
        files = sorted(base.rglob("*.parquet"))
        rows = 0
        for file in files:
            found = pq.ParquetFile(file)
            rows += found.metadata.num_rows
            partitions = {part.partition("=")[0] for part in file.parts if "=" in part}
            assert not partitions & set(found.schema_arrow.names), file
            assert "as_of" in found.schema_arrow.names
        frame = audited.session.read.parquet(str(base))
        assert frame.count() == rows, name
        assert len(set(frame.columns)) == len(frame.columns)
    entries = audited.session.read.parquet(str(audited.archive / "entries"))
    assert {row["as_of"]: row["count"] for row in entries.groupBy("as_of").count().collect()} == {
        0: 50,
        1: 5,
    }
    assert entries.select("stream").distinct().count() == 1


def test_statuses_hold_every_entry_of_every_group_with_what_it_rests_on(audited: Audited) -> None:
    ids = fill(audited)
    first = audited.audit(targets=both(audited))
    frame = audited.session.read.parquet(str(audited.archive / "statuses"))
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema][:-1] == [
        (name, kind) for name, (kind, _) in COLUMNS.items()
    ]
    rows = statuses(audited)
    assert {group: of(rows, group) for group in (GROUP, ODD)} == {
        one.group: reported(audited, one) for one in first
    }
    by_id = {row["id"]: row for row in rows if row["group"] == GROUP}
    assert by_id[ids[0]]["evidence"] == by_id[ids[1]]["evidence"] == "ledger"
    assert (by_id[ids[0]]["new_id"], by_id[ids[1]]["reason"]) == ("5-0", "Poison")
    assert by_id[ids[5]]["evidence"] == "inferred"
    stuck = by_id[ids[30]]
    assert (stuck["status"], stuck["evidence"], stuck["consumer"]) == ("stuck", "snapshot", "a")
    assert by_id[ids[45]]["status"] == "undelivered"

    # What was open comes to an end in a later window: of each entry the last row counts.
    audited.acknowledge(*ids[30:40])
    audited.deliver(10, "b")
    audited.add(5)
    second = audited.audit(targets=both(audited))
    rows = statuses(audited)
    assert len(rows) == 2 * 55
    by_id = {row["id"]: row for row in rows if row["group"] == GROUP}
    assert {str(by_id[one]["status"]) for one in ids[30:40]} == {"acknowledged_inferred"}
    assert (by_id[ids[45]]["status"], by_id[ids[45]]["consumer"]) == ("in_flight", "b")
    assert (by_id[ids[45]]["window"], by_id[ids[45]]["as_of"]) == (0, 1)
    assert sum(one.produced for one in second) == 2 * 5
    schema = json.loads((audited.archive / "statuses" / "_schema.json").read_text())
    assert schema == render_schema()


def test_every_reason_of_a_status_has_its_evidence() -> None:
    assert set(BASES) == set(Why)


def test_an_archive_of_the_first_layout_is_refused_and_says_what_to_do(audited: Audited) -> None:
    audited.create_group()
    audited.add(1)
    window = audited.archive / "orders" / "window=0"
    window.mkdir(parents=True)
    (window / "plan.json").write_text("{}")
    with pytest.raises(ArchiveUnusable, match=r"version 1 .* Give an empty directory to --archive"):
        audited.audit()
    assert [path.name for path in audited.archive.iterdir()] == ["orders"]


def test_windows_older_than_the_retention_go_from_every_table(audited: Audited) -> None:
    fill(audited)
    for _ in range(4):
        audited.add(3)
        audited.audit()
    for number in (0, 1):
        plan = Path(audited.place(number).part("plan.json"))
        content = json.loads(plan.read_text())
        content["window"]["at_ms"] -= 8 * DAY_MS
        plan.write_text(json.dumps(content))
    audited.add(3)
    audited.audit(retention=timedelta(days=7))
    tables = [path.name for path in audited.archive.iterdir() if path.name not in ("report",)]
    for name in set(tables) - {"_pelops"}:
        parts = {path.parent.name for path in (audited.archive / name).rglob("*.parquet")}
        assert not parts & {"0", "1"}, name
    assert not Path(audited.place(1).path).exists()
    assert Path(audited.place(2).path).exists()
    rows = audited.session.read.parquet(str(audited.archive / "entries"))
    assert {row["as_of"] for row in rows.select("as_of").distinct().collect()} == {2, 3, 4}
    # What the removed windows left open is still followed.
    assert replace(audited.audit_one()).open > 0


def test_windows_go_to_a_table_once_and_those_that_did_not_go_with_the_next_run(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, object, int]] = []
    takes = [False]

    def write(_: PipelineRun, table: StatusTable, rows: DataFrame, key: dict[str, object]) -> None:
        if not takes[0]:
            raise StageFailed(f"no room in {table.name}")
        written.append((str(key["stream"]), key["as_of"], rows.count()))

    monkeypatch.setattr(status_table, "_write", write)
    table = StatusTable(format=TableFormat.DELTA, name="/lake/statuses")
    audited.create_group()
    audited.add(5)
    with on_driver(), pytest.raises(StageFailed, match="no room in /lake/statuses"):
        audited.audit(status_table=table)
    takes[0] = True
    audited.add(3)
    with on_driver():
        audited.audit(status_table=table)
    stream, retry = audited.stream, audited.keys.retry
    assert written == [(stream, 0, 5), (retry, 0, 0), (stream, 1, 8), (retry, 1, 0)]
    with on_driver():
        audited.audit(status_table=table)
    assert len([one for one in written if one[1] in (0, 1)]) == 4
