"""How fast a number of replicas may move: `behavior` of HorizontalPodAutoscaler v2.

The rules are those of the Kubernetes documentation, "Horizontal Pod Autoscaling", section
"Configurable scaling behavior", with its subsections "Scaling policies", "Stabilization window",
"Tolerance" and "Default behavior". Where the text is silent, the horizontal pod autoscaler's own
source (pkg/controller/podautoscaler/horizontal.go) decides, and the docstring names the function.
Times are seconds on a clock that never jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Final

from pelops.api.group.scaling import (
    BehaviorSpec,
    PolicySelect,
    PolicyType,
    ScaleDownRules,
    ScaleUpRules,
    ScalingPolicy,
)
from pelops.domain.quantities import render_seconds

_LONGEST_PERIOD_S: Final = 1800.0  # the API allows no longer one


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A number that was wanted, after tolerance and before every limit."""

    at: float  # when it was wanted last without a break
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A write that moved the replicas."""

    at: float
    by: int  # positive: added; negative: removed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingHistory:
    """What was recommended and what was changed, as far back as any window or period needs."""

    recommendations: tuple[Recommendation, ...] = ()
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The number that behavior allows, and what kept it from the one wanted."""

    replicas: int
    by: str = ""  # empty: nothing did


def apply_tolerance(demand: float, *, current: int, behavior: BehaviorSpec) -> int:
    """The number to recommend for a demand in replicas, which need not be whole.

    "Algorithm details": "The control plane skips any scaling action if the ratio is sufficiently
    close to 1.0"; "Tolerance": each direction may have its own. Nothing demanded is never close.
    """
    if current == 0 or demand <= 0:
        return ceil(demand)
    ratio = demand / current
    down = behavior.scale_down.tolerance_percent / 100
    up = behavior.scale_up.tolerance_percent / 100
    return current if 1.0 - down <= ratio <= 1.0 + up else ceil(demand)


def recommend(
    history: ScalingHistory, replicas: int, *, current: int, behavior: BehaviorSpec, now: float
) -> ScalingHistory:
    """The history with one more recommendation, without what nothing looks back to any more.

    An empty history begins with the present count, so that nothing shrinks right after a start
    (recordInitialRecommendation). A number that stays is remembered once, with its latest time:
    that alone decides whether it lies in a window.
    """
    known = history.recommendations or (Recommendation(at=now, replicas=current),)
    longest = max(_window(behavior.scale_up), _window(behavior.scale_down))
    kept = [one for one in known if one.at > now - longest]
    if kept and kept[-1].replicas == replicas:
        kept.pop()
    kept.append(Recommendation(at=now, replicas=replicas))
    changes = tuple(one for one in history.changes if one.at > now - _LONGEST_PERIOD_S)
    return ScalingHistory(recommendations=tuple(kept), changes=changes)


def record_change(history: ScalingHistory, by: int, *, now: float) -> ScalingHistory:
    """The history after a write that moved the replicas (storeScaleEvent)."""
    if by == 0:
        return history
    return replace(history, changes=(*history.changes, Change(at=now, by=by)))


def apply_behavior(
    history: ScalingHistory, *, current: int, behavior: BehaviorSpec, now: float
) -> Allowed:
    """The number that windows and policies allow now, for the newest recommendation.

    The history must hold one: `recommend` comes first.
    """
    wanted = history.recommendations[-1].replicas
    stable = stabilize(history.recommendations, current=current, behavior=behavior, now=now)
    limited = _limit_rate(stable, history.changes, current=current, behavior=behavior, now=now)
    if limited == wanted:
        return Allowed(replicas=limited)
    direction = "scaleUp" if wanted > limited else "scaleDown"
    if limited != stable:
        return Allowed(replicas=limited, by=f"the policies of behavior.{direction}")
    window = _window(behavior.scale_up if wanted > limited else behavior.scale_down)
    return Allowed(
        replicas=limited,
        by=f"the {render_seconds(window)} stabilization window of behavior.{direction}",
    )


def stabilize(
    recommendations: Iterable[Recommendation],
    *,
    current: int,
    behavior: BehaviorSpec,
    now: float,
) -> int:
    """The number within what was wanted throughout the windows.

    "Stabilization window": "the algorithm looks into previously computed desired states, and uses
    the highest value from the specified interval"; upwards, it is the lowest. Between the two the
    present count stays (stabilizeRecommendationWithBehaviors). The newest recommendation counts
    even in a window of zero seconds.
    """
    known = list(recommendations)
    newest = known[-1].replicas
    up_since, down_since = now - _window(behavior.scale_up), now - _window(behavior.scale_down)
    lowest = min([newest, *(one.replicas for one in known if one.at > up_since)])
    highest = max([newest, *(one.replicas for one in known if one.at > down_since)])
    return min(max(current, lowest), highest)


def _window(rules: ScaleUpRules | ScaleDownRules) -> float:
    return float(rules.stabilization_window_seconds)


def _limit_rate(
    wanted: int,
    changes: tuple[Change, ...],
    *,
    current: int,
    behavior: BehaviorSpec,
    now: float,
) -> int:
    """ "Scaling policies let you control the rate of change of replicas while scaling."

    A limit that was used up earlier holds the present count; it never moves it the other way
    (convertDesiredReplicasWithBehaviorRate).
    """
    if wanted > current:
        return min(wanted, max(current, _highest(behavior.scale_up, changes, current, now)))
    if wanted < current:
        return max(wanted, min(current, _lowest(behavior.scale_down, changes, current, now)))
    return current


def _highest(rules: ScaleUpRules, changes: tuple[Change, ...], current: int, now: float) -> int:
    """The most replicas that scaleUp allows (calculateScaleUpLimitWithScalingRules)."""
    if rules.select_policy is PolicySelect.DISABLED:
        return current
    return _select(rules.select_policy, widest=max)(
        _most(policy, _at_start(policy, changes, current, now)) for policy in rules.policies
    )


def _lowest(rules: ScaleDownRules, changes: tuple[Change, ...], current: int, now: float) -> int:
    """The fewest replicas that scaleDown allows (calculateScaleDownLimitWithBehaviors)."""
    if rules.select_policy is PolicySelect.DISABLED:
        return current
    return _select(rules.select_policy, widest=min)(
        _fewest(policy, _at_start(policy, changes, current, now)) for policy in rules.policies
    )


_Pick = Callable[[Iterable[int]], int]


def _select(select: PolicySelect, *, widest: _Pick) -> _Pick:
    """ "The policy which allows the highest amount of change is selected by default"; Min the
    smallest; "Disabled completely disables scaling in that direction".
    """
    narrowest: _Pick = min if widest is max else max
    return narrowest if select is PolicySelect.MIN else widest


def _at_start(policy: ScalingPolicy, changes: tuple[Change, ...], current: int, now: float) -> int:
    """The count when the period began: "periodSeconds indicates the length of time in the past
    for which the policy must hold true" (getReplicasChangePerPeriod).
    """
    since = now - policy.period_seconds
    return current - sum(change.by for change in changes if change.at > since)


def _most(policy: ScalingPolicy, start: int) -> int:
    """Percent is rounded up, or a small count would never grow."""
    if policy.type is PolicyType.PODS:
        return start + policy.value
    return ceil(start * (100 + policy.value) / 100)


def _fewest(policy: ScalingPolicy, start: int) -> int:
    """ "10% of the pods is 7.2 but the number is rounded up to 8": what remains is rounded down."""
    if policy.type is PolicyType.PODS:
        return start - policy.value
    return floor(start * (100 - policy.value) / 100)
