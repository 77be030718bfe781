"""`behavior` equals a model of its words."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pelops.api.group.scaling import BehaviorSpec, PolicySelect, PolicyType, ScalingPolicy
from pelops.policy.scaling.behavior import (
    Change,
    Recommendation,
    ReplicaHistory,
    stabilize,
)
from tests.scaling_cases import BEHAVIOR

COUNT = st.integers(0, 30)

# The windows: every look of a life is kept, and the words are read literally.

LOOKS = st.lists(
    st.tuples(st.integers(0, 40), COUNT, COUNT), min_size=1, max_size=40
)  # seconds after the look before, recommended, present count


@given(BEHAVIOR, LOOKS)
def test_stabilisation_equals_its_words(
    spec: dict[str, Any], looks: list[tuple[int, int, int]]
) -> None:
    behavior = BehaviorSpec.model_validate(spec)
    everything: list[tuple[int, int]] = []
    history, now = ReplicaHistory(), 0
    for after_s, wanted, current in looks:
        now += after_s
        if not everything:
            everything.append((now, current))  # the first recommendation is the present count
        everything.append((now, wanted))
        history.recommend(wanted, current=current, behavior=behavior, now=float(now))
        found = stabilize(
            history.recommendations, current=current, behavior=behavior, now=float(now)
        )
        assert found == _stable(everything, current, behavior, now)


def _stable(
    everything: list[tuple[int, int]], current: int, behavior: BehaviorSpec, now: int
) -> int:
    """Up to the lowest of the one window, down to the highest of the other; else where it is."""
    newest = everything[-1][1]
    up = behavior.scale_up.stabilization_window_seconds
    down = behavior.scale_down.stabilization_window_seconds
    lowest = min([newest] + [n for at, n in everything if now - at < up])
    highest = max([newest] + [n for at, n in everything if now - at < down])
    if current < lowest:
        return lowest
    return highest if current > highest else current


# The policies: a count over time is replayed, and what it was when a period began is looked up.

WRITES = st.lists(st.tuples(st.integers(1, 40), COUNT), min_size=1, max_size=20)


@given(BEHAVIOR, WRITES, COUNT)
def test_policies_equal_their_words(
    spec: dict[str, Any], writes: list[tuple[int, int]], wanted: int
) -> None:
    behavior = BehaviorSpec.model_validate(spec)
    history, counts, now = ReplicaHistory(), [(0, 0)], 0
    for after_s, count in writes:
        now += after_s
        history.record_change(count - counts[-1][1], now=float(now))
        counts.append((now, count))
    now += 5
    current = counts[-1][1]
    history.recommendations = (Recommendation(at=float(now), replicas=wanted),)
    found, _ = history.limit(wanted, current=current, behavior=behavior, now=float(now))
    assert found == _paced(wanted, counts, behavior, now)


def _paced(wanted: int, counts: list[tuple[int, int]], behavior: BehaviorSpec, now: int) -> int:
    current = counts[-1][1]
    if wanted == current:
        return current
    is_up = wanted > current
    rules = behavior.scale_up if is_up else behavior.scale_down
    if rules.select_policy is PolicySelect.DISABLED:
        return current
    default = BehaviorSpec.model_validate(
        {
            "scaleUp": {
                "policies": [
                    {"type": "Pods", "value": 10, "periodSeconds": 10},
                    {"type": "Percent", "value": 100, "periodSeconds": 10},
                ]
            },
            "scaleDown": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
        }
    )
    usual = default.scale_up.policies if is_up else default.scale_down.policies
    limits = sorted(
        _limit(policy, counts, now, is_up=is_up) for policy in rules.policies or usual or ()
    )
    is_widest_last = is_up == (rules.select_policy is PolicySelect.MAX)
    limit = limits[-1] if is_widest_last else limits[0]
    return min(wanted, max(current, limit)) if is_up else max(wanted, min(current, limit))


def _limit(policy: ScalingPolicy, counts: list[tuple[int, int]], now: int, *, is_up: bool) -> int:
    """What the period's first count may become within it, in whole replicas."""
    start = [n for at, n in counts if now - at >= policy.period_seconds] or [0]
    step = Fraction(policy.value)
    if policy.type is PolicyType.PERCENT:
        step = start[-1] * step / 100
    return ceil(start[-1] + step) if is_up else floor(start[-1] - step)


def test_a_change_is_what_was_written() -> None:
    history = ReplicaHistory()
    history.record_change(-3, now=5.0)
    assert history.changes == (Change(at=5.0, by=-3),)
