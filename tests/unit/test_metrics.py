"""The metrics of a resource; a deleted resource leaves no series behind."""

from dataclasses import replace
from datetime import timedelta
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from pelops.controller.audit.audit_status import measure_audit
from pelops.controller.group.group_status import measure_resource
from pelops.controller.recovery.findings import Findings, OwnerTally
from pelops.domain.condition import Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState, ScanReport
from pelops.domain.recovery import Trigger
from pelops.domain.stream_observation import GroupObservation, RetryObservation
from pelops.metrics import (
    BACKLOG,
    CONDITIONS,
    GROUP_ACTS,
    GROUP_FACTS,
    GROUP_LIMITS,
    SCALING_FACTS,
    STATUS_WRITES_LIMITED,
    forget_audit,
    forget_group,
    forget_scaling,
)
from pelops.policy.audit.audit_conditions import decide_audit_conditions
from pelops.policy.audit.audit_facts import AuditFacts
from pelops.policy.scaling.sharing import Role, Sharing
from pelops.policy.status.reasons import Reason
from pelops.worker.metrics import build_metrics
from tests.audit_facts import a_group, after, an_audit, facts
from tests.builders import NOW, group, resource, stream
from tests.builders import facts as group_facts

ROOT = Path(__file__).parents[2]
HOUR = timedelta(hours=1)


def series(name: str) -> int:
    """How many series speak of the resource."""
    labels = {"namespace": "metrics-test", "name": name}
    return sum(
        sample.labels.items() >= labels.items()
        for metric in REGISTRY.collect()
        for sample in metric.samples
    )


def report(name: str) -> None:
    for gauge in (*GROUP_FACTS.values(), *GROUP_LIMITS.values()):
        gauge.set(1, "metrics-test", name)
    report_scaling(name)
    STATUS_WRITES_LIMITED.add("metrics-test", name)
    for act in GROUP_ACTS:
        for value in ("one", "other"):
            act.add("metrics-test", name, *[value] * (len(act.labelnames) - 2))


def report_scaling(name: str) -> None:
    for gauge in SCALING_FACTS.values():
        gauge.labels("metrics-test", name).set(1)
    for part in ("undelivered", "pending"):
        BACKLOG.labels("metrics-test", name, part).set(1)


def test_a_resource_that_others_scale_has_no_scaling_series() -> None:
    report("scaled elsewhere")
    reported = series("scaled elsewhere")
    forget_scaling("metrics-test", "scaled elsewhere")
    assert series("scaled elsewhere") == reported - len(SCALING_FACTS) - 2
    forget_group("metrics-test", "scaled elsewhere")


def test_a_forgotten_resource_is_in_no_series_and_others_stay() -> None:
    report("gone")
    report("stays")
    reported = series("stays")
    assert reported >= len(GROUP_FACTS) + len(GROUP_LIMITS) + 1 + len(GROUP_ACTS)
    forget_group("metrics-test", "gone")
    assert (series("gone"), series("stays")) == (0, reported)
    forget_group("metrics-test", "gone")
    forget_group("metrics-test", "never seen")
    forget_group("metrics-test", "stays")


def sampled(metric: str, name: str) -> dict[tuple[str, ...], float]:
    """The series of a resource by their other labels."""
    return {
        tuple(value for key, value in sample.labels.items() if key not in {"namespace", "name"}): (
            sample.value
        )
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == metric and sample.labels.get("name") == name
    }


def measured(name: str, **changes: Any) -> None:
    """Have the gauges of a resource set from these facts."""
    named = {"name": name, "namespace": "metrics-test"}
    spec = changes.pop("spec", {})
    measure_resource(
        group_facts(resource=resource(metadata=named, **spec), **changes), is_ready=True
    )


