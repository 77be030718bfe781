"""The table `statuses` of a large window: the entries that were passed are written file by file.

Thresholds are lowered, so that windows as small as these are worked like large ones.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive import window_selection
from pelops.pipeline.archive.arrow_reader import ArchiveFiles
from pelops.pipeline.archive.compaction import merge_unit
from pelops.pipeline.archive.footers import SCHEMA
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.archive.window_selection import plan_windows
from pelops.pipeline.engine.sql import on_driver
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.lookup import LookupQuestion, look_up
from pelops.pipeline.reconcile import file_scan, statuses, window_entries
from pelops.pipeline.run import open_run
from pelops.pipeline.stages import WindowWork
from pelops.pipeline.window import audit_window
from tests.pipeline.audited import GROUP, Audited
from tests.pipeline.test_engines import columns, copy_looks, rows, rows_of, tables

pytestmark = pytest.mark.full

LATE: Final = "late"  # a group that was made when the stream had entries already
LAST_TIME: Final = 253_370_764_799_999  # ms of the last ID that holds a time
OF_PASSED: Final = "passed-*.parquet"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files of entries, and of each several batches."""
    monkeypatch.setattr(window_selection, "_LEAST_OF_A_TASK", 40)
    monkeypatch.setattr(window_selection, "_TASKS", 4)
    monkeypatch.setattr(file_scan, "_ROWS_AT_ONCE", 16)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, small_parts: None) -> None:
    """Any window is a large one."""
    monkeypatch.setattr(window_entries, "_MANY", 0)


class History:
    """Two groups, to whose entries all happens that a row can report."""

    def __init__(self, audited: Audited) -> None:
        self.audited = audited
        self.late = derive_keys(audited.stream, LATE)
        self.left: list[str] = []  # pending

    def first(self) -> None:
        audited, client = self.audited, self.audited.client
        audited.create_group()
        client.xgroup_create(self.audited.keys.retry, GROUP, id="0", mkstream=True)
        for entry_id in ("0-1", f"5-{2**63 - 1}"):
            client.execute_command("XADD", audited.stream, entry_id, "number", 1)
        ids = audited.add(100)
        client.xgroup_create(audited.stream, LATE, id=ids[59], entries_read=62)
        client.xadd(
            self.late.ledger,
            {
                "kind": "group-created", "stream": audited.stream, "position": ids[59],
                "why": "first", "added": 62,
            },
        )  # fmt: skip
        self.live()

    def live(self) -> None:
        """More entries; all but the last ones are passed by both groups."""
        audited = self.audited
        audited.add(60)
        read = self.left + audited.deliver(1000)
        acts = [self.requeue, self.requeue_unmarked, self.retry, self.bury]
        for act, entry in zip(acts, read[10::20], strict=False):
            act(entry)
        audited.let_idle(read[3], 90_000)
        self.left = [read[3], read[1], read[40]]
        read += audited.deliver(1000)  # the copies
        audited.acknowledge(*(one for one in read if one not in self.left))
        late = audited.client.xreadgroup(LATE, "l", {audited.stream: ">"}, count=1000)
        ids = [entry for _, entries in late for entry, _ in entries]
        audited.client.xack(audited.stream, LATE, *ids[2:])
        audited.add(7)

    def requeue(self, entry: str) -> None:
        (copy,) = self.audited.add(1, order=1, _original_id=entry, _retry_count=2)
        self.record("requeued", entry, copy)

    def requeue_unmarked(self, entry: str) -> None:
        """Of the copy, the ledger alone tells what it is."""
        (copy,) = self.audited.add(1, order=1)
        self.record("requeued", entry, copy)

    def retry(self, entry: str) -> None:
        fields = {"number": 1, "_original_id": entry, "_retry_count": 1}
        self.record(
            "requeued", entry, self.audited.client.xadd(self.audited.keys.retry, fields).decode()
        )

    def bury(self, entry: str) -> None:
        letter = {"number": 1, "_original_id": entry}
        keys = self.audited.keys
        self.record(
            "dead-lettered", entry, self.audited.client.xadd(keys.dead_letter, letter).decode()
        )

    def record(self, kind: str, entry: str, copy: str) -> None:
        reported = f"{copy} {entry} 1 3 70"
        self.audited.record(kind, "reason", "slow", "consumer", "a", entry, reported)

    def second(self) -> None:
        """What was open comes to an end, what is old is trimmed, and IDs reach the last ones."""
        audited, client = self.audited, self.audited.client
        self.live()
        for entry_id in (f"{LAST_TIME}-0", f"{LAST_TIME + 1}-3", f"{2**63 - 1}-{2**63 - 1}"):
            client.execute_command("XADD", audited.stream, entry_id, "number", 1)
        audited.acknowledge(*audited.deliver(1000))
        client.xreadgroup(LATE, "l", {audited.stream: ">"}, count=1000)
        client.xtrim(audited.stream, maxlen=90, approximate=False)


