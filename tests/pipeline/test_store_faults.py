"""Object stores that are busy or do not answer: a run waits, or ends, and the next one repeats it.

The archive is in a bucket of a real server of S3, behind a proxy that disturbs one stage of a run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from local_cluster.redis_servers import RedisServers
from pelops.pipeline.archive import tables
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import SCHEMAS, Archive, find_archive, make_rows
from pelops.pipeline.errors import ArchiveUnusable, RunOvertaken
from pelops.pipeline.files import Files
from pelops.pipeline.session import LazySession
from tests.pipeline.audited import GROUP, Audited, Row, changed
from tests.pipeline.repeating import die_after, first_window, prepare
from tests.pipeline.s3_proxy import S3Proxy, Trouble
from tests.pipeline.s3_store import BUCKET, KEYS, S3Store
from tests.pipeline.steps import Step

# A test does not wait for a store as long as an audit does.
PATIENCE = tables._PATIENCE
IMPATIENT = {"timeout": "2s", "retry_timeout": "2s"}
# The first request of each stage, in their order, of a run after one that died once it had claimed.
READ = ("GET", "windows/_delta_log/")
CLAIM = ("PUT", "windows/_delta_log/00000000000000000002.json")
ENTRIES_FILE = ("PUT", "entries/date")
ENTRIES = ("PUT", "entries/_delta_log/00000000000000000001.json")
ARCHIVED = ("PUT", "windows/_delta_log/00000000000000000003.json")
EVENTS = ("PUT", "events/_delta_log/00000000000000000001.json")
STATUSES_FILE = ("PUT", "statuses/date")
STATUSES = ("PUT", "statuses/_delta_log/00000000000000000001.json")
AUDITED = ("PUT", "windows/_delta_log/00000000000000000004.json")
COMMITS = (CLAIM, ENTRIES, ARCHIVED, EVENTS, STATUSES, AUDITED)
STAGES = (READ, *COMMITS, ENTRIES_FILE, STATUSES_FILE)
SAID = {
    Trouble.BUSY: "the object store is busy.* run the same command again",
    Trouble.MUTE: "the object store did not answer in time.* run the same command again",
}


_PLACE = {"date": date(2026, 1, 1), "stream": "orders", "window": 0}
PLAN = make_rows(tables.WINDOWS, [_PLACE | {"phase": WindowPhase.PLANNED.value}])
ENTRY = make_rows(tables.ENTRIES, [_PLACE | {"ms": 1, "seq": 2}])


WRITTEN = "cannot write s3a?://[^ ]+: the object store .* run the same command again"


class AuditedOnS3(Audited):
    """The archive is in a bucket; audits come to it through a proxy."""

    def __init__(self, spark: LazySession, servers: RedisServers, prefix: str, at: S3Proxy) -> None:
        root = f"s3a://{BUCKET}/{prefix.strip('{}:')}"
        super().__init__(spark, servers, prefix, Path("none"))
        endpoint = f"http://{at.address}"
        self.settings = changed(self.settings, archive=root, s3_endpoint=endpoint)

    @property
    def archive_tables(self) -> Archive:
        return Archive(
            find_archive(
                self.settings.archive, s3_endpoint=self.settings.s3_endpoint, s3_region=None
            )
        )


class Repeated:
    """A run that has claimed its number and died, over and over, and what its window comes to."""

    def __init__(self, audited: AuditedOnS3, store: S3Store, kept: Path) -> None:
        self.audited = audited
        name = audited.settings.archive.rpartition("/")[2]
        # The server keeps each object as a file, and beside the files what else belongs to them.
        self._places = {
            kept / "objects": store.bucket / name,
            kept / "metadata": store.directory / "metadata" / BUCKET / name,
        }
        prepare(audited)
        die_after(audited, Step.CLAIMED)
        for copy, place in self._places.items():
            shutil.copytree(place, copy)
        audited.audit()
        self.quiet = self.found()
        assert all(self.quiet[table] for table in SCHEMAS)
        self.start_again()

    def start_again(self) -> None:
        """Bring back the archive as the dead run has left it."""
        for copy, place in self._places.items():
            shutil.rmtree(place)
            shutil.copytree(copy, place)

    def found(self) -> dict[str, list[Row]]:
        return first_window(self.audited)


@pytest.fixture(scope="module")
def proxy(store: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    with S3Proxy(store.address, tmp_path_factory.mktemp("proxy") / "log") as proxy:
        yield proxy


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of the store, and tests that do not wait for it long."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tables, "_PATIENCE", tables._PATIENCE | IMPATIENT)


@pytest.fixture
def claimed(impatient: None, proxy: S3Proxy, tmp_path: Path) -> Archive:
    """An archive of which a run has claimed the first number."""
    root = f"s3a://{BUCKET}/{tmp_path.name}"
    endpoint = f"http://{proxy.address}"
    archive = Archive(find_archive(root, s3_endpoint=endpoint, s3_region=None))
    archive.claim(PLAN, since=0)
    return archive


@pytest.fixture
def repeated(
    impatient: None,
    proxy: S3Proxy,
    store: S3Store,
    lazy_spark: LazySession,
    redis_86: RedisServers,
    key_prefix: str,
    tmp_path: Path,
) -> Iterator[Repeated]:
    with AuditedOnS3(lazy_spark, redis_86, key_prefix, proxy) as audited:
        yield Repeated(audited, store, tmp_path)


def survives(
    repeated: Repeated, proxy: S3Proxy, trouble: Trouble, stage: tuple[str, str], times: int
) -> None:
    """The run itself succeeds."""
    with proxy.troubled(trouble, *stage, times=times):
        repeated.audited.audit()
    assert repeated.found() == repeated.quiet, (trouble, stage)
    repeated.start_again()


def fails(repeated: Repeated, proxy: S3Proxy, trouble: Trouble, stage: tuple[str, str]) -> None:
    """The run says why it ends, and the next one, without the fault, succeeds."""
    root = repeated.audited.settings.archive.replace("s3a:", "s3:")
    with (
        proxy.troubled(trouble, *stage),
        pytest.raises(ArchiveUnusable, match=f"{root}/[a-z]+: {SAID[trouble]}"),
    ):
        repeated.audited.audit()
    repeated.audited.audit()
    assert repeated.found() == repeated.quiet, (trouble, stage)
    repeated.start_again()


def test_a_store_that_is_busy_for_a_time_is_asked_again(claimed: Archive, proxy: S3Proxy) -> None:
    with proxy.troubled(Trouble.BUSY, *ENTRIES_FILE, times=3):
        claimed.append(tables.ENTRIES, ENTRY)
    assert claimed.read(tables.ENTRIES).num_rows == 1


@pytest.mark.full
def test_a_store_that_does_not_answer_is_a_clear_error(claimed: Archive, proxy: S3Proxy) -> None:
    path = re.escape(claimed.place.path(tables.ENTRIES))
    with (
        proxy.troubled(Trouble.MUTE, *ENTRIES_FILE),
        pytest.raises(ArchiveUnusable, match=f"cannot write {path}: {SAID[Trouble.MUTE]}"),
    ):
        claimed.append(tables.ENTRIES, ENTRY)
    claimed.append(tables.ENTRIES, ENTRY)
    assert claimed.read(tables.ENTRIES).num_rows == 1


def test_a_commit_with_a_lost_answer_counts_once_for_its_own_run(
    claimed: Archive, proxy: S3Proxy
) -> None:
    with proxy.troubled(Trouble.LOST_ANSWER, *CLAIM, times=1):
        claimed.end(PLAN)
    with proxy.troubled(Trouble.LOST_ANSWER, *ENTRIES, times=1):
        claimed.append(tables.ENTRIES, ENTRY)
    assert claimed.read(tables.WINDOWS).num_rows == 2  # of the claim, and of the end
    assert claimed.read(tables.ENTRIES).num_rows == 1
    with pytest.raises(RunOvertaken):
        Archive(claimed.place).claim(PLAN, since=0)


@pytest.mark.full
def test_a_run_waits_at_each_stage_for_a_busy_store(repeated: Repeated, proxy: S3Proxy) -> None:
    for stage in STAGES:
        survives(repeated, proxy, Trouble.BUSY, stage, 3)


@pytest.mark.full
@pytest.mark.parametrize("trouble", list(SAID))
def test_repeating_a_run_that_the_store_failed_gives_the_same_rows(
    repeated: Repeated, proxy: S3Proxy, trouble: Trouble
) -> None:
    for stage in STAGES:
        fails(repeated, proxy, trouble, stage)


@pytest.mark.full
def test_at_each_stage_a_commit_whose_answer_is_lost_counts_once(
    repeated: Repeated, proxy: S3Proxy
) -> None:
    for stage in COMMITS:
        survives(repeated, proxy, Trouble.LOST_ANSWER, stage, 1)


@pytest.mark.full
@pytest.mark.parametrize("trouble", list(SAID))
def test_a_report_that_the_store_does_not_take_is_a_clear_error(
    repeated: Repeated, proxy: S3Proxy, trouble: Trouble
) -> None:
    files = Files(repeated.audited.archive_tables.place)
    with proxy.troubled(Trouble.BUSY, "PUT", "report/page", times=2):
        files.write("report/page", "first")
    assert files.read("report/page") == "first"
    with (
        proxy.troubled(trouble, "PUT", "report/page"),
        pytest.raises(ArchiveUnusable, match=f"report/page: {SAID[trouble]}"),
    ):
        files.write("report/page", "second")
    files.write("report/page", "third")
    assert files.read("report/page") == "third"


@pytest.mark.full
def test_by_its_own_patience_a_run_ends_when_the_store_answers_nothing(
    repeated: Repeated, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_PATIENCE", PATIENCE)
    fails(repeated, proxy, Trouble.MUTE, ENTRIES_FILE)


@pytest.mark.full
@pytest.mark.parametrize("trouble", list(SAID))
def test_repeating_a_run_whose_tasks_failed_gives_the_same_rows(
    repeated: Repeated, proxy: S3Proxy, store: S3Store, tmp_path: Path, trouble: Trouble
) -> None:
    audited = repeated.audited
    words = ["--redis-url", f"redis://127.0.0.1:{audited.port}/0", "--stream", audited.stream]
    words += ["--group", GROUP, "--archive", audited.settings.archive, "--master", "local[2]"]
    log = tmp_path / "driver.log"
    with proxy.troubled(trouble, *ENTRIES_FILE):
        # Without the options with which tests wait for a store more briefly than audits do.
        process = store.run(
            ["-m", "tests.pipeline.auditing_driver", "0", "audit", *words],
            log,
            PELOPS_AUDIT_S3_ENDPOINT=f"http://{proxy.address}",
            PYSPARK_SUBMIT_ARGS="pyspark-shell",
            AUDITING_IS_LARGE="yes",
        )
        try:
            assert process.ends_within(800), process.tail(40)
        finally:
            process.kill()
    assert process.exit_code == 1, process.tail(40)
    assert [line for line in log.read_text().splitlines() if re.search(f" ERROR .*{WRITTEN}", line)]
    audited.audit()
    assert repeated.found() == repeated.quiet
