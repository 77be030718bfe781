"""Local files of an archive, without Java: each appears whole, and one of many makes it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pelops.pipeline.archive.local_files import LocalFiles, is_local
from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken

FILES = LocalFiles()


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_paths_and_addresses_name_the_same_file(tmp_path: Path, prefix: str) -> None:
    path = f"{prefix}{tmp_path}/a/b.json"
    assert is_local(path)
    assert FILES.read(path) is None
    FILES.write(path, b"1")
    FILES.write(path, b"2")
    assert (tmp_path / "a" / "b.json").read_bytes() == FILES.read(path) == b"2"
    assert FILES.list_names(f"{prefix}{tmp_path}/a") == ["b.json"]


def test_paths_of_another_file_system_are_not_local(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_local("s3a://bucket/archive")
    assert not is_local("hdfs://name/archive")
    assert is_local("/archive")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert not is_local("/archive"), "Hadoop may be told of another default"
    assert is_local("file:/archive")


def test_of_many_that_make_a_file_at_once_one_is_told_that_it_did(tmp_path: Path) -> None:
    path = str(tmp_path / "one.json")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda by: FILES.create(path, b"%d" % by), range(32)))
    assert made.count(True) == 1
    assert FILES.read(path) == b"%d" % made.index(True)
    assert FILES.list_names(str(tmp_path)) == ["one.json"], "nothing unfinished stays"


def test_a_directory_is_put_in_place_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        FILES.write(f"{tmp_path}/{name}/rows", name.encode())
    FILES.rename(f"{tmp_path}/one", f"{tmp_path}/stage")
    with pytest.raises(RunOvertaken, match="another run works in this archive"):
        FILES.rename(f"{tmp_path}/two", f"{tmp_path}/stage")
    assert FILES.read(f"{tmp_path}/stage/rows") == b"one"
    FILES.remove(f"{tmp_path}/stage")
    FILES.remove(f"{tmp_path}/stage")
    assert not FILES.exists(f"{tmp_path}/stage")


def test_checksums_that_hadoop_has_left_are_no_files_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / ".plan.json.crc").write_bytes(b"old")
    FILES.write(f"{tmp_path}/plan.json", b"new")
    assert FILES.list_names(str(tmp_path)) == FILES.list_files(str(tmp_path)) == ["plan.json"]
    assert not (tmp_path / ".plan.json.crc").exists(), "it would no longer be that of the file"


def test_what_the_system_refuses_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArchiveUnusable, match=f"cannot write {tmp_path}/file/x: Not a directory"):
        FILES.write(f"{tmp_path}/file/x", b"")


def test_a_directory_that_another_run_still_fills_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "stage.unfinished"
    place.mkdir()
    rmdir, late = os.rmdir, ["part-00000.parquet"]

    def fill(*given: Any, **options: Any) -> None:
        if late:
            (place / late.pop()).touch()
        rmdir(*given, **options)

    monkeypatch.setattr(os, "rmdir", fill)
    FILES.remove(str(place))
    assert not place.exists()
