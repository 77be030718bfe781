"""The tables of an archive: what each holds of every entry and group, and for how long."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import ENTRIES, LAYOUT, SCHEMAS, STATUSES, WINDOWS, local_frame
from pelops.pipeline.audit.status_rows import BASES
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.settings import AuditTarget
from pelops.policy.audit.classification import Why
from tests.pipeline.audited import GROUP, Audited, Row
from tests.pipeline.hardships import large_windows

ODD = "2024-01-01 = é/%"
ROOT = Path(__file__).parents[2]
OLD = datetime.now(UTC).date() - timedelta(days=8)


def fill(audited: Audited) -> list[str]:
    """Fifty entries for two groups: of one, some end in each way."""
    audited.create_group()
    audited.client.xgroup_create(audited.stream, ODD, id="0")
    ids = audited.add(50)
    audited.deliver(40)
    audited.acknowledge(*ids[:30])
    audited.let_idle(ids[30])
    audited.record("requeued", ids[0], f"5-0 {ids[0]} 1 1 40")
    audited.record("dead-lettered", "reason", "Poison", ids[1], f"6-0 {ids[1]} 1 1 40")
    return ids


def both(audited: Audited) -> tuple[AuditTarget, ...]:
    return tuple(audited.target(group) for group in (GROUP, ODD))


def opened(audited: Audited, table: str) -> DeltaTable:
    return DeltaTable(str(audited.archive / table))


def current(audited: Audited) -> dict[tuple[str, str], Row]:
    """The row of each entry and group that counts: that of the newest audit."""
    rows = opened(audited, STATUSES).to_pyarrow_table().sort_by("as_of").to_pylist()
    return {(row["group"], row["id"]): row for row in rows if row["stream"] == audited.stream}


def counted(rows: dict[tuple[str, str], Row], group: str) -> dict[str, int]:
    return dict(Counter(row["status"] for (one, _), row in rows.items() if one == group))


@pytest.mark.full
def test_any_delta_reader_finds_each_entry_of_a_group_once(
    audited: Audited,
) -> None:
    fill(audited)
    audited.audit(targets=both(audited))
    audited.add(5)
    audited.audit(targets=both(audited))
    for name, schema in SCHEMAS.items():
        table = opened(audited, name)
        found = table.to_pyarrow_table()
        assert found.column_names == schema.names
        assert table.metadata().partition_columns == ["date"]
        by_spark = audited.session.read.format("delta").load(str(audited.archive / name))
        assert by_spark.columns == schema.names
        assert by_spark.count() == found.num_rows
        assert len(set(found["date"].to_pylist())) <= 1
    entries = opened(audited, ENTRIES).to_pyarrow_table().to_pylist()
    assert Counter(row["window"] for row in entries) == {0: 50, 1: 5}
    assert {row["stream"] for row in entries} == {audited.stream}
    rows = opened(audited, STATUSES).to_pyarrow_table().to_pylist()
    keys = [(row["group"], row["stream"], row["id"], row["as_of"]) for row in rows]
    assert len(keys) == len(set(keys))
    assert {row["run"] for row in rows if row["as_of"] == 1} == {2}


@pytest.mark.full
@pytest.mark.parametrize("is_large", [False, True])
def test_statuses_hold_every_entry_of_every_group_with_what_it_rests_on(
    audited: Audited, is_large: bool
) -> None:
    if is_large:
        with large_windows():
            _check_statuses(audited)
    else:
        _check_statuses(audited)


def _check_statuses(audited: Audited) -> None:
    ids = fill(audited)
    first = audited.audit(targets=both(audited))
    rows = current(audited)
    assert {group: counted(rows, group) for group in (GROUP, ODD)} == {
        one.group: audited.counts(one) for one in first
    }
    assert rows[GROUP, ids[0]]["evidence"] == rows[GROUP, ids[1]]["evidence"] == "ledger"
    assert (rows[GROUP, ids[0]]["new_id"], rows[GROUP, ids[1]]["reason"]) == ("5-0", "Poison")
    assert rows[GROUP, ids[5]]["evidence"] == "inferred"
    stuck = rows[GROUP, ids[30]]
    assert (stuck["status"], stuck["evidence"], stuck["consumer"]) == ("stuck", "snapshot", "a")
    assert rows[GROUP, ids[45]]["status"] == "undelivered"

    # What was open comes to an end in a later window: of each entry the last row counts.
    audited.acknowledge(*ids[30:40])
    audited.deliver(10, "b")
    audited.add(5)
    second = audited.audit(targets=both(audited))
    rows = current(audited)
    assert len(rows) == 2 * 55
    assert {rows[GROUP, one]["status"] for one in ids[30:40]} == {"acknowledged_inferred"}
    open_still = rows[GROUP, ids[45]]
    assert (open_still["status"], open_still["consumer"]) == ("in_flight", "b")
    assert (open_still["window"], open_still["as_of"]) == (0, 1)
    assert sum(one.produced for one in second) == 2 * 5


def test_every_column_of_the_tables_is_described() -> None:
    page = (ROOT / "docs" / "audits" / "archive-tables.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    assert {name for schema in SCHEMAS.values() for name in schema.names} - named == set()


def test_every_reason_of_a_status_has_its_evidence() -> None:
    assert set(BASES) == set(Why)


def test_the_windows_table_has_the_result_of_each_audit(audited: Audited) -> None:
    fill(audited)
    summaries: dict[str, AuditSummary] = {
        one.group: one for one in audited.audit(targets=both(audited))
    }
    rows = [row for row in opened(audited, WINDOWS).to_pyarrow_table().to_pylist() if row["group"]]
    assert {row["group"] for row in rows} == {GROUP, ODD}
    for row in rows:
        summary = summaries[row["group"]]
        assert row["phase"] == WindowPhase.AUDITED
        assert (row["produced"], row["archived"], row["open"]) == (50, 50, summary.open)
        assert (row["verdict"], row["certainty"]) == (summary.verdict, summary.certainty)
        assert row["sentence"] == summary.sentence


def test_an_archive_of_an_earlier_layout_is_refused_and_unchanged(audited: Audited) -> None:
    audited.create_group()
    audited.add(1)
    layout = audited.archive / "_pelops" / "layout.json"
    layout.parent.mkdir(parents=True)
    layout.write_text('{"version": 2}')
    with pytest.raises(ArchiveUnusable, match=r"version 2 .* Give an empty directory to --archive"):
        audited.audit()
    assert [path.name for path in audited.archive.iterdir()] == ["_pelops"]


def test_an_archive_of_a_later_layout_is_refused(audited: Audited) -> None:
    audited.create_group()
    audited.add(1)
    later = {"pelops.layout": str(int(LAYOUT) + 1)}
    DeltaTable.create(
        str(audited.archive / WINDOWS),
        SCHEMAS[WINDOWS],
        configuration=later,
        raise_if_key_not_exists=False,
    )
    with pytest.raises(ArchiveUnusable, match="version 4 of the archive's layout"):
        audited.audit()


@pytest.mark.full
def test_rows_older_than_the_retention_go_from_every_table(audited: Audited) -> None:
    fill(audited)
    for _ in range(4):
        audited.audit()
        audited.add(3)
    for name in SCHEMAS:
        window = "as_of" if name == STATUSES else "window"
        opened(audited, name).update(
            updates={"date": f"CAST('{OLD.isoformat()}' AS DATE)"}, predicate=f"{window} IN (0, 1)"
        )
    audited.audit(retention=timedelta(days=7))
    for name in SCHEMAS:
        rows = opened(audited, name).to_pyarrow_table().to_pylist()
        assert not {row["window"] for row in rows if row["date"] == OLD}, name
    assert {row["window"] for row in audited.entries()} == {2, 3, 4}
    # What the removed windows left open is still followed.
    assert audited.audit_one().open > 0


@pytest.mark.parametrize("number", [3, 100_000])
def test_spark_gets_all_rows_of_the_driver_whatever_chunks_they_are_in(
    audited: Audited, number: int
) -> None:
    empty = pa.table({"n": pa.array([], pa.int64())})
    rows = pa.concat_tables([empty, pa.table({"n": pa.array(range(number), pa.int64())}), empty])
    found = local_frame(audited.session, rows).toArrow()["n"].to_pylist()
    assert sorted(found) == list(range(number))