def audit(audited: Audited, archive: Path, way: str, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(window_entries, "_MANY", 10**9 if way == "spark" else 0)
    run = open_run(audited.spark, replace(audited.settings, archive=str(archive)))
    targets = (*audited.settings.targets, audited.target(LATE))
    try:
        plan, _ = next(plan_windows(run, audited.stream, targets))
        place = replace(audited.place(plan.window.number), root=str(archive))
        with on_driver(way == "driver"):
            audit_window(WindowWork(run=run, plan=plan, place=place))
    finally:
        run.watch.close()


def status_files(archive: Path) -> list[Path]:
    return sorted((archive / "statuses").rglob("*.parquet"))


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("small_parts")
def test_the_table_is_the_same_whoever_writes_it(
    audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(audited)
    archives = {"driver": audited.archive, "spark": tmp_path / "s", "files": tmp_path / "f"}
    for number, live in enumerate((history.first, history.second)):
        live()
        for way, archive in archives.items():
            if way != "driver":
                copy_looks(audited, archive, number)
            with monkeypatch.context() as patch:
                audit(audited, archive, way, patch)
        found = {way: tables(archive) for way, archive in archives.items()}
        for name, table in found["driver"].items():
            for way in ("spark", "files"):
                assert columns(found[way][name]) == columns(table), (way, name)
                assert rows(found[way][name]) == rows(table), (way, name)
    seen = rows_of(found["files"], "statuses/")
    assert {(row["ms"], row["added_at"] is None) for row in seen} >= {
        (0, True), (5, False), (LAST_TIME, False), (LAST_TIME + 1, True), (2**63 - 1, True),
    }  # fmt: skip
    known = {row["status"] for row in seen}
    assert known >= {"acknowledged_inferred", "stuck", "in_flight", "requeued", "dead_lettered"}
    by_files = {
        (path.parts[-4], path.parts[-2])
        for path in status_files(tmp_path / "f")
        if path.match(OF_PASSED)
    }
    assert by_files == {(slug(group), window) for group in (GROUP, LATE) for window in "01"}
    assert not [path for path in status_files(tmp_path / "s") if path.match(OF_PASSED)]
    copies = [
        row["root"]
        for path in status_files(tmp_path / "f")
        if path.match(OF_PASSED)
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    assert sum(root is not None for root in copies) >= 8  # of both groups and windows


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("large")
def test_files_of_a_large_window_are_sorted_and_alike_and_add_up(
    audited: Audited, tmp_path: Path
) -> None:
    History(audited).first()
    summary = audited.audit_one(spark_from=0)
    files = status_files(audited.archive)
    made = [path for path in files if path.match(OF_PASSED)]
    assert len(made) >= 2
    schema = pq.read_schema(files[0])
    for path in files:
        found = pq.ParquetFile(path)
        assert found.schema_arrow.equals(schema)
        assert found.schema_arrow.metadata[SCHEMA.encode()] == schema.metadata[SCHEMA.encode()]
        for name, column in zip(schema.names, range(len(schema)), strict=True):
            group = found.metadata.row_group(0).column(column)
            assert (name, group.compression) == (name, "ZSTD")
        ids = [(row["stream"], row["ms"], row["seq"]) for row in found.read().to_pylist()]
        assert ids == sorted(ids), path
        assert len(set(ids)) == len(ids)
    found = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    ours = [row for row in found if row["stream"] == audited.stream]
    counted = Counter(row["status"] for row in ours)
    assert dict(counted) == audited.counts(summary)
    marker = audited.marker(f"group={slug(GROUP)}")["files"]
    noted = {Path(name).name: file["rows"] for name, file in marker.items() if "statuses/" in name}
    assert noted == {path.name: pq.read_metadata(path).num_rows for path in files}
    assert sum(noted.values()) == len(found)

    # A reader finds an entry in them.
    passed_id = pq.read_table(made[1]).column("id")[3].as_py()
    asked = LookupQuestion(entry=parse_entry_id(passed_id))
    (story,) = look_up(ArchiveFiles(str(audited.archive)), asked)
    assert (story.status, story.evidence) == ("acknowledged_inferred", "inferred")

    # What is merged later holds the rows of both kinds of files.
    storage = Storage(audited.spark)
    unit = made[0].parents[1]
    before = rows(pq.read_table(made[0].parent))
    merge_unit(storage, str(unit), str(tmp_path / "beside"))
    (merged,) = status_files(audited.archive)
    assert rows(pq.ParquetFile(merged).read()) == before


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("large")
def test_a_repetition_makes_the_same_bytes(audited: Audited) -> None:
    History(audited).first()
    audited.audit_one(spark_from=0)
    files = audited.files()
    assert [name for name in files if Path(name).match(OF_PASSED)]
    Path(audited.place().path, "manifest.json").unlink()
    audited.remove_stage(f"group={slug(GROUP)}")
    assert not status_files(audited.archive)
    audited.audit(spark_from=0)
    audited.remove_window(1)
    assert audited.files() == files


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("large")
def test_with_too_much_to_keep_in_memory_spark_writes_all(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_entries, "MOST_BROADCAST", 1)
    History(audited).first()
    summary = audited.audit_one(spark_from=0)
    files = status_files(audited.archive)
    assert not [path for path in files if path.match(OF_PASSED)]
    found = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    counted = Counter(row["status"] for row in found if row["stream"] == audited.stream)
    assert dict(counted) == audited.counts(summary)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("large")
def test_an_interrupt_ends_the_writing_and_leaves_nothing(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(audited).first()
    batches: list[int] = []
    write = statuses.passed_entries

    def interrupted(*given: Any) -> Any:
        batches.append(1)
        if len(batches) == 2:
            audited.spark.interrupted.set()
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(statuses, "passed_entries", interrupted)
        try:
            with pytest.raises(KeyboardInterrupt):
                audited.audit_one(spark_from=0)
        finally:
            audited.spark.interrupted.clear()
    assert len(batches) <= 4
    assert not status_files(audited.archive)
    assert not [name for name in audited.files() if ".unfinished" in name]
    audited.audit(spark_from=0)
    assert [path for path in status_files(audited.archive) if path.match(OF_PASSED)]


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("large")
def test_what_cannot_be_written_is_a_clear_error_and_leaves_nothing(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(audited).first()
    find = statuses.passed_entries

    def obstructed(*given: Any) -> Any:
        (part,) = Path(audited.place().path).glob("group=*.unfinished/statuses")
        (part / "passed-00000.parquet").mkdir(exist_ok=True)
        return find(*given)

    with monkeypatch.context() as patch:
        patch.setattr(statuses, "passed_entries", obstructed)
        with pytest.raises(ArchiveUnusable, match=r"cannot write .*/passed-00000.parquet: .*"):
            audited.audit_one(spark_from=0)
    assert not status_files(audited.archive)
    assert not [name for name in audited.files() if ".unfinished" in name]


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("large")
def test_files_older_than_the_retention_go(audited: Audited) -> None:
    history = History(audited)
    history.first()
    audited.audit_one(spark_from=0)
    plan = Path(audited.place(0).part("plan.json"))
    content = json.loads(plan.read_text())
    content["window"]["at_ms"] -= 8 * 24 * 3600 * 1000
    plan.write_text(json.dumps(content))
    for _ in range(3):
        history.live()
        audited.audit_one(spark_from=0, retention=timedelta(days=7))
    kept = {path.parent.name for path in status_files(audited.archive) if path.match(OF_PASSED)}
    assert "0" not in kept
    assert len(kept) >= 2
