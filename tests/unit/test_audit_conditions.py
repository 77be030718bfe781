"""What an audit tells, and of whom."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from pelops.api.audit_status import AuditRunStatus, StreamAuditStatus
from pelops.controller.audit_status import render_audit_status, tell_windows
from pelops.controller.status import Previous
from pelops.domain.audit import Verdict
from pelops.domain.condition import Condition, Finding
from pelops.domain.entry_id import EntryId
from pelops.policy.audit_conditions import decide_audit_conditions
from pelops.policy.audit_facts import AuditFacts, Runs, StreamEnds
from pelops.policy.audit_freshness import find_failed_start
from pelops.policy.audit_notices import AuditNotice, decide_audit_alarms, read_notices
from pelops.policy.audit_plan import AuditPlan, plan_audit
from pelops.policy.audit_retention import find_margin
from pelops.policy.reasons import AUDIT_ALARMS, ConditionType, Reason
from tests.audit_facts import a_group, after, an_audit, facts, some_runs
from tests.audits import CLOSED, a_summary, a_window
from tests.builders import resource

OUTAGE = Finding(reason=Reason.REDIS_UNREACHABLE, message="Redis does not answer")


def told(seen: AuditFacts, **later: float) -> dict[str, Condition]:
    now = after(**(later or {"minutes": 5}))
    return {one.type: one for one in decide_audit_conditions(seen, now=now)}


def reason(seen: AuditFacts, kind: ConditionType, **later: float) -> str | None:
    found = told(seen, **later).get(kind)
    return found.reason if found else None


def test_an_audit_that_runs_and_finds_nothing_has_one_condition() -> None:
    (ready,) = decide_audit_conditions(facts([a_group()]), now=after(minutes=5))
    assert (ready.type, ready.status, ready.reason) == ("Ready", "True", "Scheduled")
    assert "CronJob/nightly-audit runs at */15 * * * * (UTC)" in ready.message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"runs": Runs()}, "Creating"),
        ({"redis_problem": OUTAGE}, "RedisUnreachable"),
        ({"job_problem": Finding(reason=Reason.NAME_TAKEN, message="")}, "NameTaken"),
        ({"plan_problem": Finding(reason=Reason.GROUP_MISSING, message="")}, "GroupMissing"),
    ],
)
def test_what_keeps_it_from_running_as_asked_is_told_by_ready(
    changes: dict[str, Any], expected: str
) -> None:
    ready = told(facts(**changes))["Ready"]
    assert (ready.status, ready.reason) == ("False", expected)


def test_a_suspended_audit_is_ready_and_says_so() -> None:
    found = told(facts(audit=an_audit(suspend=True)))
    assert found["Ready"].reason == found["Suspended"].reason == "Suspended"
    assert found["Ready"].status == "True"


def test_a_loss_is_told_with_what_to_do_until_it_is_acknowledged() -> None:
    message = told(facts([a_group(lost=3)]))["LossDetected"].message
    assert "3 of orders:events" in message
    assert "saudit -n shop nightly pelops.dev/acknowledge=LossDetected" in message
    assert "LossDetected" not in told(facts([a_group(lost=3, acknowledged=3)]))


def test_many_groups_are_told_in_a_message_of_bounded_length() -> None:
    groups = [a_group(lost=1, stream=f"s-{number}") for number in range(200)]
    assert told(facts(groups))["LossDetected"].message.count("1 of s-") == 5
    assert "and 195 more" in told(facts(groups))["LossDetected"].message


@pytest.mark.parametrize(
    ("added", "length", "is_behind"),
    [
        (10, 0, False),  # all of it is archived, however little is left
        (100, 100, False),  # much is not archived, and nobody trims
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
    found = "ArchiveBehindRetention" in told(facts([a_group(ends=ends)]))
    assert found is is_behind
    assert (margin is None) == (added < 10)


def test_an_archive_that_was_behind_when_the_run_began_stays_so_until_the_next() -> None:
    group = a_group(a_summary(retention_margin=0.1))
    assert reason(facts([group]), ConditionType.ARCHIVE_BEHIND_RETENTION)
    group = a_group(a_summary(retention_margin=0.9))
    assert not reason(facts([group]), ConditionType.ARCHIVE_BEHIND_RETENTION)


def test_entries_that_went_unseen_are_told_as_gone() -> None:
    group = a_group(ends=StreamEnds(added=100, length=50))
    message = told(facts([group]))["ArchiveBehindRetention"].message
    assert "entries of orders:events are gone that were not archived" in message


@pytest.mark.parametrize(
    ("runs", "minutes", "expected"),
    [
        ({}, 5, None),
        ({"last_start": None, "last_success": None}, 5, None),  # before the first
        ({"last_success": None, "is_active": True}, 5, None),  # goes on
        ({"last_success": None, "is_active": True}, 62, "RunFailed"),  # beyond its deadline
        ({"last_success": None}, 0.5, None),  # its end may not be told yet
        ({"last_success": None}, 5, "RunFailed"),
        ({"last_success": CLOSED - timedelta(hours=1)}, 5, "RunFailed"),  # an older one
        (  # another run goes on already
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
def test_a_run_that_did_not_do_its_work_is_told(
    runs: dict[str, Any], minutes: float, expected: str | None
) -> None:
    seen = facts([a_group()], runs=some_runs(**runs))
    assert reason(seen, ConditionType.AUDIT_FAILING, minutes=minutes) == expected


@pytest.mark.parametrize(
    ("status", "success", "expected"),
    [
        (None, None, None),  # nothing was told yet
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


def test_a_failing_verdict_is_told_in_its_own_words() -> None:
    group = a_group(a_summary(verdict=Verdict.FAILING, sentence="The stream was replaced."))
    failing = told(facts([group]))["AuditFailing"]
    assert failing.reason == "NotAccounted"
    assert "The stream was replaced." in failing.message


def test_what_cannot_be_read_is_told() -> None:
    group = a_group(record=None, problem=Finding(reason=Reason.INVALID_SPEC, message="no JSON"))
    assert reason(facts([group]), ConditionType.AUDIT_FAILING) == "SummaryUnreadable"


def test_a_run_that_ended_well_without_recording_is_told_unless_there_was_nothing() -> None:
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
        seen, decide_audit_conditions(seen, now=now), Previous(status={}, generation=1), now
    )
    outage = facts(audit=an_audit(status=status), redis_problem=OUTAGE)
    conditions = decide_audit_conditions(outage, now=now)
    assert {one.type for one in conditions} == {"Ready", "LossDetected"}
    again = render_audit_status(outage, conditions, Previous(status=status, generation=1), now)
    assert again["groups"] == status["groups"] and again["summary"] == status["summary"]


def rendered(seen: AuditFacts, before: dict[str, Any] | None = None) -> dict[str, Any]:
    now = after(minutes=5)
    previous = Previous(status=before or {}, generation=1)
    return render_audit_status(seen, decide_audit_conditions(seen, now=now), previous, now)


def test_a_status_is_one_that_the_schema_knows_and_equal_facts_give_an_equal_one() -> None:
    seen = facts([a_group(lost=2, stuck=1), a_group(stream="returns")])
    status = rendered(seen)
    assert StreamAuditStatus.model_validate(status).to_wire() == status
    assert rendered(seen, status) == status


def test_the_summary_is_of_all_groups_and_names_the_one_furthest_behind() -> None:
    groups = [a_group(a_summary(a_window(3), lost=2)), a_group(dead_lettered=4)]
    summary = rendered(facts([*groups, a_group(record=None)]))["summary"]
    assert (summary["window"], summary["verdict"], summary["groups"]) == ("0", "findings", "2/3")
    assert (summary["lost"], summary["deadLettered"], summary["produced"]) == (2, 4, 20)


def test_groups_that_need_a_look_come_first_and_at_most_a_hundred_are_told() -> None:
    groups = [a_group(stream=f"s-{number:03}") for number in range(150)]
    status = rendered(facts([*groups, a_group(lost=1, stream="z"), a_group(stuck=1, stream="y")]))
    assert [group["stream"] for group in status["groups"][:3]] == ["z", "y", "s-000"]
    assert len(status["groups"]) == 100


def test_each_window_is_told_once() -> None:
    first = rendered(facts([a_group()]))
    second = rendered(facts([a_group(a_summary(a_window(1), lost=1))]))
    happening = tell_windows(first, second)
    assert happening is not None and happening.type == "Warning"
    assert "1 lost" in happening.note
    assert tell_windows(second, second) is None
    balanced = tell_windows({}, first)
    assert balanced is not None and balanced.type == "Normal"
    assert tell_windows(first, rendered(facts())) is None


def notices(seen: AuditFacts) -> dict[str, AuditNotice]:
    status = StreamAuditStatus.model_validate(rendered(seen))
    return read_notices("nightly", ["order-processing", "mailing"], status)


def test_a_group_is_told_what_its_audit_says_of_it_alone() -> None:
    seen = facts([a_group(lost=2), a_group(resource="mailing")])
    found = notices(seen)
    assert found == {"order-processing": AuditNotice(audit="nightly", lost=2)}
    (alarm,) = decide_audit_alarms(found.values())
    assert (alarm.type, alarm.reason) == ("LossDetected", "LossDetected")
    assert "kubectl describe saudit nightly" in alarm.message


def test_a_failed_run_concerns_all_groups_and_a_failing_verdict_only_its_own() -> None:
    failed = facts([a_group()], runs=some_runs(last_success=None))
    assert {name: one.failure for name, one in notices(failed).items()} == {
        "order-processing": "RunFailed",
        "mailing": "RunFailed",
    }
    failing = facts([a_group(a_summary(verdict=Verdict.FAILING)), a_group(resource="mailing")])
    assert [(name, one.failure) for name, one in notices(failing).items()] == [
        ("order-processing", "NotAccounted")
    ]


def test_all_alarms_of_several_audits_are_told_in_order() -> None:
    found = [
        AuditNotice(audit="b", is_behind=True, is_failing=True, failure="RunFailed"),
        AuditNotice(audit="a", lost=1),
    ]
    alarms = decide_audit_alarms(found)
    assert tuple(alarm.type for alarm in alarms) == AUDIT_ALARMS
    assert alarms[-1].reason == "RunFailed"
    assert decide_audit_alarms([]) == []


def test_groups_that_are_missing_do_not_keep_the_others_from_being_audited() -> None:
    plan = plan_audit(
        an_audit(groups=["order-processing", "gone"]), {"order-processing": resource()}
    )
    assert isinstance(plan, AuditPlan)
    assert [one.resource for one in plan.groups] == ["order-processing"]
    assert plan.problem is not None and plan.problem.reason == "GroupMissing"
    nothing = plan_audit(an_audit(groups=["gone"]), {})
    assert isinstance(nothing, Finding) and "gone" in nothing.message


def test_groups_of_two_servers_need_two_audits() -> None:
    elsewhere = resource(metadata={"name": "mailing"}, redis={"url": "redis://elsewhere"})
    declared = {"order-processing": resource(), "mailing": elsewhere}
    refused = plan_audit(an_audit(groups=["order-processing", "mailing"]), declared)
    assert isinstance(refused, Finding)
    assert (refused.reason, "one StreamAudit for each Redis" in refused.message) == (
        "InvalidSpec",
        True,
    )


def test_an_entry_counts_as_stuck_as_the_audit_says_or_else_its_group() -> None:
    of_group = resource(recovery={"processing_timeout_seconds": 77})
    for asked, expected in ((None, 77), (5, 5)):
        plan = plan_audit(an_audit(stuckAfterSeconds=asked), {"order-processing": of_group})
        assert isinstance(plan, AuditPlan)
        assert plan.groups[0].stuck_after_s == expected
