"""The commands as a person meets them: what was misspelt, progress, and being interrupted."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from local_cluster.processes import free_port
from pelops.pipeline.archive.records import WindowPhase
from pelops.pipeline.audit.user_tables import read_table
from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.main import main, render_table
from pelops.pipeline.name_check import check_dead_letters, check_names
from pelops.pipeline.run import find_targets
from pelops.pipeline.session import LazySession, progress_reported
from pelops.pipeline.settings import INTERRUPTED, UserTable, read_place
from pelops.pipeline.triage.triage_command import run_triage
from tests.pipeline.audited import GROUP, Audited, changed
from tests.pipeline.steps import Step
from tests.pipeline.test_dying_drivers import ends, start


def triage(audited: Audited, **changes: Any) -> None:
    with audited.running(**changes) as run:
        check_dead_letters(run, find_targets(run))
        run_triage(run, find_targets(run))


def check(audited: Audited) -> None:
    with audited.running() as run:
        check_names(run, find_targets(run))


def refusal(audited: Audited) -> str:
    with pytest.raises(WrongPipelineSettings) as refused:
        check(audited)
    assert not audited.archive.exists(), "nothing was planned for a name that is wrong"
    return str(refused.value)


def test_a_misspelt_name_is_refused_before_a_window_is_planned_for_it(audited: Audited) -> None:
    assert refusal(audited) == f"there is no stream {audited.stream!r}"
    audited.client.xgroup_create(audited.stream, "mail", "0", mkstream=True)
    assert refusal(audited) == f"stream {audited.stream!r} has no group '{GROUP}'; it has 'mail'"
    audited.settings = changed(audited.settings, targets=(), pattern="nothing-*")
    assert refusal(audited) == "no stream that has a group fits 'nothing-*'"


@pytest.mark.full
def test_a_stream_deleted_since_the_last_audit_is_not_a_misspelling(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(3)
    audited.audit_one()
    audited.client.xgroup_destroy(audited.stream, GROUP)
    check(audited)
    audited.client.delete(audited.stream)
    check(audited)


def test_a_report_needs_no_redis(audited: Audited, caplog: pytest.LogCaptureFixture) -> None:
    audited.create_group()
    audited.add(3)
    audited.audit_one()
    place = read_place({}, f"redis://127.0.0.1:{free_port()}/0")
    options = {**place.options, "numRetries": "0"}
    page = audited.write_report(place=replace(place, options=options))
    assert audited.stream in page.read_text(encoding="utf-8")
    [reported] = [text for text in caplog.messages if text.startswith("dead letters of")]
    assert "Connection refused" in reported


def test_a_misspelt_group_is_refused_and_the_report_page_stays(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(3)
    audited.audit_one()
    path = audited.write_report()
    page = path.read_bytes()
    wrong = {"targets": (audited.target("wrokers"),)}
    with pytest.raises(WrongPipelineSettings, match="has no audit of this stream and group"):
        audited.write_report(**wrong)
    with pytest.raises(WrongPipelineSettings, match=f"has no group 'wrokers'; it has '{GROUP}'"):
        triage(audited, **wrong)
    assert path.read_bytes() == page


def test_dead_letters_of_a_group_that_is_gone_are_triaged(
    audited: Audited, capsys: pytest.CaptureFixture[str]
) -> None:
    audited.client.xadd(audited.keys.dead_letter, {"a": 1})
    triage(audited)
    assert "1 dead letters" in capsys.readouterr().out


def test_what_is_wrong_with_the_server_is_reported_before_spark_starts(
    audited: Audited, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited.client.execute_command("ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@read")
    monkeypatch.setenv("PELOPS_REDIS_USERNAME", "weak")
    monkeypatch.setenv("PELOPS_REDIS_PASSWORD", "pw")
    try:
        monkeypatch.setenv("PELOPS_REDIS_URL", f"redis://127.0.0.1:{audited.port}/0")
        target = ["--stream", audited.stream, "--group", GROUP, "--archive", str(audited.archive)]
        assert main(["audit", *target]) == 1
    finally:
        audited.client.execute_command("ACL", "DELUSER", "weak")
    assert caplog.messages[-1].endswith("`pelops acl --role auditor` prints the required rights")
    assert audited.session.range(1).count() == 1, "the session of others is still there"


def test_a_spark_that_does_not_start_is_reported_in_a_line(
    audited: Audited, tmp_path: Path
) -> None:
    audited.create_group()
    log = tmp_path / "driver.log"
    assert start(audited, log, master="local[x]").wait(timeout=240) == 1
    reported = log.read_text()
    assert "Traceback" not in reported
    assert (
        reported.rstrip()
        .splitlines()[-1]
        .endswith(
            "Spark failed: org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'"
        )
    )


@pytest.mark.full
def test_a_group_added_later_is_reported_as_missing_from_archived_windows(
    audited: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    audited.create_group()
    audited.add(3)
    check(audited)
    assert not caplog.records
    audited.audit_one()
    audited.client.xgroup_create(audited.stream, "mail", "0")
    both = (*audited.settings.targets, audited.target("mail"))
    audited.settings = changed(audited.settings, targets=both)
    check(audited)
    [reported] = caplog.messages
    assert reported.startswith("group 'mail' is in no archived window of")


@pytest.mark.full
def test_open_entries_are_shown_when_nothing_was_added(audited: Audited) -> None:
    audited.create_group()
    audited.add(3)
    [read, *_] = audited.deliver(2)
    audited.let_idle(read)
    audited.audit_one()
    reported = render_table(audited.audit_one())
    [line] = [line for line in reported.splitlines() if "open, all windows" in line]
    assert line.split()[3:] == ["3,", "the", "oldest", "stuck", "one", "for", line.split()[9], "s"]


def test_an_audit_of_resources_finds_what_they_lack(audited: Audited) -> None:
    assert refusal(audited)  # neither stream nor group is there
    audited.settings = changed(audited.settings, name="shop/nightly")
    check(audited)
    with audited.running() as run:
        assert audited.stream in find_targets(run)


def test_a_missing_table_is_refused_before_a_window_is_planned(
    audited: Audited,
) -> None:
    audited.create_group()
    table = UserTable(path="/nowhere/sent.parquet", key="order")
    audited.settings = changed(audited.settings, business_key="order", sent=table)
    reported = refusal(audited)
    assert reported.startswith("the table /nowhere/sent.parquet cannot be read: [PATH_NOT_FOUND]")
    assert "\n" not in reported


def test_a_database_without_its_driver_says_where_drivers_go(spark: SparkSession) -> None:
    table = UserTable(path="jdbc:nosuch://db/shop?password=hunter2#sent", format="jdbc")
    with pytest.raises(WrongPipelineSettings) as refused:
        read_table(spark, table)
    reported = str(refused.value)
    assert reported.startswith("the table sent of jdbc:nosuch://db/shop cannot be read: ")
    assert "No suitable driver; add the jar of its JDBC driver to Java's class path" in reported
    assert "hunter2" not in reported


@pytest.mark.full
def test_a_table_of_a_database_is_read_by_jdbc(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    # Or Derby leaves its log where the tests were started.
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:{tmp_path}/shop"
    sent = spark.createDataFrame([("a", 5), ("b", 6)], "order_id string, sent_ms bigint")
    sent.write.format("jdbc").options(url=f"{url};create=true", dbtable="sent").save()
    table = UserTable(path=f"{url}#sent", format="jdbc", key="order_id", at_ms="sent_ms")
    rows = read_table(spark, table).collect()
    assert sorted((row["key"], row["at_ms"]) for row in rows) == [("a", 5), ("b", 6)]


def test_progress_is_reported_while_a_step_lasts_and_not_after(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gate = tmp_path / "open"
    with progress_reported(LazySession(given=spark), every_s=0.05):
        job = threading.Thread(target=count_behind, args=(spark.sparkContext, gate))
        job.start()
        while "running: 0 of 2 tasks of this step done" not in caplog.text:
            assert job.is_alive()
            time.sleep(0.05)
        gate.touch()
        job.join()
    assert not [one for one in threading.enumerate() if one.name == "progress"]


def test_a_run_counts_and_cancels_its_own_jobs_alone(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    session = LazySession(given=spark)
    session.begin_run()
    counted: list[int] = []
    others = threading.Thread(
        target=lambda: counted.append(count_behind(spark.sparkContext, gate, tasks=1)), daemon=True
    )
    others.start()
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        assert others.is_alive()
        time.sleep(0.05)
    assert session.get().range(3).count() == 3
    session.cancel_jobs()
    gate.touch()
    others.join()
    work = session.count_work()
    assert (counted, work and work.jobs) == ([1], 1)


def test_the_running_job_of_a_run_is_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    session = LazySession(given=spark)
    session.begin_run()
    failures: list[str] = []

    def run_job() -> None:
        try:
            count_behind(session.get().sparkContext, gate)
        except Exception as error:
            failures.append(str(error))

    job = threading.Thread(target=run_job, daemon=True)
    job.start()
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        assert job.is_alive()
        time.sleep(0.05)
    session.cancel_jobs()
    job.join(timeout=60)
    gate.touch()  # or its tasks would wait on
    assert len(failures) == 1 and "cancelled" in failures[0]


def count_behind(context: SparkContext, gate: Path, tasks: int = 2) -> int:
    """A job of so many tasks that last until the gate exists."""

    def wait(number: int) -> int:
        while not gate.exists():
            time.sleep(0.05)
        return number

    return context.parallelize(range(tasks), tasks).map(wait).count()


@pytest.mark.full
def test_an_interrupted_run_is_reported_in_one_line_and_continued(
    audited: Audited, tmp_path: Path
) -> None:
    audited.create_group()
    audited.add(500)
    log = tmp_path / "driver.log"
    process = start(audited, log, variables={"AUDITING_INTERRUPTED_AFTER": Step.ENTRIES})
    assert ends(process, log) == INTERRUPTED, log.read_text()[-3000:]
    reported = log.read_text()
    assert "Traceback" not in reported
    assert (
        reported.rstrip()
        .splitlines()[-1]
        .endswith("interrupted: finished steps are kept, and the same command continues from there")
    )
    assert not audited.windows(WindowPhase.AUDITED)
    assert audited.audit()[0].produced == 500
    assert len(audited.entries(0)) == 500
