"""An archive path where no archive can be: the message says what is in the way and what to do."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pelops.cli.main import main as run_cli
from pelops.pipeline.archive.arrow_reader import ArchiveFiles
from pelops.pipeline.archive.hadoop_files import HadoopFiles
from pelops.pipeline.archive.local_files import LocalFiles
from pelops.pipeline.errors import ArchiveUnusable
from pelops.pipeline.main import main
from tests.pipeline.audited import GROUP, Audited

ADVICE = (
    "Give --archive (PELOPS_AUDIT_ARCHIVE) the path of a directory; one that does not exist is "
    "created"
)
NOBODY = 65534


def run(command: str, audited: Audited, archive: object) -> int:
    url = f"redis://127.0.0.1:{audited.port}/0"
    target = ["--stream", audited.stream, "--group", GROUP, "--archive", str(archive)]
    return main([command, "--redis-url", url, *target])


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]


@contextmanager
def without_rights() -> Iterator[None]:
    """For the block: a user who is not root, for whom rights are checked."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def closed() -> Iterator[Path]:
    """A directory that everybody may list and nobody may write to."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o555)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


@pytest.mark.parametrize("command", ["archive", "audit", "report", "triage"])
def test_a_file_is_no_archive(
    command: str, audited: Audited, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audited.create_group()
    file = tmp_path / "file"
    file.write_text("of somebody else")
    for archive in (file, f"{file}/", f"file://{file}", f"{file}/below/it"):
        caplog.clear()
        assert run(command, audited, archive) == 1
        root = str(archive).rstrip("/")
        assert said(caplog) == [
            f"the archive path {root} cannot be used: {file} is a file. {ADVICE}"
        ]
    assert file.read_text() == "of somebody else"


def test_a_link_that_leads_nowhere_is_no_archive(
    audited: Audited, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audited.create_group()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "unmounted")
    assert run("audit", audited, link) == 1
    message = f"{link} is a link to {tmp_path / 'unmounted'}, which does not exist"
    assert said(caplog) == [f"the archive path {link} cannot be used: {message}. {ADVICE}"]
    (tmp_path / "unmounted").mkdir()
    assert run("audit", audited, link) == 0


def test_a_lookup_in_a_file_says_that_it_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    for archive in (file, file / "below"):
        with pytest.raises(SystemExit):
            run_cli(["audit", "lookup", "--archive", str(archive), "--id", "1-1"])
        assert capsys.readouterr().err.strip() == (
            f"pelops: the archive path {archive} cannot be used: {file} is a file. Give the "
            "directory that --archive of `audit` names"
        )
    with pytest.raises(ArchiveUnusable, match=r"^no archive: give --archive PATH$"):
        ArchiveFiles("")


def test_a_file_within_the_archive_is_named(
    audited: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    audited.create_group()
    audited.add(3)
    audited.archive.mkdir()
    file = audited.archive / "entries"
    file.touch()
    assert run("audit", audited, audited.archive) == 1
    (message,) = said(caplog)
    assert message.endswith(f"windows=0..23: Not a directory: {file} is a file")


def test_an_archive_that_may_not_be_written_says_whose_right_is_missing(
    audited: Audited, closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audited.create_group()
    audited.add(3)
    with without_rights():
        user = os.geteuid()
        assert run("audit", audited, closed / "archive") == 1
    assert said(caplog) == [
        f"cannot write {closed}/archive/_pelops/layout.json: Permission denied: give user {user}, "
        "which runs this process, the rights to read and write the archive"
    ]
    assert list(closed.iterdir()) == []
    files = LocalFiles()
    closed.chmod(0o700)
    with without_rights():
        if os.geteuid() == NOBODY:
            with pytest.raises(ArchiveUnusable, match=f"Permission denied: give user {NOBODY}, "):
                files.read(f"{closed}/archive/_pelops/layout.json")


def test_hadoop_names_the_file_that_is_in_the_way(audited: Audited, tmp_path: Path) -> None:
    files = HadoopFiles(audited.session)
    assert files.find_obstacle(f"file:{tmp_path}") is None
    assert files.find_obstacle(f"file:{tmp_path}/archive/of/it") is None
    (tmp_path / "file").touch()
    for path in (f"file:{tmp_path}/file", f"file:{tmp_path}/file/below/it"):
        assert files.find_obstacle(path) == f"file:{tmp_path}/file is a file"


def test_hadoop_s_scheme_of_s3_is_named_to_who_writes_another(audited: Audited) -> None:
    with pytest.raises(ArchiveUnusable, match=r"write the address as s3a://BUCKET/PREFIX"):
        HadoopFiles(audited.session).find_obstacle("s3://bucket/archive")
