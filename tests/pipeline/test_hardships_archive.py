"""Archives on file systems that are full, or take nothing: a clear end, and later it goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pelops.domain.audit import AuditVerdict
from pelops.pipeline import window as window_run
from pelops.pipeline.errors import ArchiveUnusable
from tests.pipeline.audited import Audited
from tests.pipeline.hardships import amid, half_read

Mount = Callable[..., None]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mount a small file system on a directory of the test; it goes with the test."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    with ExitStack() as mounted:

        def run(place: Path, options: str) -> None:
            is_new = not place.is_mount()
            command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("this machine mounts no file systems")
            if is_new:
                mounted.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True)

        yield run


def test_an_archive_that_is_full_is_a_clear_error_and_goes_on_with_room(
    audited: Audited, mount: Mount
) -> None:
    half_read(audited)
    audited.archive.mkdir()
    mount(audited.archive, "size=64k")
    filling = audited.archive / "filling"
    filling.write_bytes(b"x" * 60_000)
    with pytest.raises(ArchiveUnusable, match="No space left on device") as none:
        audited.audit()
    assert str(audited.archive) in str(none.value)
    # Room for the plan, and for no more than the plan.
    filling.write_bytes(b"x" * 40_000)
    plan_only = audited.archive / "filling-too"

    def fill() -> None:
        plan_only.write_bytes(b"")
        free = os.statvfs(audited.archive)
        plan_only.write_bytes(b"x" * (free.f_bavail * free.f_bsize))

    with (
        amid(window_run, "archive_entries", fill),
        pytest.raises(ArchiveUnusable, match="No space left on device"),
    ):
        audited.audit()
    window = Path(audited.place().path)
    whole = [one.name for one in window.iterdir() if ".unfinished" not in one.name]
    assert [name for name in whole if name[0] != "."] == ["plan.json"]
    filling.unlink()
    plan_only.unlink()
    mount(audited.archive, "remount,size=8m")
    summary = audited.audit()[0]
    assert summary.produced == summary.archived == 30
    assert summary.verdict is AuditVerdict.BALANCED
    left = [name for name in audited.files() if ".unfinished" in name or ".claim" in name]
    assert not left


def test_an_archive_that_is_read_only_is_a_clear_error_and_is_left_as_it_was(
    audited: Audited, mount: Mount
) -> None:
    half_read(audited)
    audited.archive.mkdir()
    mount(audited.archive, "size=8m")
    first = audited.audit_one()
    files = audited.files()
    mount(audited.archive, "remount,ro,size=8m")
    audited.add(3)
    with pytest.raises(ArchiveUnusable, match=r"Read-only file system|Mkdirs failed") as refused:
        audited.audit()
    assert str(audited.archive) in str(refused.value)
    assert audited.files() == files
    mount(audited.archive, "remount,rw,size=8m")
    second = audited.audit_one()
    assert (first.produced, second.produced) == (30, 3)
