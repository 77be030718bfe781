"""Where nothing has changed there is nothing to audit: no window, no job, and no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from local_cluster.redis_servers import RedisServers
from pelops.domain.records.audit import AuditVerdict
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import WINDOWS
from pelops.pipeline.report.pages import write_new_reports
from pelops.pipeline.run import find_targets
from pelops.pipeline.session import LazySession
from pelops.pipeline.settings import UNPROVEN
from tests.pipeline.audited import FIRST_MS, GROUP, STUCK_AFTER_MS, Audited

REPOSITORY: Final = Path(__file__).parents[2]


class CountingSession(LazySession):
    """Another session, and how often it was asked for."""

    def __init__(self, session: LazySession) -> None:
        super().__init__()
        self._session = session
        self.asked = 0

    def get(self, entries: int | None = None) -> SparkSession:
        self.asked += 1
        return self._session.get(entries)


@pytest.fixture
def session(lazy_spark: LazySession) -> CountingSession:
    return CountingSession(lazy_spark)


@pytest.fixture
def quiet(
    session: CountingSession, redis_86: RedisServers, key_prefix: str, tmp_path: Path
) -> Iterator[Audited]:
    """A group that has acknowledged all but what it has not read, was audited, and is at rest."""
    with Audited(session, redis_86, key_prefix, tmp_path / "archive") as audited:
        audited.create_group()
        audited.add(30)
        read = audited.deliver(20)
        audited.client.xdel(audited.stream, read[3])
        audited.acknowledge(*read)
        audited.record("bookmark", "entries_added", 1, "last_generated", "1-1")
        audited.audit()
        yield audited


def windows(audited: Audited) -> int:
    return len(audited.windows(WindowPhase.ARCHIVED))


def test_a_stream_on_which_nothing_has_changed_gets_no_new_window(
    quiet: Audited, session: CountingSession
) -> None:
    content, asked = quiet.content(), session.asked
    assert asked > 0
    (first,) = quiet.audit()
    assert (first, windows(quiet)) == (quiet.audit_one(), 1)
    assert first.counts and first.window.number == 0
    assert quiet.content() == content
    assert quiet.audit(window=timedelta(milliseconds=1)) == [], "and nothing is reported twice"
    assert session.asked == asked


def test_the_page_is_left_as_it_is(quiet: Audited) -> None:
    def report() -> bytes:
        with quiet.running() as run:
            page = write_new_reports(run, find_targets(run), quiet.audit())
            return Path(page).read_bytes()

    page = report()
    assert report() == page
    quiet.add(1)
    assert report() != page


def _acknowledge_all(audited: Audited) -> None:
    audited.acknowledge(*audited.deliver(1))


CHANGES: Final[dict[str, Callable[[Audited], object]]] = {
    "added": lambda one: one.add(1),
    "delivered": lambda one: one.deliver(1),
    "delivered and acknowledged": _acknowledge_all,
    "deleted": lambda one: one.client.xdel(one.stream, f"{FIRST_MS + 2}-9"),
    "trimmed": lambda one: one.client.xtrim(one.stream, maxlen=5, approximate=False),
    "position": lambda one: one.client.xgroup_setid(one.stream, GROUP, "$"),
    "consumer": lambda one: one.client.xgroup_createconsumer(one.stream, GROUP, "b"),
    "group deleted": lambda one: one.client.xgroup_destroy(one.stream, GROUP),
    "stream deleted": lambda one: one.client.delete(one.stream),
    "ledger": lambda one: one.record("released", "reason", "x"),
    "ledger deleted": lambda one: one.client.delete(one.keys.ledger),
    "retry stream": lambda one: one.client.xadd(one.keys.retry, {"a": 1}),
}


@pytest.mark.parametrize(
    "change",
    [one if one == "added" else pytest.param(one, marks=pytest.mark.full) for one in CHANGES],
)
def test_whatever_changes_is_audited(quiet: Audited, change: str) -> None:
    CHANGES[change](quiet)
    quiet.audit()
    assert windows(quiet) == 2


@pytest.mark.full
def test_what_is_pending_is_audited_since_time_alone_makes_it_stuck(quiet: Audited) -> None:
    (read,) = quiet.deliver(1)
    assert quiet.audit_one().verdict is AuditVerdict.BALANCED
    stuck_at_once = replace(quiet.settings.targets[0], stuck_after_ms=0)
    quiet.let_idle(read)
    assert quiet.audit_one().verdict is AuditVerdict.FINDINGS
    assert windows(quiet) == 3
    quiet.acknowledge(read)
    quiet.audit()
    quiet.audit()
    assert windows(quiet) == 4
    quiet.audit(targets=(stuck_at_once,))
    assert windows(quiet) == 5, "another question"


def test_counters_that_are_recorded_again_are_no_change(quiet: Audited) -> None:
    last = quiet.client.xinfo_stream(quiet.stream)["last-generated-id"].decode()
    quiet.record("bookmark", "entries_added", 30, "last_generated", last)
    quiet.audit()
    assert windows(quiet) == 1


@pytest.mark.full
def test_a_run_that_died_before_its_end_is_finished(quiet: Audited) -> None:
    found, statuses = quiet.report().summary, quiet.statuses(0)
    quiet.archive_tables.remove(WINDOWS, f"phase = '{WindowPhase.AUDITED}'")
    first, *_ = quiet.audit()
    assert first == quiet.report().summary == found
    again = quiet.statuses(0)
    assert {row["run"] for row in again} != {row["run"] for row in statuses}
    assert [row | {"run": 0} for row in again] == [row | {"run": 0} for row in statuses]


def test_unchanged_streams_need_neither_java_nor_pyspark(quiet: Audited, tmp_path: Path) -> None:
    words = ["audit", "--redis-url", f"redis://127.0.0.1:{quiet.port}/0", "--group", GROUP]
    words += ["--stream", quiet.stream, "--archive", str(quiet.archive)]
    words += ["--stuck-after-seconds", str(STUCK_AFTER_MS // 1000)]
    # The first run makes the page, the second has nothing to do.
    for _ in range(2):
        path = os.pathsep.join([str(REPOSITORY / "operator"), str(REPOSITORY)])
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.audit_without_java", *words],
            env=os.environ | {"PYTHONPATH": path, "JAVA_HOME": str(tmp_path / "none")},
            cwd=REPOSITORY,
            capture_output=True,
            check=False,
            text=True,
        )
        # An entry was deleted before the first window.
        assert done.returncode == UNPROVEN, done.stderr
        assert "  total " in done.stdout
        assert done.stdout.splitlines()[-1] == "pyspark was not imported"