def test_counters_of_recovery_start_at_0() -> None:
    measured("begun")
    assert sampled("pelops_dead_lettered_total", "begun") == {("MaxRetriesExceeded",): 0}
    assert sampled("pelops_payload_gone_total", "begun") == {(): 0}
    triggers = {(trigger.value,): 0.0 for trigger in Trigger}
    assert sampled("pelops_requeued_total", "begun") == triggers
    assert sampled("pelops_released_total", "begun") == {}
    findings = Findings(trigger=Trigger.POD_DEATH, by_owner={"w": OwnerTally(requeued=2, dead=1)})
    findings.measure("metrics-test", "begun")
    measured("begun")  # counts nothing away
    assert sampled("pelops_dead_lettered_total", "begun") == {("MaxRetriesExceeded",): 1}
    assert sampled("pelops_requeued_total", "begun")["pod-death",] == 2
    forget_group("metrics-test", "begun")
    assert series("begun") == 0


def test_the_recovery_strategy_decides_which_counters_are_exported() -> None:
    measured("releases", spec={"recovery": {"strategy": "Release"}})
    assert len(sampled("pelops_offered_total", "releases")) == len(Trigger)
    assert len(sampled("pelops_released_total", "releases")) == len(Trigger)
    measured("off", spec={"recovery": {"strategy": "Disabled"}})
    assert sampled("pelops_dead_lettered_total", "off") == {}
    for name in ("releases", "off"):
        forget_group("metrics-test", name)


def test_ages_cover_both_streams_and_use_the_clock_of_redis() -> None:
    now_ms = int(NOW.timestamp() * 1000)
    first, second = EntryId(now_ms - 90_000), EntryId(now_ms - 60_000)
    retry = RetryObservation(exists=True, lag=1, first_undelivered=first, lowest_idle=HOUR)
    seen = stream(
        group=group(lag=3, first_undelivered=second, lowest_idle=HOUR / 2),
        retry=retry,
        dead_letters=2,
        first_dead_letter=EntryId(now_ms - 30_000),
        state=GroupState(report=ScanReport(stuck=4), scanned_at=NOW),
    )
    measured("ages", stream=seen)
    assert sampled("pelops_oldest_undelivered_seconds", "ages") == {(): pytest.approx(90)}
    assert sampled("pelops_oldest_pending_idle_seconds", "ages") == {(): 3600}
    assert sampled("pelops_oldest_dead_letter_seconds", "ages") == {(): pytest.approx(30)}
    assert sampled("pelops_stuck_entries", "ages") == {(): 4}
    assert sampled("pelops_last_scan_timestamp_seconds", "ages") == {(): NOW.timestamp()}
    # A look of scaling does not read dead letters.
    measured("ages", stream=replace(seen, first_dead_letter=None))
    assert sampled("pelops_oldest_dead_letter_seconds", "ages") == {(): pytest.approx(30)}
    measured("ages", stream=stream())
    assert sampled("pelops_oldest_dead_letter_seconds", "ages") == {(): 0}
    assert sampled("pelops_oldest_undelivered_seconds", "ages") == {(): 0}
    assert isnan(sampled("pelops_stuck_entries", "ages")[()])
    measured("ages", stream=None)
    assert isnan(sampled("pelops_last_scan_timestamp_seconds", "ages")[()])
    forget_group("metrics-test", "ages")


@pytest.mark.parametrize(
    "undelivered",
    [group(lag=None), group(lag=2), group(lag=1, first_undelivered=EntryId(5))],
    ids=["lag is unknown", "it may not be read", "its ID is no time"],
)
def test_an_age_that_is_not_known_is_nan(undelivered: GroupObservation) -> None:
    measured("unknown", stream=stream(group=undelivered))
    assert isnan(sampled("pelops_oldest_undelivered_seconds", "unknown")[()])
    forget_group("metrics-test", "unknown")


LIMITS = {
    "pelops_created_timestamp_seconds": NOW.timestamp(),
    "pelops_scan_interval_seconds": 45,
    "pelops_processing_timeout_seconds": 300,
    "pelops_dead_letter_retention_seconds": 1_209_600,
    "pelops_min_replicas": 1,
    "pelops_max_replicas": 20,
}
LEADS = Sharing(role=Role.LEADS)
AUTO = {"scaling": {"minReplicas": 1, "maxReplicas": 20}}
EVERY_45_S = {"scanPeriodSeconds": 45}


def limits(
    name: str, *, recovery: dict[str, Any] | None = None, **changes: Any
) -> dict[str, float]:
    """The limits that are exported of a resource."""
    spec = {**AUTO, "recovery": {**EVERY_45_S, **(recovery or {})}, **changes.pop("spec", {})}
    measured(name, sharing=changes.pop("sharing", LEADS), spec=spec, **changes)
    return {metric: value for metric in LIMITS for value in sampled(metric, name).values()}


