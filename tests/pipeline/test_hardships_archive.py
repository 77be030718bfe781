"""Archives on file systems that are full or refuse writes: a clear error; later runs continue."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pelops.domain.records.audit import AuditVerdict
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import ENTRIES
from pelops.pipeline.errors import ArchiveUnusable
from tests.pipeline.audited import Audited
from tests.pipeline.hardships import half_read
from tests.pipeline.steps import Step, then

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


@pytest.mark.full
def test_a_full_archive_is_a_clear_error_and_continues_with_room(
    audited: Audited, mount: Mount
) -> None:
    half_read(audited)
    audited.archive.mkdir()
    mount(audited.archive, "size=8m")
    filling = audited.archive / "filling"

    def fill() -> None:
        filling.write_bytes(b"")
        free = os.statvfs(audited.archive)
        filling.write_bytes(b"x" * (free.f_bavail * free.f_bsize))

    fill()
    with pytest.raises(ArchiveUnusable, match="No space left on device") as none:
        audited.audit()
    assert str(audited.archive) in str(none.value)
    filling.unlink()
    # Room for the plan, and for no more than the plan.
    with (
        then(Step.CLAIMED, fill),
        pytest.raises(ArchiveUnusable, match="No space left on device") as some,
    ):
        audited.audit()
    assert str(audited.archive / ENTRIES) in str(some.value)
    filling.unlink()
    assert {row["phase"] for row in audited.windows()} == {WindowPhase.PLANNED}
    assert not audited.entries()
    summary = audited.audit()[0]
    assert summary.produced == summary.archived == 30
    assert summary.verdict is AuditVerdict.BALANCED
    assert len(audited.entries()) == 30


@pytest.mark.full
def test_a_read_only_archive_is_a_clear_error_and_stays_unchanged(
    audited: Audited, mount: Mount
) -> None:
    half_read(audited)
    audited.archive.mkdir()
    mount(audited.archive, "size=8m")
    first = audited.audit_one()
    content = audited.content()
    mount(audited.archive, "remount,ro,size=8m")
    audited.add(3)
    with pytest.raises(ArchiveUnusable, match="Read-only file system") as refused:
        audited.audit()
    assert str(audited.archive) in str(refused.value)
    assert audited.content() == content
    mount(audited.archive, "remount,rw,size=8m")
    second = audited.audit_one()
    assert (first.produced, second.produced) == (30, 3)
