"""How many workers there are to be, and the words that say why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.scaling.meter import HandlingTime, Meter
from pelops.policy.status.reasons import Reason
from tests.builders import pod, resource, workload
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

# Each is (backlog, what `decide` is given beside it, replicas, reason, message).
DECISIONS: dict[str, tuple[Backlog | None, dict[str, Any], int | None, str, str]] = {
    "the parts of the backlog, and what they ask for": (
        owing(undelivered=1_000, held=240),
        {
            "current": 8,
            "memory": wanting(8, meter=knowing(arrivals=1, per_replica=2)),
            "scaling": {"drainWithinSeconds": 69, **FAST},
        },
        10,
        "Limited",
        "Backlog 1,240: 1,000 undelivered + 240 pending with live workers; 13 workers wanted by "
        "backlog, 10 by drain time; limited to 10 by maxReplicas",
    ),
    "the first entry brings a worker": (
        owing(undelivered=1),
        {"current": 0},
        1,
        "Scaled",
        "Backlog 1: 1 undelivered + 0 pending with live workers; 1 worker wanted by backlog",
    ),
    "the first worker comes whatever behavior says": (
        owing(undelivered=5_000),
        {"current": 0, "scaling": {"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}},
        1,
        "Limited",
        "Backlog 5,000: 5,000 undelivered + 0 pending with live workers; 50 workers wanted by "
        "backlog",
    ),
    "behavior limits growth": (
        owing(undelivered=1_900),
        {"current": 1, "scaling": {"maxReplicas": 50}},
        11,
        "Limited",
        "Backlog 1,900: 1,900 undelivered + 0 pending with live workers; 19 workers wanted by "
        "backlog; held at 11 by the policies of behavior.scaleUp",
    ),
    "what waits for recovery is no reason for workers": (
        owing(undelivered=100, waiting=3_000),
        {"current": 1},
        1,
        "Scaled",
        "Backlog 100: 100 undelivered + 0 pending with live workers; 3,000 more wait for recovery; "
        "1 worker wanted by backlog",
    ),
    "prefetched entries want no further worker": (
        owing(undelivered=1, held=5_000),
        {"current": 3},
        3,
        "Scaled",
        "Backlog 5,001: 1 undelivered + 5,000 pending with live workers; 4 workers wanted by "
        "backlog",
    ),
    "entries that all have a worker ask for one": (
        owing(held=5_000),
        {"current": 3},
        1,
        "Scaled",
        "Backlog 5,000: 0 undelivered + 5,000 pending with live workers; 1 worker wanted by "
        "backlog",
    ),
    "a lull ends no worker": (
        owing(),
        {"current": 7, "memory": wanting(7, ago_s=10)},
        7,
        "Scaled",
        "No backlog; held at 7 by the 60 s stabilization window of behavior.scaleDown",
    ),
    "right after a start nothing shrinks": (
        owing(),
        {"current": 7, "memory": Autoscaler()},
        7,
        "Scaled",
        "No backlog; held at 7 by the 60 s stabilization window of behavior.scaleDown",
    ),
    "the last worker stays for the cool-down": (
        owing(),
        {"current": 4, "memory": wanting(0, empty_since=SECOND - 59)},
        1,
        "Scaled",
        "No backlog; held at 1 by the cool-down of 60 s",
    ),
    "and goes when it is over": (
        owing(),
        {"current": 1, "memory": wanting(0, empty_since=SECOND - 60)},
        0,
        "Idle",
        "No backlog",
    ),
    "an idle group at zero stays there": (
        owing(),
        {"current": 0, "memory": Autoscaler()},
        0,
        "Idle",
        "No backlog",
    ),
    "minReplicas stay": (
        owing(),
        {
            "current": 2,
            "memory": wanting(0, empty_since=SECOND - 99),
            "scaling": {"minReplicas": 2},
        },
        2,
        "Scaled",
        "No backlog; raised to 2 by minReplicas",
    ),
    "a fleet that keeps up has no backlog and stays": (
        owing(),
        {"current": 3, "memory": wanting(3, meter=knowing(arrivals=120, per_replica=50))},
        3,
        "Scaled",
        "No backlog; 0 workers wanted by backlog, 3 by arrivals",
    ),
    "arrivals that outrun the fleet want more before a backlog is there": (
        owing(undelivered=10),
        {"current": 3, "memory": wanting(3, meter=knowing(arrivals=300, per_replica=50))},
        8,
        "Scaled",
        "Backlog 10: 10 undelivered + 0 pending with live workers; 1 worker wanted by backlog, "
        "8 by arrivals",
    ),
    "a rate that was never tested adds no worker": (
        owing(),
        {
            "current": 3,
            "memory": wanting(3, meter=knowing(arrivals=300, per_replica=50, is_proven=False)),
        },
        3,
        "Scaled",
        "No backlog; 0 workers wanted by backlog, 3 by arrivals",
    ),
    "an unknown number removes no worker": (
        owing(undelivered=1_000, is_exact=False),
        {"current": 12, "scaling": {"maxReplicas": 20}},
        12,
        "LagUnknown",
        "Backlog at least 1,000: at least 1,000 undelivered + 0 pending with live workers; "
        "10 workers wanted by backlog; Redis does not know the number of undelivered entries, so "
        "no worker is removed",
    ),
    "an unknown number is no zero": (
        owing(is_exact=False),
        {"current": 1, "memory": wanting(0, empty_since=SECOND - 999)},
        1,
        "LagUnknown",
        "Backlog at least 0: at least 0 undelivered + 0 pending with live workers; "
        "0 workers wanted by backlog; Redis does not know the number of undelivered entries, so "
        "no worker is removed",
    ),
    "an unknown number wakes the first worker": (
        owing(is_exact=False),
        {"current": 0},
        1,
        "LagUnknown",
        "Backlog at least 0: at least 0 undelivered + 0 pending with live workers; "
        "0 workers wanted by backlog; Redis does not know the number of undelivered entries, so "
        "no worker is removed",
    ),
    "Redis cannot be seen": (
        None,
        {"current": 4},
        4,
        "BacklogUnknown",
        "Redis cannot be observed, so the backlog is unknown: the replicas are held at 4",
    ),
    "the group is missing": (
        owing(exists=False, is_exact=False, added=None),
        {"current": 4},
        4,
        "BacklogUnknown",
        "The group does not exist, so the backlog is unknown: the replicas are held at 4",
    ),
    "what is held stays within the bounds": (
        None,
        {"current": 12},
        10,
        "BacklogUnknown",
        "Redis cannot be observed, so the backlog is unknown: the replicas are held at 10",
    ),
    "the target is missing": (
        owing(undelivered=5),
        {"current": 0, "exists": False},
        None,
        "BacklogUnknown",
        "Deployment shop/order-workers does not exist, so Pelops cannot scale it: create it",
    ),
    "a quota refuses pods": (
        owing(undelivered=900),
        {"current": 3, "ready": 3, "failure": "exceeded quota: pods=3"},
        3,
        "ScalingIneffective",
        "Backlog 900: 900 undelivered + 0 pending with live workers; 9 workers wanted by backlog; "
        "limited to 3, because pods cannot be created: exceeded quota: pods=3",
    ),
    "the first worker is tried whatever is wrong": (
        owing(undelivered=900),
        {"current": 0, "failure": "exceeded quota: pods=3"},
        1,
        "ScalingIneffective",
        "Backlog 900: 900 undelivered + 0 pending with live workers; 9 workers wanted by backlog; "
        "limited to 1, because pods cannot be created: exceeded quota: pods=3",
    ),
    "every worker crashes": (
        owing(undelivered=900),
        {
            "current": 1,
            "ready": 0,
            "pods": (pod(is_ready=False, waiting_reason="CrashLoopBackOff"),),
        },
        1,
        "ScalingIneffective",
        "Backlog 900: 900 undelivered + 0 pending with live workers; 9 workers wanted by backlog; "
        "limited to 1, because all workers crash: see the condition WorkloadReady",
    ),
    "entries end as dead letters": (
        owing(undelivered=900),
        {"current": 2, "memory": wanting(2, meter=replace(
            knowing(arrivals=0, per_replica=1), finished=40.0, dead_lettered=30.0
        ))},
        2,
        "ScalingIneffective",
        "Backlog 900: 900 undelivered + 0 pending with live workers; 9 workers wanted by backlog; "
        "limited to 2, because 75% of the processed entries became dead letters: see the last "
        "fields of each dead letter for the reason",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DECISIONS.values(), ids=DECISIONS)
def test_the_number_and_its_words(
    case: tuple[Backlog | None, dict[str, Any], int | None, str, str],
) -> None:
    backlog, given, replicas, reason, message = case
    found = decide(backlog, **given)
    assert (found.replicas, found.reason, found.message) == (replicas, reason, message)


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
    active = {reason for reason in Reason if _decision(reason).is_active}
    assert active == {
        Reason.MANUAL,
        Reason.SCALED_BY_AUTOSCALER,
        Reason.SCALED,
        Reason.IDLE,
        Reason.LIMITED,
        Reason.LAG_UNKNOWN,
        Reason.FOLLOWING,
    }


def _decision(reason: Reason) -> ScalingDecision:
    return ScalingDecision(replicas=1, reason=reason, message="")
