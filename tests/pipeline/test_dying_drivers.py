"""Drivers that are killed in mid-work, and archives that take nothing more."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pelops.pipeline.archive.layout import slug
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.reconcile import file_scan, window_entries
from tests.pipeline.audited import GROUP, Audited

REPOSITORY = Path(__file__).parents[2]
STAGES = ("entries", "snapshot", "acts", "duplicates", f"group={slug(GROUP)}")
# What reports times of the run itself, and not of the window.
OF_THE_RUN = ("snapshot.json",)


def start(
    audited: Audited,
    log: Path,
    *,
    most_bytes: int = 0,
    master: str = "local[2]",
    spark_from: int = 100_000,
    at_once: int = 0,
) -> subprocess.Popen[bytes]:
    """An audit in a process of its own, which leads a group of processes.

    With `at_once` it works each window like a large one, so many entries at once.
    """
    url = f"redis://127.0.0.1:{audited.port}/0"
    words = ["audit", "--redis-url", url, "--stream", audited.stream, "--group", GROUP]
    path = os.pathsep.join([str(REPOSITORY / "operator"), str(REPOSITORY)])
    with log.open("ab") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.pipeline.auditing_driver", str(most_bytes)),
                *(*words, "--archive", str(audited.archive), "--master", master),
            ],
            cwd=REPOSITORY,
            env=os.environ
            | {
                "PYTHONPATH": path,
                "PYSPARK_PYTHON": sys.executable,
                "PELOPS_AUDIT_MEMORY_MIB": "1024",
                "PELOPS_AUDIT_SPARK_FROM": str(spark_from),
                "AUDITING_AT_ONCE": str(at_once),
            },
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def end(process: subprocess.Popen[Any]) -> None:
    """End it with all that it has started, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_amid(audited: Audited, stage: str, log: Path) -> None:
    """Start a run, and kill it while it fills the directory of a stage."""
    window = Path(audited.place().path)
    process = start(audited, log)
    try:
        deadline = time.monotonic() + 240
        while not list(window.glob(f"{stage}.*.unfinished")):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"it never came to {stage}"
            time.sleep(0.005)
    finally:
        end(process)


@pytest.mark.timeout(900)
def test_a_driver_killed_in_every_stage_leaves_what_a_quiet_run_makes(
    audited: Audited, tmp_path: Path
) -> None:
    audited.create_group()
    audited.add(3000)
    read = audited.deliver(2000)
    audited.acknowledge(*read)
    audited.record("dead-lettered", "reason", "Poison", read[0], f"5-0 {read[0]} 1 1 40")
    for stage in STAGES:
        kill_amid(audited, stage, tmp_path / "driver.log")
    killed = audited.audit()[0]
    audited.remove_window(1)
    files = audited.files()

    plan = Path(audited.place().part("plan.json"))
    kept = plan.read_bytes()
    shutil.rmtree(audited.archive)
    plan.parent.mkdir(parents=True)
    plan.write_bytes(kept)
    assert audited.audit()[0] == killed
    audited.remove_window(1)
    quiet = audited.files()
    assert not [name for name in files if ".unfinished" in name or ".claim" in name]
    assert files.keys() == quiet.keys()
    differing = [name for name in files if files[name] != quiet[name]]
    assert [name for name in differing if Path(name).name not in OF_THE_RUN] == []


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_driver_killed_while_it_writes_the_statuses_of_a_large_window_leaves_the_same_bytes(
    audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited.create_group()
    audited.add(5000)
    audited.acknowledge(*audited.deliver(5000)[:-9])
    window, log = Path(audited.place().path), tmp_path / "driver.log"
    process = start(audited, log, spark_from=0, at_once=10)
    try:
        deadline = time.monotonic() + 240
        while not list(window.glob(f"{STAGES[-1]}.*.unfinished/statuses/passed-*")):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, "it never came to the statuses"
            time.sleep(0.005)
    finally:
        end(process)
    monkeypatch.setattr(window_entries, "_MANY", 0)
    monkeypatch.setattr(file_scan, "_ROWS_AT_ONCE", 10)
    found: list[Any] = []
    for _ in range(2):
        found.append(audited.audit(spark_from=0)[0])
        audited.remove_window(1)
        found.append(audited.files())
        (window / "manifest.json").unlink()
        audited.remove_stage(STAGES[-1])
    assert found[:2] == found[2:]
    assert [name for name in found[1] if Path(name).match("passed-*.parquet")]
    assert not [name for name in found[1] if ".unfinished" in name or ".claim" in name]


@pytest.mark.timeout(300)
def test_an_archive_without_room_is_a_clear_error_and_holds_nothing_half(
    audited: Audited, tmp_path: Path
) -> None:
    audited.create_group()
    audited.add(40_000)
    log = tmp_path / "driver.log"
    process = start(audited, log, most_bytes=64 * 1024)
    try:
        assert process.wait(timeout=240) == 1, log.read_text()[-3000:]
    finally:
        if process.poll() is None:
            end(process)
    reported = log.read_text().splitlines()
    assert [
        line for line in reported if "ERROR cannot write" in line and str(audited.archive) in line
    ]
    assert [line for line in reported if "File too large" in line]
    left = list(Path(audited.place().path).iterdir())
    assert [one.name for one in left if one.name[0] != "."] == ["plan.json"]
    # With room again, the run goes on where that one ended, and tells what it found.
    process = start(audited, log)
    try:
        assert process.wait(timeout=240) == 0, log.read_text()[-3000:]
    finally:
        if process.poll() is None:
            end(process)
    page = audited.archive / "report" / "audit.html"
    assert page.is_file()
    said = log.read_text()
    assert f"report: {page}" in said
    assert "40000 of 40000 produced" in said
    assert "balanced, inferred: 0 of 40000 entries were acknowledged" in said


def test_an_archive_that_cannot_be_is_a_clear_error(audited: Audited, tmp_path: Path) -> None:
    audited.add(3)
    file = tmp_path / "file"
    file.write_text("no directory")
    with pytest.raises(ArchiveUnusable, match=f"{file}/archive"):
        audited.audit(archive=f"{file}/archive")
