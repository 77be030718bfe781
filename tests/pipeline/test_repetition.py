"""A run that died is repeated, and two runs meet: the tables hold the same rows."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pelops.domain.records.audit import AuditSummary
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.archive.tables import ENTRIES, EVENTS, SCHEMAS, STATUSES
from pelops.pipeline.errors import RunOvertaken
from tests.pipeline.audited import Audited
from tests.pipeline.repeating import die_after, first_window, prepare, start_from
from tests.pipeline.steps import WRITTEN, Step, then


def rows_of(audited: Audited, table: str, run: int) -> int:
    rows: list[int] = audited.archive_tables.read(table, columns=("run",))["run"].to_pylist()
    return rows.count(run)


@pytest.mark.full
def test_repeating_a_run_that_died_gives_the_same_rows(audited: Audited) -> None:
    prepare(audited)
    # A plan says when its window was closed: all runs work on one.
    die_after(audited, Step.CLAIMED)
    planned = audited.archive.with_name("planned")
    shutil.copytree(audited.archive, planned)
    audited.audit()
    quiet = first_window(audited)
    assert {table: len(rows) > 0 for table, rows in quiet.items()} == dict.fromkeys(SCHEMAS, True)
    for step in Step:
        start_from(audited, planned)
        die_after(audited, step)
        for table in (ENTRIES, EVENTS, STATUSES):
            assert (rows_of(audited, table, 2) > 0) == (table in WRITTEN[step]), (step, table)
        audited.audit()
        assert first_window(audited) == quiet, step
        # Archived entries stay; all else of a run that did not end is written again.
        is_kept = step in (Step.ARCHIVED, Step.EVENTS, Step.STATUSES, Step.AUDITED)
        assert (rows_of(audited, ENTRIES, 2) > 0) == is_kept, step
        assert (rows_of(audited, STATUSES, 2) > 0) == (step is Step.AUDITED), step


def test_of_two_runs_the_overtaken_one_ends_without_rows(
    audited: Audited,
) -> None:
    prepare(audited)
    other: Future[list[AuditSummary]] = Future()
    done = threading.Event()

    def meet() -> None:
        """Once: the other run has all of its steps between two of this one."""
        if not done.is_set():
            done.set()
            other.set_result(audited.audit())

    with then(Step.STATUSES, meet), pytest.raises(RunOvertaken, match="another run works on the"):
        audited.audit()
    # The other run finishes the window of this one, and then closes another.
    summary, _ = other.result()
    assert summary.produced == sum(summary.counts.values()) == 300
    assert [row["run"] for row in audited.windows(WindowPhase.PLANNED)] == [1, 2, 3]
    assert {row["run"] for row in audited.windows(WindowPhase.AUDITED)} == {2, 3}
    assert rows_of(audited, STATUSES, 1) == rows_of(audited, EVENTS, 1) == 0
    assert {row["run"] for row in audited.statuses()} == {2, 3}
    assert len({(row["ms"], row["seq"]) for row in audited.entries()}) == 300


@pytest.mark.full
def test_of_two_concurrent_runs_one_audits_and_no_row_is_doubled(
    audited: Audited,
) -> None:
    prepare(audited)
    audited.audit()
    audited.add(20)

    def audit(_: int) -> AuditSummary | None:
        try:
            return audited.audit_one()
        except RunOvertaken:
            return None

    with ThreadPoolExecutor(2) as pool:
        found = [one for one in pool.map(audit, range(2)) if one is not None]
    audited.audit()
    assert found
    rows = [row for row in audited.entries() if row["window"] == 1]
    assert len(rows) == len({(row["ms"], row["seq"]) for row in rows}) == 20
    statuses = [(row["group"], row["id"], row["as_of"]) for row in audited.statuses()]
    assert len(statuses) == len(set(statuses))
    audits = [(row["window"], row["group"]) for row in audited.windows(WindowPhase.AUDITED)]
    assert len(audits) == len(set(audits))
