"""The archive in a bucket: whole audits against a real server of S3, through s3a and deltalake."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import redis

from local_cluster.processes import Process, wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import (
    ENTRIES,
    STATUSES,
    WINDOWS,
    Archive,
    find_archive,
    make_rows,
)
from pelops.pipeline.errors import RunOvertaken
from pelops.pipeline.report.places import DOCUMENT, PAGE, report_path
from tests.pipeline.audited import FIRST_MS, GROUP
from tests.pipeline.s3_store import BUCKET, KEYS, S3Store

# The server and the jars are made when they are first asked for.
pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]
ENTRIES_ADDED = 300
RUN_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A stream with a group, and where its archive is to be."""

    store: S3Store
    port: int
    stream: str
    prefix: str
    logs: Path

    @property
    def archive(self) -> str:
        return f"s3a://{BUCKET}/{self.prefix}"

    @property
    def tables(self) -> Archive:
        """The archive as it is now."""
        return open_archive(self.store, self.archive)

    def audit(self, name: str, **variables: str) -> Process:
        """Begin an audit; what it says is in `logs`."""
        url = f"redis://127.0.0.1:{self.port}/0"
        what = ["--redis-url", url, "--stream", self.stream, "--group", GROUP]
        words = [*what, "--archive", self.archive, "--master", "local[2]"]
        words += ["--window-seconds", "3600"]  # once the first is closed, none is for an hour
        (self.logs / name).mkdir()
        log = self.logs / name / "log"
        return self.store.run(["-m", "pelops.pipeline", "audit", *words], log, **variables)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.tables.read(table).to_pylist()
        return rows


def open_archive(store: S3Store, root: str) -> Archive:
    return Archive(find_archive(root, s3_endpoint=f"http://{store.address}", s3_region=None))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of the store, also for this process."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def case(store: S3Store, redis_86: RedisServers, key_prefix: str, tmp_path: Path) -> Iterator[Case]:
    """A stream of which half is acknowledged and some is pending."""
    case = Case(
        store=store,
        port=redis_86.master().port,
        stream=f"{key_prefix}orders",
        prefix=f"shop/{tmp_path.name}",
        logs=tmp_path,
    )
    derived = derive_keys(case.stream, GROUP)
    client: Any = redis.Redis(port=case.port)
    client.xgroup_create(case.stream, GROUP, id="0", mkstream=True)
    for number in range(ENTRIES_ADDED):
        client.xadd(case.stream, {"number": number}, id=f"{FIRST_MS + number}-0")
    ((_, read),) = client.xreadgroup(GROUP, "a", {case.stream: ">"}, count=200)
    client.xack(case.stream, GROUP, *[entry_id for entry_id, _ in read[:150]])
    yield case
    client.delete(case.stream, derived.ledger)
    client.close()


def end_of(process: Process) -> tuple[int | None, str]:
    """The exit code, and all that was said."""
    try:
        assert process.ends_within(RUN_S), process.tail(40)
    finally:
        process.kill()
    return process.exit_code, process.log.read_text()


def errors(said: str) -> list[str]:
    return [line for line in said.splitlines() if " ERROR " in line]


def test_a_run_audits_into_an_object_store(case: Case) -> None:
    code, said = end_of(case.audit("run"))
    assert code == 0, said[-3000:]
    assert f"{ENTRIES_ADDED} of {ENTRIES_ADDED} produced" in said
    assert f"report: {case.archive}/report/{PAGE}" in said
    assert len(case.rows(ENTRIES)) == len(case.rows(STATUSES)) == ENTRIES_ADDED
    written = case.store.files(case.prefix)
    for base in (report_path(), report_path(case.stream)):
        assert {f"{base}/{PAGE}", f"{base}/{DOCUMENT}"} <= written.keys()
    assert not [name for name in written if ".unfinished" in name]

    words = ["audit", "lookup", "--archive", case.archive, "--id", f"{FIRST_MS}-0"]
    code, said = end_of(case.store.run(["-m", "pelops.cli", *words], case.logs / "lookup.log"))
    assert code == 0, said[-3000:]
    assert "is acknowledged, inferred (window 0, inferred)" in said


def test_runs_that_lose_the_store_or_meet_leave_each_entry_once(case: Case) -> None:
    first = case.audit("first")
    try:
        wait_until(
            lambda: "entries archived in" in first.log.read_text() or not first.is_alive(),
            timeout_s=RUN_S, what="the first step", every_s=0.02,
        )  # fmt: skip
    finally:
        case.store.stop()
    code, said = end_of(first)
    case.store.start()
    assert code == 1, said[-3000:]
    assert f"{BUCKET}/{case.prefix}" in errors(said)[-1]
    assert "Traceback" not in said

    together = [case.audit("one"), case.audit("other")]
    ended = [end_of(one) for one in together]
    assert 0 in {code for code, _ in ended}
    for code, said in ended:
        # Of two runs at once the later claim counts; the other one says so.
        assert code == 0 or "another run works on the archive" in errors(said)[-1], said[-3000:]
    code, said = end_of(case.audit("again"))
    assert code == 0, said[-3000:]
    audited = [row for row in case.rows(WINDOWS) if row["phase"] == WindowPhase.AUDITED]
    assert [row["window"] for row in audited if row["group"] == GROUP] == [0]
    for table in (ENTRIES, STATUSES):
        ids = [(row["ms"], row["seq"]) for row in case.rows(table)]
        assert len(ids) == len(set(ids)) == ENTRIES_ADDED, table


def test_of_many_claims_at_once_the_store_takes_one_for_each_number(
    store: S3Store, tmp_path: Path
) -> None:
    root, runs = f"s3a://{BUCKET}/{tmp_path.name}", 4
    plans = make_rows(
        WINDOWS,
        [
            {
                "date": date(2026, 1, 1),
                "stream": "s",
                "window": 0,
                "phase": WindowPhase.PLANNED.value,
            }
        ],
    )
    open_archive(store, root).claim(plans, since=0)
    together = Barrier(runs)

    def claim(_: int) -> int | None:
        archive = open_archive(store, root)
        archive.newest_run()
        together.wait()
        try:
            return archive.claim(plans, since=1)
        except RunOvertaken:
            return None

    with ThreadPoolExecutor(runs) as pool:
        found = list(pool.map(claim, range(runs)))
    assert [one for one in found if one is not None] == [2]
    assert open_archive(store, root).newest_run() == 2


def test_keys_that_the_store_does_not_know_are_a_clear_error(case: Case) -> None:
    code, said = end_of(case.audit("wrong", AWS_SECRET_ACCESS_KEY="of another store"))
    assert code == 1
    assert "Traceback" not in said
    (line,) = errors(said)
    assert case.prefix in line
    assert not case.store.files(case.prefix)
