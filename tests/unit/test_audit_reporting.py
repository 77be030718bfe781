"""What an audit's status holds, what its groups are reported, and what a run is planned to look
at."""

from typing import Any

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.controller.audit.audit_status import render_audit_status, report_windows
from pelops.controller.runtime.kind import PreviousStatus
from pelops.domain.condition import Finding
from pelops.domain.records.audit import AuditVerdict
from pelops.policy.audit.audit_conditions import decide_audit_conditions
from pelops.policy.audit.audit_facts import AuditFacts
from pelops.policy.audit.notices import AuditNotice, decide_audit_alarms, read_notices
from pelops.policy.audit.plan import AuditPlan, plan_audit
from pelops.policy.status.reasons import AUDIT_ALARMS
from tests.audit_facts import a_group, after, an_audit, facts, some_runs
from tests.audits import a_summary, a_window
from tests.builders import resource


def rendered(seen: AuditFacts, before: dict[str, Any] | None = None) -> dict[str, Any]:
    now = after(minutes=5)
    previous = PreviousStatus(status=before or {}, generation=1)
    return render_audit_status(seen, decide_audit_conditions(seen, now=now), previous, now)


def test_a_status_matches_the_schema_and_is_stable_for_equal_facts() -> None:
    seen = facts([a_group(lost=2, stuck=1), a_group(stream="returns")])
    status = rendered(seen)
    assert StreamAuditStatus.model_validate(status).to_wire() == status
    assert rendered(seen, status) == status


def test_the_summary_is_of_all_groups_and_names_the_one_furthest_behind() -> None:
    groups = [a_group(a_summary(a_window(3), lost=2)), a_group(dead_lettered=4)]
    summary = rendered(facts([*groups, a_group(record=None)]))["summary"]
    assert (summary["window"], summary["verdict"], summary["groups"]) == (0, "Findings", "2/3")
    assert (summary["lost"], summary["deadLettered"], summary["produced"]) == (2, 4, 20)


def test_a_status_reports_its_certainty_and_the_number_of_indeterminate_entries() -> None:
    unknown = a_group(a_summary(indeterminate=3, verdict=AuditVerdict.UNKNOWN))
    status = rendered(facts([a_group(), unknown]))
    assert (status["summary"]["verdict"], status["summary"]["certainty"]) == ("Unknown", "Unknown")
    reported = {group["certainty"]: group.get("indeterminate") for group in status["groups"]}
    assert reported == {"Unknown": 3, "Inferred": None}
    happening = report_windows({}, status)
    assert happening is not None and happening.type == "Warning"


def test_groups_with_findings_come_first_and_at_most_100_are_reported() -> None:
    groups = [a_group(stream=f"s-{number:03}") for number in range(150)]
    status = rendered(facts([*groups, a_group(lost=1, stream="z"), a_group(stuck=1, stream="y")]))
    assert [group["stream"] for group in status["groups"][:3]] == ["z", "y", "s-000"]
    assert len(status["groups"]) == 100


def test_each_window_is_reported_once() -> None:
    first = rendered(facts([a_group()]))
    second = rendered(facts([a_group(a_summary(a_window(1), lost=1))]))
    happening = report_windows(first, second)
    assert happening is not None and happening.type == "Warning"
    assert "1 lost" in happening.note
    assert report_windows(second, second) is None
    balanced = report_windows({}, first)
    assert balanced is not None and balanced.type == "Normal"
    assert "balanced (inferred)" in balanced.note
    assert report_windows(first, rendered(facts())) is None


def notices(seen: AuditFacts) -> dict[str, AuditNotice]:
    status = StreamAuditStatus.model_validate(rendered(seen))
    return read_notices("nightly", ["order-processing", "mailing"], status)


def test_a_group_gets_only_the_notices_that_concern_it() -> None:
    seen = facts([a_group(lost=2), a_group(resource="mailing")])
    found = notices(seen)
    assert found == {"order-processing": AuditNotice(audit="nightly", lost=2)}
    (alarm,) = decide_audit_alarms(found.values())
    assert (alarm.type, alarm.reason) == ("LossDetected", "LossDetected")
    assert "kubectl describe saudit nightly" in alarm.message


def test_a_failed_run_concerns_all_groups_a_failing_verdict_only_one() -> None:
    failed = facts([a_group()], runs=some_runs(last_success=None))
    assert {name: one.failure for name, one in notices(failed).items()} == {
        "order-processing": "RunFailed",
        "mailing": "RunFailed",
    }
    failing = facts([a_group(a_summary(verdict=AuditVerdict.FAILING)), a_group(resource="mailing")])
    assert [(name, one.failure) for name, one in notices(failing).items()] == [
        ("order-processing", "AuditInconclusive")
    ]


def test_all_alarms_of_several_audits_are_reported_in_order() -> None:
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


def test_stuck_after_defaults_to_the_processing_timeout_of_the_group() -> None:
    of_group = resource(recovery={"processing_timeout_seconds": 77})
    for asked, expected in ((None, 77), (5, 5)):
        plan = plan_audit(an_audit(stuckAfterSeconds=asked), {"order-processing": of_group})
        assert isinstance(plan, AuditPlan)
        assert plan.groups[0].stuck_after_s == expected
