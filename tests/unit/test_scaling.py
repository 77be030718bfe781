"""How many workers there are to be, of which backlog, and the words that say why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from pelops.domain.condition import Finding
from pelops.domain.records.state import GroupState, ScanReport, Totals
from pelops.domain.stream_observation import RetryObservation, StreamObservation
from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog, measure_backlog
from pelops.policy.scaling.decision import (
    ScalingDecision,
    decide_unchanged,
    is_automatic,
    report_failure,
)
from pelops.policy.scaling.meter import HandlingTime, Meter
from pelops.policy.status.reasons import Reason
from tests.builders import NOW, empty_redis, group, pod, resource, stream, workload
from tests.scaling_cases import (
    SECOND,
    decide,
    demand_of,
    handling,
    knowing,
    observe,
    owing,
    wanting,
)

FAST = {"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 50, "periodSeconds": 15}]}}}


class Decided(NamedTuple):
    decision: str  # the replicas, the reason, and the message
    backlog: Backlog | None
    given: dict[str, Any]  # what `decide` is given beside it


def decided(decision: str, backlog: Backlog | None, **given: Any) -> Decided:
    return Decided(decision, backlog, given)


DECISIONS: dict[str, Decided] = {
    "the parts of the backlog, and what they ask for": decided(
        "10 Limited: Backlog 1,240: 1,000 undelivered + 240 pending with live workers; 13 "
        "workers wanted by backlog, 10 by drain time; limited to 10 by maxReplicas",
        owing(undelivered=1_000, held=240),
        current=8,
        memory=wanting(8, meter=knowing(arrivals=1, per_replica=2)),
        scaling={"drainWithinSeconds": 69, **FAST},
    ),
    "the first entry brings a worker": decided(
        "1 Scaled: Backlog 1: 1 undelivered + 0 pending with live workers; 1 worker wanted by "
        "backlog",
        owing(undelivered=1),
        current=0,
    ),
    "the first worker comes whatever behavior says": decided(
        "1 Limited: Backlog 5,000: 5,000 undelivered + 0 pending with live workers; 50 workers "
        "wanted by backlog",
        owing(undelivered=5_000),
        current=0,
        scaling={"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}},
    ),
    "behavior limits growth": decided(
        "11 Limited: Backlog 1,900: 1,900 undelivered + 0 pending with live workers; 19 workers "
        "wanted by backlog; held at 11 by the policies of behavior.scaleUp",
        owing(undelivered=1_900),
        current=1,
        scaling={"maxReplicas": 50},
    ),
    "what waits for recovery is no reason for workers": decided(
        "1 Scaled: Backlog 100: 100 undelivered + 0 pending with live workers; 3,000 more wait "
        "for recovery; 1 worker wanted by backlog",
        owing(undelivered=100, waiting=3_000),
        current=1,
    ),
    "prefetched entries want no further worker": decided(
        "3 Scaled: Backlog 5,001: 1 undelivered + 5,000 pending with live workers; 4 workers "
        "wanted by backlog",
        owing(undelivered=1, held=5_000),
        current=3,
    ),
    "entries that all have a worker ask for one": decided(
        "1 Scaled: Backlog 5,000: 0 undelivered + 5,000 pending with live workers; 1 worker "
        "wanted by backlog",
        owing(held=5_000),
        current=3,
    ),
    "a lull ends no worker": decided(
        "7 Scaled: No backlog; held at 7 by the 60 s stabilization window of behavior.scaleDown",
        owing(),
        current=7,
        memory=wanting(7, ago_s=10),
    ),
    "right after a start nothing shrinks": decided(
        "7 Scaled: No backlog; held at 7 by the 60 s stabilization window of behavior.scaleDown",
        owing(),
        current=7,
        memory=Autoscaler(),
    ),
    "the last worker stays for the cool-down": decided(
        "1 Scaled: No backlog; held at 1 by the cool-down of 60 s",
        owing(),
        current=4,
        memory=wanting(0, empty_since=SECOND - 59),
    ),
    "and goes when it is over": decided(
        "0 Idle: No backlog", owing(), current=1, memory=wanting(0, empty_since=SECOND - 60)
    ),
    "an idle group at zero stays there": decided(
        "0 Idle: No backlog", owing(), current=0, memory=Autoscaler()
    ),
    "minReplicas stay": decided(
        "2 Scaled: No backlog; raised to 2 by minReplicas",
        owing(),
        current=2,
        memory=wanting(0, empty_since=SECOND - 99),
        scaling={"minReplicas": 2},
    ),
    "a fleet that keeps up has no backlog and stays": decided(
        "3 Scaled: No backlog; 0 workers wanted by backlog, 3 by arrivals",
        owing(),
        current=3,
        memory=wanting(3, meter=knowing(arrivals=120, per_replica=50)),
    ),
    "arrivals that outrun the fleet want more before a backlog is there": decided(
        "8 Scaled: Backlog 10: 10 undelivered + 0 pending with live workers; 1 worker wanted by "
        "backlog, 8 by arrivals",
        owing(undelivered=10),
        current=3,
        memory=wanting(3, meter=knowing(arrivals=300, per_replica=50)),
    ),
    "a rate that was never tested adds no worker": decided(
        "3 Scaled: No backlog; 0 workers wanted by backlog, 3 by arrivals",
        owing(),
        current=3,
        memory=wanting(3, meter=knowing(arrivals=300, per_replica=50, is_proven=False)),
    ),
    "an unknown number removes no worker": decided(
        "12 LagUnknown: Backlog at least 1,000: at least 1,000 undelivered + 0 pending with live "
        "workers; 10 workers wanted by backlog; Redis does not know the number of undelivered "
        "entries, so no worker is removed",
        owing(undelivered=1_000, is_exact=False),
        current=12,
        scaling={"maxReplicas": 20},
    ),
    "an unknown number is no zero": decided(
        "1 LagUnknown: Backlog at least 0: at least 0 undelivered + 0 pending with live workers; "
        "0 workers wanted by backlog; Redis does not know the number of undelivered entries, so "
        "no worker is removed",
        owing(is_exact=False),
        current=1,
        memory=wanting(0, empty_since=SECOND - 999),
    ),
    "an unknown number wakes the first worker": decided(
        "1 LagUnknown: Backlog at least 0: at least 0 undelivered + 0 pending with live workers; "
        "0 workers wanted by backlog; Redis does not know the number of undelivered entries, so "
        "no worker is removed",
        owing(is_exact=False),
        current=0,
    ),
    "Redis cannot be seen": decided(
        "4 BacklogUnknown: Redis cannot be observed, so the backlog is unknown: the replicas are "
        "held at 4",
        None,
        current=4,
    ),
    "the group is missing": decided(
        "4 BacklogUnknown: The group does not exist, so the backlog is unknown: the replicas are "
        "held at 4",
        owing(exists=False, is_exact=False, added=None),
        current=4,
    ),
    "what is held stays within the bounds": decided(
        "10 BacklogUnknown: Redis cannot be observed, so the backlog is unknown: the replicas "
        "are held at 10",
        None,
        current=12,
    ),
    "the target is missing": decided(
        "None BacklogUnknown: Deployment shop/order-workers does not exist, so Pelops cannot "
        "scale it: create it",
        owing(undelivered=5),
        current=0,
        exists=False,
    ),
    "a quota refuses pods": decided(
        "3 ScalingIneffective: Backlog 900: 900 undelivered + 0 pending with live workers; 9 "
        "workers wanted by backlog; limited to 3, because pods cannot be created: exceeded "
        "quota: pods=3",
        owing(undelivered=900),
        current=3,
        ready=3,
        failure="exceeded quota: pods=3",
    ),
    "the first worker is tried whatever is wrong": decided(
        "1 ScalingIneffective: Backlog 900: 900 undelivered + 0 pending with live workers; 9 "
        "workers wanted by backlog; limited to 1, because pods cannot be created: exceeded "
        "quota: pods=3",
        owing(undelivered=900),
        current=0,
        failure="exceeded quota: pods=3",
    ),
    "every worker crashes": decided(
        "1 ScalingIneffective: Backlog 900: 900 undelivered + 0 pending with live workers; 9 "
        "workers wanted by backlog; limited to 1, because all workers crash: see the condition "
        "WorkloadReady",
        owing(undelivered=900),
        current=1,
        ready=0,
        pods=(pod(is_ready=False, waiting_reason="CrashLoopBackOff"),),
    ),
    "entries end as dead letters": decided(
        "2 ScalingIneffective: Backlog 900: 900 undelivered + 0 pending with live workers; 9 "
        "workers wanted by backlog; limited to 2, because 75% of the processed entries became "
        "dead letters: see the last fields of each dead letter for the reason",
        owing(undelivered=900),
        current=2,
        memory=wanting(
            2, meter=replace(knowing(arrivals=0, per_replica=1), finished=40.0, dead_lettered=30.0)
        ),
    ),
}


@pytest.mark.parametrize("case", DECISIONS.values(), ids=DECISIONS)
def test_the_number_and_its_words(case: Decided) -> None:
    found = decide(case.backlog, **case.given)
    assert f"{found.replicas} {found.reason}: {found.message}" == case.decision


# Each is (how long a worker holds an entry, what `decide` is given beside it, whether only those
# are kept that are still at work).
KEPT: dict[str, tuple[float | None, dict[str, Any], bool]] = {
    "how long they take is not known": (None, {}, False),
    "they take long": (10.1, {}, False),
    "they finish what they hold while they are told to end": (9.9, {}, True),
    "their pods are given little time to end": (9.9, {"pods": (pod(grace_period_s=20.0),)}, False),
    "their pods are given much time to end": (10.1, {"pods": (pod(grace_period_s=900.0),)}, False),
}


@pytest.mark.parametrize("case", KEPT.values(), ids=KEPT)
def test_workers_that_hold_entries_are_kept_when(
    case: tuple[float | None, dict[str, Any], bool],
) -> None:
    mean_s, given, only_at_work = case
    known = HandlingTime() if mean_s is None else handling(mean_s)
    memory = wanting(0, meter=Meter(handling=known))
    found = decide(owing(held=5), current=8, memory=memory, **given)
    assert (found.replicas, found.keep_at_most) == (1, 5)
    assert found.only_at_work is only_at_work


def test_without_recovery_scale_down_keeps_workers_that_hold_entries() -> None:
    spec = resource(scaling={"mode": "Auto"}, recovery={"strategy": "Disabled"}).spec
    memory = wanting(0, meter=Meter(handling=handling(0.1)))
    seen = workload(wished=8, ready=8)
    decision = observe(memory, spec, seen, owing(held=5), now=SECOND)[0]
    assert (decision.replicas, decision.only_at_work) == (1, False)


def test_one_more_entry_asks_for_no_fewer_workers_when_none_is_ready() -> None:
    idle, more = (demand_of(owing(undelivered=n, held=500), ready=0) for n in (0, 1))
    assert 1 <= idle.by_backlog <= more.by_backlog


def test_pods_that_are_about_to_end_are_no_reason_to_grow() -> None:
    found = decide(owing(undelivered=800), current=5, ready=8, failure="quota")
    assert (found.replicas, found.reason) == (5, Reason.SCALING_INEFFECTIVE)


def test_an_autoscaler_on_the_target_wins() -> None:
    found = decide(owing(undelivered=500), current=1, autoscaler="orders")
    assert (found.replicas, found.reason) == (None, Reason.SCALED_BY_AUTOSCALER)


def test_without_scaling_the_backlog_decides_nothing() -> None:
    seen = workload()
    decision, memory = observe(
        wanting(3), resource().spec, seen, owing(undelivered=500), now=SECOND
    )
    assert (decision.replicas, decision.reason) == (None, Reason.SCALING_DISABLED)
    assert memory == Autoscaler()


def test_who_decides_is_true_and_what_is_wrong_is_not() -> None:
    active = {
        reason
        for reason in Reason
        if ScalingDecision(replicas=1, reason=reason, message="").is_active
    }
    assert active == {
        Reason.MANUAL,
        Reason.SCALED_BY_AUTOSCALER,
        Reason.SCALED,
        Reason.IDLE,
        Reason.LIMITED,
        Reason.LAG_UNKNOWN,
        Reason.FOLLOWING,
    }


# --- When the replicas are left alone, though the backlog should decide them


AUTO = resource(scaling={"mode": "Auto"}).spec
CONFLICT = Finding(reason=Reason.CONFLICT, message="shop/older acts")
UNREACHABLE = Finding(reason=Reason.REDIS_UNREACHABLE, message="no answer")
TAKEN = Finding(reason=Reason.NAME_TAKEN, message="rename it")


@pytest.mark.parametrize(
    ("redis", "workload", "reason"),
    [
        (CONFLICT, None, Reason.CONFLICT),
        (None, CONFLICT, Reason.CONFLICT),
        (None, TAKEN, Reason.NAME_TAKEN),
        (UNREACHABLE, TAKEN, Reason.NAME_TAKEN),
    ],
)
def test_what_is_not_the_resources_own_is_left_alone_and_reported(
    redis: Finding | None, workload: Finding | None, reason: Reason
) -> None:
    decision = decide_unchanged(AUTO, redis_problem=redis, workload_problem=workload)
    assert decision is not None
    assert (decision.replicas, decision.reason, decision.is_active) == (None, reason, False)
    assert decision.message in {CONFLICT.message, TAKEN.message}


@pytest.mark.parametrize("redis", [None, UNREACHABLE])
def test_a_redis_that_does_not_answer_is_for_the_decision_to_judge(redis: Finding | None) -> None:
    assert decide_unchanged(AUTO, redis_problem=redis, workload_problem=None) is None


def test_a_suspended_resource_is_left_alone() -> None:
    spec = resource(scaling={"mode": "Auto"}, suspend=True).spec
    decision = decide_unchanged(spec, redis_problem=None, workload_problem=None)
    assert decision is not None
    assert (decision.replicas, decision.reason) == (None, Reason.SUSPENDED)


def test_a_failed_write_reports_the_wanted_replicas_and_the_cause() -> None:
    wanted = ScalingDecision(replicas=3, reason=Reason.SCALED, message="300 owed")
    failed = report_failure(wanted, Finding(reason=Reason.FORBIDDEN, message="Forbidden by a rule"))
    assert (failed.replicas, failed.reason, failed.is_active) == (3, Reason.FORBIDDEN, False)
    assert failed.message == "Forbidden by a rule. 300 owed"


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [({}, True), ({"mode": "Auto"}, True), ({"mode": "Manual"}, False), (None, False)],
)
def test_scaling_that_says_no_mode_is_automatic(
    scaling: dict[str, str] | None, expected: bool
) -> None:
    assert is_automatic(resource(scaling=scaling).spec) is expected


# --- The backlog of a group, judged from a look at its streams

REPORTED_WAITING = GroupState(report=ScanReport(waiting=30))
REQUEUED = stream(entries_added=110, state=GroupState(totals=Totals(requeued=10)))
TWO_HOLD = stream(group=group(pending=5, holding=2))


def beside(of: StreamObservation, **retry: Any) -> StreamObservation:
    """The stream with this retry stream."""
    return replace(of, retry=RetryObservation(exists=True, **retry))


# What is seen, and what the backlog says of it.
BACKLOGS: dict[str, tuple[StreamObservation, dict[str, Any]]] = {
    "that of both streams": (
        beside(stream(group=group(pending=5, lag=7), dead_letters=4), pending=2, lag=3),
        {
            **{"undelivered": 10, "held": 7, "deliverable": 17, "is_empty": False},
            **{"at": NOW, "is_exact": True, "dead_letters": 4},
        },
    ),
    "at the end of its stream": (stream(), {"is_empty": True}),
    "an unknown lag is at least what was counted": (
        stream(group=group(lag=None, at_least=64)),
        {"undelivered": 64, "is_exact": False},
    ),
    "an unknown lag of nothing counted is no zero": (
        stream(group=group(lag=None)),
        {"deliverable": 0, "is_empty": False},
    ),
    "an unknown lag of the retry stream is no zero": (
        beside(stream(), lag=None),
        {"is_empty": False},
    ),
    "a missing group is no zero": (empty_redis(), {"exists": False, "is_empty": False}),
    "what waits for recovery is no work": (
        stream(group=group(pending=40), state=REPORTED_WAITING),
        {"held": 10, "waiting": 30},
    ),
    "an old report hides no more than is pending": (
        stream(group=group(pending=4), state=REPORTED_WAITING),
        {"held": 0, "waiting": 4},
    ),
    "a copy of a stuck entry is no arrival": (REQUEUED, {"added": 100}),
    "a copy in the retry stream is no arrival": (beside(REQUEUED), {"added": 110}),
    "workers that hold entries": (TWO_HOLD, {"holding": 2}),
    "workers of both streams that hold entries": (
        beside(TWO_HOLD, pending=1, holding=1),
        {"holding": 3},
    ),
    "an unknown number of workers that hold entries": (
        stream(group=group(pending=5, holding=None)),
        {"holding": None},
    ),
    "an unknown number in one of two streams": (
        beside(TWO_HOLD, pending=1, holding=None),
        {"holding": None},
    ),
}


@pytest.mark.parametrize("case", BACKLOGS.values(), ids=BACKLOGS)
def test_the_backlog_is_measured_in_both_streams(
    case: tuple[StreamObservation, dict[str, Any]],
) -> None:
    seen, expected = case
    backlog = measure_backlog(seen, recovers=True)
    assert {name: getattr(backlog, name) for name in expected} == expected


def test_without_recovery_all_that_is_pending_may_be_in_work() -> None:
    seen = stream(group=group(pending=40), state=REPORTED_WAITING)
    backlog = measure_backlog(seen, recovers=False)
    assert (backlog.held, backlog.waiting) == (40, 0)
