"""Small files of old windows are merged; a run that dies in it leaves the old files or the new."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pelops.domain.entry_id import parse_entry_id
from pelops.pipeline.archive import storage as storages
from pelops.pipeline.archive.arrow_reader import ArchiveFiles
from pelops.pipeline.archive.compaction import merge_closed_spans, read_marker
from pelops.pipeline.archive.layout import SPAN, WindowPlace, table_names
from pelops.pipeline.archive.storage import Storage
from pelops.pipeline.engine.spark_session import LazySession
from pelops.pipeline.lookup import LookupQuestion, look_up
from tests.pipeline.audited import Audited

pytestmark = pytest.mark.full

STREAM = "shop:orders"
ROWS = 3
PARTS = ("entries", "group=a/exceptions", "group=b/exceptions")
CHANGES = ("write_bytes", "exchange", "put_in_place", "remove", "create_json")


class Died(BaseException):
    """The process ended here."""


def place(root: Path, number: int) -> WindowPlace:
    return WindowPlace(root=str(root), stream=STREAM, number=number)


def fill(root: Path, windows: int) -> None:
    for number in range(windows):
        at = place(root, number)
        table = pa.table({"ms": range(ROWS), "seq": [0] * ROWS, "as_of": [number] * ROWS})
        paths = [at.part(name) for name in PARTS]
        paths += [at.statuses("group=a", f"2026-01-0{1 + number // 10}")]
        for path in paths:
            Path(path).mkdir(parents=True)
            pq.write_table(table, f"{path}/part-00000.parquet")
        Path(at.part("group=a/audit.json")).parent.mkdir(parents=True)
        for name in ("plan", "entries", "snapshot", "group=a", "manifest"):
            Path(at.part(f"{name}.json")).write_text(json.dumps({"of": name, "window": number}))


def run(lazy_spark: LazySession, root: Path) -> Any:
    return SimpleNamespace(storage=Storage(lazy_spark), settings=SimpleNamespace(archive=str(root)))


def seen(root: Path) -> dict[str, Counter[tuple[int, int]]]:
    """What a reader of each table sees now: of each row how often."""
    found: dict[str, Counter[tuple[int, int]]] = {}
    for table in ("entries", "exceptions", "statuses"):
        counted: Counter[tuple[int, int]] = Counter()
        for file in (root / table).rglob("*.parquet"):
            if not any(part[0] in "._" for part in file.relative_to(root).parts):
                rows = pq.ParquetFile(file).read(["as_of", "ms"]).to_pydict()
                counted.update(zip(rows["as_of"], rows["ms"], strict=True))
        found[table] = counted
    return found


def files(root: Path) -> int:
    return sum(path.is_file() for path in root.rglob("*"))


def deaths(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """A process that dies before its first change of the archive, its second, and so on."""
    for most in range(1000):
        left = {"changes": most}

        def dying(name: str, left: dict[str, int] = left) -> Any:
            change = getattr(Storage, name)

            def act(*given: Any) -> Any:
                if not left["changes"]:
                    raise Died
                left["changes"] -= 1
                return change(*given)

            return act

        with monkeypatch.context() as patch:
            for name in CHANGES:
                patch.setattr(Storage, name, dying(name))
            yield left
        if left["changes"]:
            return


def test_windows_of_a_closed_span_are_merged_and_no_row_is_lost(
    lazy_spark: LazySession, tmp_path: Path
) -> None:
    fill(tmp_path, SPAN + 1)
    before, many = seen(tmp_path), files(tmp_path)
    # The next run reads the last window.
    assert merge_closed_spans(run(lazy_spark, tmp_path), STREAM) == []
    at = place(tmp_path, SPAN + 1)
    Path(at.path).mkdir()
    Path(at.part("manifest.json")).write_text("{}")
    assert merge_closed_spans(run(lazy_spark, tmp_path), STREAM) == [f"0..{SPAN - 1}"]
    assert seen(tmp_path) == before
    assert files(tmp_path) < many / 2
    merged = Path(place(tmp_path, 0).part("entries")).parent
    assert [path.name for path in merged.iterdir()] == [f"0..{SPAN - 1}"]
    (file,) = merged.rglob("*.parquet")
    assert pq.read_table(file)["as_of"].to_pylist() == sorted([*range(SPAN)] * ROWS)
    assert read_marker(Storage(lazy_spark), place(tmp_path, 5), "snapshot") == {
        "of": "snapshot",
        "window": 5,
    }
    # The newest windows keep their own files, and there is nothing left to do.
    assert Path(place(tmp_path, SPAN).part("entries")).is_dir()
    assert merge_closed_spans(run(lazy_spark, tmp_path), STREAM) == []


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_run_that_dies_while_it_merges_hides_no_row_and_the_next_one_finishes(
    lazy_spark: LazySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:  # as on a store that cannot let two directories change places
        monkeypatch.setattr(storages, "exchange", lambda one, other: False)
    fill(tmp_path, SPAN + 3)
    before = seen(tmp_path)
    died = 0
    for _ in deaths(monkeypatch):
        try:
            merge_closed_spans(run(lazy_spark, tmp_path), STREAM)
        except Died:
            died += 1
        found = seen(tmp_path)
        assert {name: set(rows) for name, rows in found.items()} == {
            name: set(rows) for name, rows in before.items()
        }
        assert not exchanges or found == before, died
    assert died > 0
    merge_closed_spans(run(lazy_spark, tmp_path), STREAM)
    assert seen(tmp_path) == before
    left = [path for path in tmp_path.rglob("*.unfinished") if "merged=" not in path.name]
    assert not left
    assert read_marker(Storage(lazy_spark), place(tmp_path, 0), "group=a")["of"] == "group=a"


def test_a_damaged_file_keeps_the_windows_as_they_are(
    lazy_spark: LazySession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, SPAN + 2)
    file = Path(place(tmp_path, 3).part("entries"), "part-00000.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    assert merge_closed_spans(run(lazy_spark, tmp_path), STREAM) == []
    assert f"{file} is damaged" in caplog.text
    assert file.exists()
    assert Path(place(tmp_path, 0).part("entries")).exists()


def test_many_small_windows_leave_few_files_and_are_still_looked_up(audited: Audited) -> None:
    audited.create_group()
    first, *_ = audited.add(20)
    counted = []
    for number in range(SPAN + 3):
        read = audited.deliver(20)
        audited.acknowledge(*(one for one in read if one != first))
        if number == 2:
            audited.acknowledge(first)
        audited.audit_one()
        counted.append(files(audited.archive))
        audited.add(20)
    assert counted[SPAN + 1] < counted[SPAN] / 2, counted
    (history,) = look_up(
        ArchiveFiles(str(audited.archive)), LookupQuestion(entry=parse_entry_id(first))
    )
    reported = [(one.window, one.what) for one in history.events]
    assert reported == [
        (0, "added"),
        (0, "delivered to a"),
        (0, "found in flight"),
        (2, "found acknowledged, inferred"),
    ]
    # Merged windows go with the last of them.
    audited.audit_one(retention=timedelta())
    for table in table_names(Storage(audited.spark), str(audited.archive)):
        left = {path.parent.name for path in (audited.archive / table).rglob("*.parquet")}
        assert left <= {str(SPAN + 2), str(SPAN + 3)}, table