def without(*names: str) -> dict[str, float]:
    return {name: value for name, value in LIMITS.items() if name not in names}


def test_what_the_spec_sets_is_exported_for_alerts_to_compare_with() -> None:
    assert limits("limits") == LIMITS
    forget_group("metrics-test", "limits")
    assert series("limits") == 0


def test_a_limit_that_has_no_effect_is_not_exported_and_comes_back() -> None:
    bounds = ("pelops_min_replicas", "pelops_max_replicas")
    acts = ("pelops_scan_interval_seconds", "pelops_dead_letter_retention_seconds")
    conflict = Finding(reason=Reason.CONFLICT, message="Another resource manages the group.")
    assert limits("inert", spec={"suspend": True}) == without(*bounds, *acts)
    assert limits("inert", recovery={"dryRun": True}) == without(*bounds, *acts)
    assert limits("inert", redis_problem=conflict) == without(*acts)
    assert limits("inert", sharing=Sharing(role=Role.CONTENDS)) == without(*bounds)
    assert limits("inert", spec={"scaling": {"mode": "Manual"}}) == without(*bounds)
    assert limits("inert", spec={"scaling": None}, sharing=None) == without(*bounds)
    assert limits("inert", stream=None) == LIMITS  # Redis is unreachable
    forget_group("metrics-test", "inert")


def test_with_locks_the_exported_processing_timeout_is_the_grace_period() -> None:
    locks = {"keyTemplate": "lock:{$tag}:$id", "graceSeconds": 20}
    exported = limits("locks", recovery={"locks": locks})
    assert exported["pelops_processing_timeout_seconds"] == 20
    forget_group("metrics-test", "locks")


def test_what_redis_counted_is_followed() -> None:
    seen = stream(entries_added=9, group=group(entries_read=7))
    measured("totals", stream=seen)
    assert sampled("pelops_entries_added_total", "totals") == {(): 9}
    measured("totals", stream=replace(seen, entries_added=11, group=group(entries_read=None)))
    assert sampled("pelops_entries_added_total", "totals") == {(): 11}
    assert sampled("pelops_entries_read_total", "totals") == {(): 7}
    forget_group("metrics-test", "totals")
    assert series("totals") == 0


def test_conditions_are_replaced_together_and_go_with_their_resource() -> None:
    lost = ("DataLoss", "True", "DataLoss")
    CONDITIONS.show("K", "metrics-test", "c", [("Ready", "False", "Creating"), lost])
    assert sampled("pelops_condition", "c") == {
        ("K", "Ready", "False", "Creating"): 1,
        ("K", *lost): 1,
    }
    CONDITIONS.show("K", "metrics-test", "c", [("Ready", "True", "Ready")])
    assert sampled("pelops_condition", "c") == {("K", "Ready", "True", "Ready"): 1}
    CONDITIONS.forget("K", "metrics-test", "c")
    assert sampled("pelops_condition", "c") == {}


def test_every_metric_is_in_the_documentation() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    build_metrics("orders", "billing")  # those of workers
    ours = {m.name for m in REGISTRY.collect() if m.name.startswith("pelops_")}
    assert [name for name in sorted(ours) if name not in pages] == []


def test_every_metric_says_what_it_is() -> None:
    ours = [metric for metric in REGISTRY.collect() if metric.name.startswith("pelops_")]
    assert len(ours) > len(GROUP_FACTS)
    assert all(metric.documentation.endswith(".") for metric in ours)


def reported_audit(seen: AuditFacts) -> dict[tuple[str, ...], float]:
    """The gauges of the audit `metrics-test/audit`, by name and the labels of their series."""
    measure_audit(seen, decide_audit_conditions(seen, now=after(minutes=5)))
    return {
        (sample.name, *(sample.labels.get(name, "") for name in ("stream", "status", "type"))): (
            sample.value
        )
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.labels.get("name") == "audit"
    }


def test_an_audit_exports_series_of_its_current_groups_only() -> None:
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
