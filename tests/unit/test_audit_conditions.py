"""The conditions of an audit, and the groups that they name."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from pelops.api.audit.audit_status_model import AuditRunStatus
from pelops.controller.audit.audit_status import render_audit_status
from pelops.controller.runtime.kind import PreviousStatus
from pelops.domain.condition import Condition, Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.audit import AuditVerdict
from pelops.kube.trimmed import trim
from pelops.policy.audit.audit_conditions import (
    decide_audit_conditions,
    find_failed_start,
    find_margin,
)
from pelops.policy.audit.audit_facts import AuditFacts, Runs, StreamEnds
from pelops.policy.status.reasons import ConditionType, Reason
from tests.audit_facts import a_group, after, an_audit, facts, some_runs
from tests.audits import CLOSED, a_summary

OUTAGE = Finding(reason=Reason.REDIS_UNREACHABLE, message="Redis does not answer")


def reported(seen: AuditFacts, **later: float) -> dict[str, Condition]:
    now = after(**(later or {"minutes": 5}))
    return {one.type: one for one in decide_audit_conditions(seen, now=now)}


def reason(seen: AuditFacts, kind: ConditionType, **later: float) -> str | None:
    found = reported(seen, **later).get(kind)
    return found.reason if found else None


def test_an_audit_that_runs_and_finds_nothing_has_one_condition() -> None:
    (ready,) = decide_audit_conditions(facts([a_group()]), now=after(minutes=5))
    assert (ready.type, ready.status, ready.reason) == ("Ready", "True", "Scheduled")
    assert "CronJob/nightly-audit runs on the schedule */15 * * * * (UTC)" in ready.message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"runs": Runs()}, "Creating"),
        ({"redis_problem": OUTAGE}, "RedisUnreachable"),
        ({"job_problem": Finding(reason=Reason.NAME_TAKEN, message="")}, "NameTaken"),
        ({"plan_problem": Finding(reason=Reason.GROUP_MISSING, message="")}, "GroupMissing"),
    ],
)
def test_what_keeps_it_from_running_as_asked_is_reported_by_ready(
    changes: dict[str, Any], expected: str
) -> None:
    ready = reported(facts(**changes))["Ready"]
    assert (ready.status, ready.reason) == ("False", expected)


def test_a_suspended_audit_is_ready_and_says_so() -> None:
    found = reported(facts(audit=an_audit(suspend=True)))
    assert found["Ready"].reason == found["Suspended"].reason == "Suspended"
    assert found["Ready"].status == "True"


def test_a_loss_is_reported_with_what_to_do_until_it_is_acknowledged() -> None:
    message = reported(facts([a_group(lost=3)]))["LossDetected"].message
    assert "3 of orders:events" in message
    assert "saudit -n shop nightly pelops.dev/acknowledge=LossDetected" in message
    assert "LossDetected" not in reported(facts([a_group(lost=3, acknowledged=3)]))


def test_many_groups_are_reported_in_a_message_of_bounded_length() -> None:
    groups = [a_group(lost=1, stream=f"s-{number}") for number in range(200)]
    assert reported(facts(groups))["LossDetected"].message.count("1 of s-") == 5
    assert "and 195 more" in reported(facts(groups))["LossDetected"].message


@pytest.mark.parametrize(
    ("added", "length", "is_behind"),
    [
        (10, 0, False),  # all of it is archived, however little is left
        (100, 100, False),  # much is not archived, and nothing trims the stream
        (12, 4, False),  # of the 4 that are left half are archived
        (14, 5, True),  # a fifth
        (20, 11, True),
        (20, 10, True),  # trimmed up to the archive
        (100, 50, True),  # and beyond
        (9, 9, False),  # another stream of the same name
    ],
)
def test_an_archive_is_behind_when_trimming_is_near(
    added: int, length: int, is_behind: bool
) -> None:
    ends = StreamEnds(added=added, length=length)
    margin = find_margin(a_summary(), ends)
    found = "ArchiveBehindRetention" in reported(facts([a_group(ends=ends)]))
    assert found is is_behind
    assert (margin is None) == (added < 10)


def test_an_archive_behind_retention_is_reported_until_a_later_run() -> None:
    group = a_group(a_summary(retention_margin=0.1))
    assert reason(facts([group]), ConditionType.ARCHIVE_BEHIND_RETENTION)
    group = a_group(a_summary(retention_margin=0.9))
    assert not reason(facts([group]), ConditionType.ARCHIVE_BEHIND_RETENTION)


def test_entries_that_went_unseen_are_reported_as_gone() -> None:
    group = a_group(ends=StreamEnds(added=100, length=50))
    message = reported(facts([group]))["ArchiveBehindRetention"].message
    assert "entries of orders:events were trimmed before they were archived" in message


@pytest.mark.parametrize(
    ("runs", "minutes", "expected"),
    [
        ({}, 5, None),
        ({"last_start": None, "last_success": None}, 5, None),  # before the first
        ({"last_success": None, "is_active": True}, 5, None),  # still running
        ({"last_success": None, "is_active": True}, 62, "RunFailed"),  # beyond its deadline
        ({"last_success": None}, 0.5, None),  # its end may not be reported yet
        ({"last_success": None}, 5, "RunFailed"),
        ({"last_success": CLOSED - timedelta(hours=1)}, 5, "RunFailed"),  # an older one
        (  # another run is already active
            {
                "last_success": None,
                "is_active": True,
                "failed_start": CLOSED - timedelta(minutes=1),
            },
            0.1,
            "RunFailed",
        ),
    ],
)
def test_a_run_that_did_not_do_its_work_is_reported(
    runs: dict[str, Any], minutes: float, expected: str | None
) -> None:
    seen = facts([a_group()], runs=some_runs(**runs))
    assert reason(seen, ConditionType.AUDIT_FAILING, minutes=minutes) == expected


@pytest.mark.parametrize(
    ("status", "success", "expected"),
    [
        (None, None, None),  # nothing was reported yet
        ({"last_start_time": 0}, None, None),  # the last run is still the last
        ({"last_start_time": -2}, None, -2),
        ({"last_start_time": -2}, -1, None),  # it ended well
        ({"last_start_time": -2}, -3, -2),  # an older one did
        ({"last_start_time": -2, "failed_start_time": -5}, -6, -5),  # the first that failed
        ({"last_start_time": -2, "failed_start_time": -5}, -4, -2),
        ({"last_start_time": 0, "failed_start_time": -2}, -3, -2),
        ({"last_start_time": 0, "failed_start_time": -2}, 1, None),
    ],
)
def test_a_run_after_which_another_began_has_failed_unless_it_ended_well(
    status: dict[str, int] | None, success: int | None, expected: int | None
) -> None:
    def at(minute: int) -> datetime:
        return CLOSED + timedelta(minutes=minute)

    runs = Runs(last_start=at(0), last_success=None if success is None else at(success))
    times = {name: at(minute) for name, minute in (status or {}).items()}
    found = find_failed_start(runs, AuditRunStatus.model_validate(times) if times else None)
    assert found == (None if expected is None else at(expected))


def test_a_failing_verdict_is_reported_in_its_own_words() -> None:
    group = a_group(a_summary(verdict=AuditVerdict.FAILING, sentence="The stream was replaced."))
    failing = reported(facts([group]))["AuditFailing"]
    assert failing.reason == "AuditInconclusive"
    assert "The stream was replaced." in failing.message


def test_what_cannot_be_read_is_reported() -> None:
    group = a_group(record=None, problem=Finding(reason=Reason.INVALID_SPEC, message="no JSON"))
    assert reason(facts([group]), ConditionType.AUDIT_FAILING) == "SummaryUnreadable"


def mounting(*paths: object) -> dict[str, Any]:
    mounts = [{"name": "v", "mountPath": path} for path in paths]
    return {"spec": {"containers": [{"name": "audit", "volumeMounts": mounts}]}}


@pytest.mark.parametrize(
    ("spec", "is_doubted"),
    [
        ({"archive": {"path": "/a/b"}}, True),
        ({"archive": {"path": "/a/b"}, "template": mounting("/a/bc", 5)}, True),
        ({"archive": {"path": "/a/b"}, "template": {"spec": {"containers": [1]}}}, True),
        ({"archive": {"path": "/a/b"}, "template": mounting("/a")}, False),
        ({"archive": {"path": "/a/b/"}, "template": mounting("/a/b")}, False),
        ({"archive": {"path": "hdfs://namenode/a"}}, False),
        ({"archive": {"persistentVolumeClaim": {"claimName": "audits"}}}, False),
    ],
    ids=str,
)
def test_an_archive_on_no_volume_is_reported_before_the_first_run(
    spec: dict[str, Any], is_doubted: bool
) -> None:
    ready = reported(facts(audit=an_audit(**spec)))["Ready"]
    assert ready.reason == "Scheduled"
    assert ("No volume of spec.template is mounted at /a/b" in ready.message) is is_doubted


def test_the_volumes_of_a_compressed_template_are_known() -> None:
    template = mounting("/a/b", *(f"/{n}" for n in range(1000)))
    manifest = {"metadata": {}, "spec": {"template": template}}
    kept = trim(manifest)["spec"]["template"]
    assert kept != template
    audit = an_audit(archive={"path": "/a/b"}, template=kept)
    assert "No volume" not in reported(facts(audit=audit))["Ready"].message


def test_a_key_that_is_no_stream_is_reported_before_the_first_run() -> None:
    problem = Finding(reason=Reason.WRONG_TYPE, message="The key holds a string.")
    group = a_group(record=None, ends=None, stream_problem=problem)
    failing = reported(facts([group], runs=Runs(exists=True)))["AuditFailing"]
    assert failing.reason == "AuditInconclusive"
    assert "The key holds a string." in failing.message


def test_a_successful_run_without_a_record_is_reported_unless_streams_are_empty() -> None:
    group = a_group(record=None)
    assert reason(facts([group]), ConditionType.AUDIT_FAILING) == "RunIncomplete"
    empty = replace(group, ends=StreamEnds(added=0, length=0))
    assert reason(facts([empty]), ConditionType.AUDIT_FAILING) is None


@pytest.mark.parametrize(
    ("before_minutes", "expected"), [(1, None), (15, None), (17, "RunIncomplete")]
)
def test_entries_that_the_last_run_should_have_seen_are_missed(
    before_minutes: int, expected: str | None
) -> None:
    added = int((CLOSED - timedelta(minutes=before_minutes)).timestamp() * 1000)
    ends = StreamEnds(added=11, length=11, first_unaudited=EntryId(added))
    seen = facts([a_group(ends=ends)])
    assert reason(seen, ConditionType.AUDIT_FAILING) == expected


def test_an_explicit_id_that_is_no_time_is_not_missed() -> None:
    ends = StreamEnds(added=11, length=11, first_unaudited=EntryId(7))
    assert reason(facts([a_group(ends=ends)]), ConditionType.AUDIT_FAILING) is None


def test_an_outage_of_redis_ends_no_alarm_and_begins_none() -> None:
    now = after(minutes=5)
    seen = facts([a_group(lost=1)])
    status = render_audit_status(
        seen, decide_audit_conditions(seen, now=now), PreviousStatus(status={}, generation=1), now
    )
    outage = facts(audit=an_audit(status=status), redis_problem=OUTAGE)
    conditions = decide_audit_conditions(outage, now=now)
    assert {one.type for one in conditions} == {"Ready", "LossDetected"}
    again = render_audit_status(
        outage, conditions, PreviousStatus(status=status, generation=1), now
    )
    assert again["groups"] == status["groups"] and again["summary"] == status["summary"]
