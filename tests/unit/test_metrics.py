"""A resource that is gone leaves no series behind."""

from prometheus_client import REGISTRY

from pelops.controller.audit.audit_status import measure_audit
from pelops.metrics import (
    BACKLOG,
    GROUP_ACTS,
    GROUP_FACTS,
    SCALING_FACTS,
    STATUS_WRITES_LIMITED,
    forget_audit,
    forget_group,
    forget_scaling,
)
from pelops.policy.audit.audit_conditions import decide_audit_conditions
from pelops.policy.audit.audit_facts import AuditFacts
from tests.audit_facts import a_group, after, an_audit, facts


def series(name: str) -> int:
    """How many series speak of the resource."""
    labels = {"namespace": "metrics-test", "name": name}
    return sum(
        sample.labels.items() >= labels.items()
        for metric in REGISTRY.collect()
        for sample in metric.samples
    )


def report(name: str) -> None:
    for gauge in GROUP_FACTS.values():
        gauge.labels("metrics-test", name).set(1)
    report_scaling(name)
    STATUS_WRITES_LIMITED.labels("metrics-test", name).inc()
    for act in GROUP_ACTS:
        for value in ("one", "other"):
            more = [value] * (len(act._labelnames) - 2)
            act.labels("metrics-test", name, *more).inc()


def report_scaling(name: str) -> None:
    for gauge in SCALING_FACTS.values():
        gauge.labels("metrics-test", name).set(1)
    for part in ("undelivered", "held"):
        BACKLOG.labels("metrics-test", name, part).set(1)


def test_a_resource_that_others_scale_is_only_in_the_series_that_all_replicas_report() -> None:
    report("scaled elsewhere")
    reported = series("scaled elsewhere")
    forget_scaling("metrics-test", "scaled elsewhere")
    assert series("scaled elsewhere") == reported - len(SCALING_FACTS) - 2
    forget_group("metrics-test", "scaled elsewhere")


def test_a_forgotten_resource_is_in_no_series_and_others_stay() -> None:
    report("gone")
    report("stays")
    reported = series("stays")
    assert reported >= len(GROUP_FACTS) + 1 + len(GROUP_ACTS)
    forget_group("metrics-test", "gone")
    assert (series("gone"), series("stays")) == (0, reported)
    forget_group("metrics-test", "gone")
    forget_group("metrics-test", "never seen")
    forget_group("metrics-test", "stays")


def test_every_metric_says_what_it_is() -> None:
    ours = [metric for metric in REGISTRY.collect() if metric.name.startswith("pelops_")]
    assert len(ours) > len(GROUP_FACTS)
    assert all(metric.documentation.endswith(".") for metric in ours)


def reported_audit(seen: AuditFacts) -> dict[tuple[str, ...], float]:
    """The gauges of the audit `metrics-test/audit`, by name and what tells their series apart."""
    measure_audit(seen, decide_audit_conditions(seen, now=after(minutes=5)))
    return {
        (sample.name, *(sample.labels.get(name, "") for name in ("stream", "status", "type"))): (
            sample.value
        )
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.labels.get("name") == "audit"
    }


def test_an_audit_is_reported_group_by_group_and_groups_that_leave_it_are_reported_no_more() -> (
    None
):
    audit = an_audit(metadata={"name": "audit", "namespace": "metrics-test"})
    reported = reported_audit(facts([a_group(lost=2, stuck=1), a_group(stream="b")], audit=audit))
    assert reported["pelops_audit_entries", "orders:events", "lost", ""] == 2
    assert reported["pelops_audit_entries", "orders:events", "acknowledged_inferred", ""] == 7
    assert reported["pelops_audit_lost_entries", "orders:events", "", ""] == 2
    assert reported["pelops_audit_retention_margin_ratio", "b", "", ""] == 1
    assert reported["pelops_audit_alarm", "", "", "LossDetected"] == 1
    assert reported["pelops_audit_alarm", "", "", "AuditFailing"] == 0
    reported = reported_audit(facts([a_group(stream="b")], audit=audit))
    assert {key[1] for key in reported} == {"b", ""}
    assert reported["pelops_audit_alarm", "", "", "LossDetected"] == 0
    forget_audit("metrics-test", "audit")
    assert series("audit") == 0
