"""How fast the number of replicas may move: the rules of HorizontalPodAutoscaler v2."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pelops.api.group.scaling import BehaviorSpec
from pelops.policy.scaling.behavior import (
    Change,
    Recommendation,
    ReplicaHistory,
    apply_tolerance,
)

NOW = 1000.0


def behavior(**spec: Any) -> BehaviorSpec:
    return BehaviorSpec.model_validate(spec)


def allow(
    wanted: int,
    *,
    current: int,
    spec: dict[str, Any] | None = None,
    before: tuple[tuple[float, int], ...] = (),
    changes: tuple[tuple[float, int], ...] = (),
) -> tuple[int, str]:
    """What is allowed now, after recommendations and changes so many seconds ago."""
    rules = behavior(**(spec or {}))
    history = ReplicaHistory(
        recommendations=tuple(Recommendation(at=NOW - ago, replicas=n) for ago, n in before),
        changes=tuple(Change(at=NOW - ago, by=by) for ago, by in changes),
    )
    return history.limit(wanted, current=current, behavior=rules, now=NOW)


DOWN_4_OR_10_PERCENT = {
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 60},
        ],
    }
}


def with_select(select: str) -> dict[str, Any]:
    return {"scaleDown": {**DOWN_4_OR_10_PERCENT["scaleDown"], "selectPolicy": select}}


LONG_AGO = ((400.0, 1),)

UPWARDS_30_S = {"scaleUp": {"stabilizationWindowSeconds": 30}}
RATES = DOWN_4_OR_10_PERCENT


class Allowed(NamedTuple):
    wanted: int
    current: int
    allowed: int
    spec: dict[str, Any] | None = None
    before: tuple[tuple[float, int], ...] = ()
    changes: tuple[tuple[float, int], ...] = ()


def growing(*policies: tuple[str, int], **rules: Any) -> dict[str, Any]:
    """Growth by these policies of a minute each."""
    limits = [{"type": kind, "value": value, "periodSeconds": 60} for kind, value in policies]
    return {"scaleUp": {"policies": limits, **rules}}


ALLOWED: dict[str, Allowed] = {
    "80 shrink by 10 percent": Allowed(10, 80, 72, RATES, LONG_AGO),
    "of 72 the 7.2 are rounded up to 8": Allowed(10, 72, 64, RATES, LONG_AGO),
    "40 and fewer shrink by 4": Allowed(10, 40, 36, RATES, LONG_AGO),
    "Min takes the smallest change": Allowed(10, 80, 76, with_select("Min"), LONG_AGO),
    "Disabled never shrinks": Allowed(10, 80, 80, with_select("Disabled"), LONG_AGO),
    "what went within the period counts": Allowed(10, 78, 72, RATES, LONG_AGO, ((30, -2),)),
    "what went before the period does not": Allowed(10, 80, 72, RATES, LONG_AGO, ((60, -8),)),
    "a limit used up holds and never grows": Allowed(10, 60, 60, RATES, LONG_AGO, ((5, -20),)),
    "what was added meanwhile may go again": Allowed(10, 48, 36, RATES, LONG_AGO, ((30, 8),)),
    "the default adds 10": Allowed(100, 1, 11),
    "the default doubles": Allowed(100, 12, 24),
    "the default waits 10 s": Allowed(100, 11, 11, changes=((9, 10),)),
    "and goes on then": Allowed(100, 11, 22, changes=((10, 10),)),
    "percent is rounded up": Allowed(9, 3, 4, growing(("Percent", 10))),
    "Min of two policies upwards": Allowed(
        100, 10, 13, growing(("Percent", 100), ("Pods", 3), selectPolicy="Min")
    ),
    "growth can be disabled": Allowed(9, 3, 3, {"scaleUp": {"selectPolicy": "Disabled"}}),
    "the highest of the window stays": Allowed(1, 9, 7, before=((59, 7), (30, 2))),
    "a window ends after its seconds": Allowed(1, 9, 2, before=((60, 7), (30, 2))),
    "each window has its own length": Allowed(
        1, 9, 2, {"scaleUp": {"stabilizationWindowSeconds": 90}}, ((60, 7), (30, 2))
    ),
    "a window upwards takes the lowest": Allowed(
        9, 2, 4, UPWARDS_30_S, ((31, 1), (20, 4), (10, 8))
    ),
    "between the two the present count stays": Allowed(9, 5, 5, UPWARDS_30_S, ((20, 4), (10, 8))),
    "right after a start nothing shrinks": Allowed(1, 9, 9),
    "right after a start it may grow": Allowed(9, 5, 9),
    "without a window it shrinks at once": Allowed(
        1, 9, 1, {"scaleDown": {"stabilizationWindowSeconds": 0}}, ((1, 9),)
    ),
}


@pytest.mark.parametrize("case", ALLOWED.values(), ids=ALLOWED)
def test_behavior_is_that_of_the_kubernetes_documentation(case: Allowed) -> None:
    wanted, current, allowed, spec, before, changes = case
    found = allow(wanted, current=current, spec=spec, before=before, changes=changes)
    assert found[0] == allowed


def test_what_limited_the_number_is_reported() -> None:
    assert allow(100, current=1)[1] == "the policies of behavior.scaleUp"
    assert allow(10, current=80, spec=DOWN_4_OR_10_PERCENT, before=LONG_AGO)[1] == (
        "the policies of behavior.scaleDown"
    )
    assert (
        allow(1, current=9, before=((30, 9),))[1]
        == "the 60 s stabilization window of behavior.scaleDown"
    )
    assert allow(9, current=2, spec=UPWARDS_30_S, before=((10, 4),))[1] == (
        "the 30 s stabilization window of behavior.scaleUp"
    )
    assert allow(5, current=5)[1] == ""


# Each is (demand, current, spec, recommended).
TOLERATED: dict[str, tuple[float, int, dict[str, Any], int]] = {
    "10 percent more changes nothing": (11.0, 10, {}, 10),
    "more than that does": (11.1, 10, {}, 12),
    "10 percent less changes nothing": (9.0, 10, {}, 10),
    "less than that does": (8.9, 10, {}, 9),
    "a direction has its own": (10.6, 10, {"scaleUp": {"tolerancePercent": 5}}, 11),
    "and the other one keeps the default": (9.1, 10, {"scaleUp": {"tolerancePercent": 5}}, 10),
    "downwards as well": (9.1, 10, {"scaleDown": {"tolerancePercent": 0}}, 10),
    "from zero nothing is close": (0.01, 0, {}, 1),
    "nothing is never close": (0.0, 10, {"scaleDown": {"tolerancePercent": 100}}, 0),
}


@pytest.mark.parametrize("case", TOLERATED.values(), ids=TOLERATED)
def test_small_differences_are_tolerated(case: tuple[float, int, dict[str, Any], int]) -> None:
    demand, current, spec, recommended = case
    assert apply_tolerance(demand, current=current, behavior=behavior(**spec)) == recommended


def test_what_nothing_looks_back_to_is_forgotten() -> None:
    history = ReplicaHistory()
    for second in range(10_000):
        history.record_change(1, now=float(second))
        history.recommend(second % 7, current=3, behavior=behavior(), now=float(second))
    assert len(history.recommendations) <= 61
    assert len(history.changes) <= 1800


def test_a_number_that_stays_is_remembered_once() -> None:
    history = ReplicaHistory()
    for second in range(50):
        history.recommend(4, current=4, behavior=behavior(), now=float(second))
    assert history.recommendations == (Recommendation(at=49.0, replicas=4),)


def test_a_write_that_moved_nothing_is_no_change() -> None:
    history = ReplicaHistory()
    history.record_change(0, now=NOW)
    assert history == ReplicaHistory()
