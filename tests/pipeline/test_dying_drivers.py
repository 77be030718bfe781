"""Drivers that are killed in mid-work, and archives that take nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import STATUSES
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.settings import BROKEN
from tests.pipeline.audited import GROUP, Audited
from tests.pipeline.steps import Step

REPOSITORY = Path(__file__).parents[2]
RUN_S = 240


def start(
    audited: Audited,
    log: Path,
    *,
    most_bytes: int = 0,
    master: str = "local[2]",
    dies_after: Step | None = None,
    is_large: bool = False,
    variables: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """An audit in a process of its own, which leads a group of processes.

    With `is_large` it works each window like a large one.
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
                "AUDITING_DIES_AFTER": dies_after or "",
                "AUDITING_IS_LARGE": "yes" * is_large,
            }
            | (variables or {}),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def end(process: subprocess.Popen[Any]) -> None:
    """End it with all that it has started, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ends(process: subprocess.Popen[bytes], log: Path) -> int:
    """The exit code of a run, which is killed where it does not end."""
    try:
        return process.wait(timeout=RUN_S)
    except subprocess.TimeoutExpired:
        end(process)
        raise AssertionError(log.read_text()[-3000:]) from None


@pytest.mark.full
@pytest.mark.parametrize("is_large", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_next_run_removes_the_rows_of_a_killed_driver(
    audited: Audited, tmp_path: Path, is_large: bool
) -> None:
    audited.create_group()
    audited.add(3000)
    read = audited.deliver(2000)
    audited.acknowledge(*read)
    audited.record("dead-lettered", "reason", "Poison", read[0], f"5-0 {read[0]} 1 1 40")
    log = tmp_path / "driver.log"
    for step in (Step.ENTRIES, Step.STATUSES):
        process = start(audited, log, dies_after=step, is_large=is_large)
        assert ends(process, log) == -signal.SIGKILL, log.read_text()[-3000:]
    assert [row["run"] for row in audited.windows(WindowPhase.PLANNED)] == [1, 2]
    assert not audited.windows(WindowPhase.AUDITED)
    assert {row["run"] for row in audited.statuses()} == {2}

    assert ends(start(audited, log, is_large=is_large), log) == 3
    said = log.read_text()
    # The first was killed before any row said that its entries were archived.
    assert "removed 3000 rows of entries that run 1 left" in said
    assert "removed 3000 rows of statuses that run 2 left" in said
    assert "3000 of 3000 produced" in said
    assert {row["run"] for row in audited.entries()} == {2}
    assert len(audited.entries()) == 3000
    assert len(audited.statuses(0)) == 3000
    assert 2 not in set(audited.archive_tables.read(STATUSES)["run"].to_pylist())
    assert {row["status"] for row in audited.statuses(0)} == {
        "acknowledged_inferred", "dead_lettered", "undelivered",
    }  # fmt: skip


@pytest.mark.full
def test_a_killed_jvm_is_one_error_and_the_next_run_continues(
    audited: Audited, tmp_path: Path
) -> None:
    audited.create_group()
    audited.add(30)
    audited.acknowledge(*audited.deliver(20))
    log = tmp_path / "driver.log"
    process = start(audited, log, variables={"AUDITING_LOSES_JAVA": Step.ENTRIES})
    assert ends(process, log) == BROKEN, log.read_text()[-3000:]
    said = log.read_text()
    assert "Traceback" not in said
    (reported,) = [line for line in said.splitlines() if " ERROR " in line]
    assert "the JVM of Spark ended" in reported and "PELOPS_AUDIT_MEMORY_MIB" in reported
    assert ends(start(audited, log), log) == 0
    assert "30 of 30 produced" in log.read_text()


@pytest.mark.full
def test_files_at_their_size_limit_are_a_clear_error_without_partial_archives(
    audited: Audited, tmp_path: Path
) -> None:
    audited.create_group()
    audited.add(40_000)
    log = tmp_path / "driver.log"
    process = start(audited, log, most_bytes=64 * 1024)
    assert ends(process, log) == 1, log.read_text()[-3000:]
    # The limit is on every file: here Spark's own are the first to reach it.
    (reported,) = [line for line in log.read_text().splitlines() if "ERROR cannot write" in line]
    assert "no room is left. Make room there" in reported and "File too large" in reported
    assert not audited.windows(WindowPhase.ARCHIVED) and not audited.entries()
    # With room again, the run continues where that one ended, and reports what it found.
    process = start(audited, log)
    assert ends(process, log) == 0, log.read_text()[-3000:]
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
