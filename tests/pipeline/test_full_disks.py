"""Disks that are full: the run says where, and with room again the next one repeats it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import SCHEMAS, find_archive
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.files import Files
from tests.pipeline.audited import Audited, changed
from tests.pipeline.repeating import die_after, first_window, prepare, start_from
from tests.pipeline.small_disks import fill, small_disk
from tests.pipeline.steps import Step, then
from tests.pipeline.test_dying_drivers import ends, start

SAID = "no room is left. Make room there, and run the same command again"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "4m") as disk:
        yield disk


def fails(audited: Audited) -> None:
    with pytest.raises(ArchiveUnusable, match=re.escape(SAID)) as caught:
        audited.audit()
    assert f"cannot write {audited.archive}/" in str(caught.value)
    assert "No space left on device" in str(caught.value)


@pytest.mark.full
def test_a_disk_that_is_full_after_any_step_costs_no_row(
    audited: Audited, disk: Path, tmp_path: Path
) -> None:
    audited.archive = disk / "archive"
    audited.settings = changed(audited.settings, archive=str(audited.archive))
    prepare(audited)
    die_after(audited, Step.CLAIMED)
    claimed = tmp_path / "claimed"
    shutil.copytree(audited.archive, claimed)
    audited.audit()
    quiet = first_window(audited)
    assert all(quiet[table] for table in SCHEMAS)
    ballast = disk / "ballast"
    for step in (None, *Step):
        if step is Step.AUDITED:  # nothing is written after it
            continue
        start_from(audited, claimed)
        if step is None:
            fill(ballast)
            fails(audited)
        else:
            with then(step, lambda: fill(ballast)):
                fails(audited)
        ballast.unlink()
        audited.audit()
        assert first_window(audited) == quiet, step


def test_a_report_on_a_full_disk_fails_and_the_former_one_stays(disk: Path) -> None:
    files = Files(find_archive(str(disk), s3_endpoint=None, s3_region=None))
    files.write("report/page", "first")
    fill(disk / "ballast")
    path = re.escape(str(disk / "report/page"))
    with pytest.raises(ArchiveUnusable, match=f"cannot write {path}: {re.escape(SAID)}"):
        files.write("report/page", "second" * 2000)
    assert files.read("report/page") == "first"
    assert files.list_names("report") == ["page"]


@pytest.mark.full
def test_a_disk_of_spark_that_is_full_is_a_clear_error(audited: Audited, tmp_path: Path) -> None:
    prepare(audited)
    log = tmp_path / "driver.log"
    with small_disk(tmp_path / "spark", "256k") as local:
        variables = {"SPARK_LOCAL_DIRS": str(local)}
        assert ends(start(audited, log, is_large=True, variables=variables), log) == 1
        reported = [line for line in log.read_text().splitlines() if " ERROR cannot write" in line]
        assert [line for line in reported if f"temporary files of Spark in {local}: {SAID}" in line]
    assert not audited.windows(WindowPhase.AUDITED)
    assert ends(start(audited, log, is_large=True), log) == 0, log.read_text()[-3000:]
    assert "300 of 300 produced" in log.read_text()
    assert len(audited.entries(0)) == len(audited.statuses(0)) == 300


@pytest.mark.full
def test_a_read_only_archive_is_a_clear_error_and_stays_unchanged(
    audited: Audited, disk: Path
) -> None:
    audited.archive = disk
    audited.settings = changed(audited.settings, archive=str(disk))
    prepare(audited)
    assert audited.audit_one().produced == 300
    content = audited.content()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    audited.add(3)
    with pytest.raises(ArchiveUnusable, match="Read-only file system") as refused:
        audited.audit()
    assert str(disk) in str(refused.value)
    assert audited.content() == content
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert audited.audit_one().produced == 3
