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
from pelops.pipeline.archive.records import plan_rows
from pelops.pipeline.archive.tables import Archive, find_archive, open_archive
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
    """For the block: a user other than root, so that permissions are checked."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def closed() -> Iterator[Path]:
    """A directory that all users may list and only root may write to."""
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
            f"pelops: the archive path {archive} cannot be used: {file} is a file. {ADVICE}"
        )
    with pytest.raises(ArchiveUnusable, match=r"^no archive: give --archive PATH$"):
        open_archive("")


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
    assert message.startswith(f"cannot read {file}: ")


def test_an_archive_that_may_not_be_written_says_whose_right_is_missing(
    audited: Audited, closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audited.create_group()
    audited.add(3)
    with without_rights():
        user = os.geteuid()
        with pytest.raises(ArchiveUnusable) as raised:
            Archive(find_archive(f"{closed}/archive", s3_endpoint=None, s3_region=None)).claim(
                plan_rows([]), since=0
            )
    assert str(raised.value) == (
        f"cannot write {closed}/archive/entries: Permission denied: give user {user}, "
        "which runs this process, the rights to read and write the archive"
    )
    assert list(closed.iterdir()) == []


def test_an_archive_of_an_earlier_layout_is_refused(audited: Audited) -> None:
    records = audited.archive / "_pelops"
    records.mkdir(parents=True)
    (records / "layout.json").write_text('{"version": 2}')
    with pytest.raises(ArchiveUnusable, match="version 2 of the archive's layout"):
        open_archive(str(audited.archive))


def test_a_path_is_taken_as_it_is_written(audited: Audited) -> None:
    name = "100% of a+b#c, ümlaut"
    audited.create_group()
    audited.add(3)
    path = audited.archive / name
    for archive in (str(path), path.as_uri()):
        assert run("audit", audited, archive) == 0
        assert sorted(one.name for one in path.iterdir()) == [
            "entries", "events", "report", "statuses", "windows",
        ]  # fmt: skip
    assert [one.name for one in audited.archive.iterdir()] == [name]


def test_a_path_that_the_tables_cannot_have_is_refused(audited: Audited) -> None:
    with pytest.raises(ArchiveUnusable, match="holds a percent sign with two digits"):
        open_archive(str(audited.archive / "100%25"))


def test_an_address_of_another_store_is_refused() -> None:
    with pytest.raises(ArchiveUnusable, match="such as s3a://BUCKET/PREFIX"):
        open_archive("hdfs://namenode/audits")
