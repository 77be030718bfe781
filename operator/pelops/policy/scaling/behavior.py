"""How fast the number of replicas may change: `behavior` of HorizontalPodAutoscaler v2.

The rules are those of the Kubernetes documentation, "Horizontal Pod Autoscaling", section
"Configurable scaling behavior", with its subsections "Scaling policies", "Stabilization window",
"Tolerance" and "Default behavior". Details that it does not specify follow the source of the
autoscaler (pkg/controller/podautoscaler/horizontal.go); the docstring names the function. Times are
seconds on a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, floor
from typing import Final, NamedTuple

from pelops.api.group.scaling import (
    BehaviorSpec,
    PolicySelect,
    PolicyType,
    ScaleDownRules,
    ScaleUpRules,
    ScalingPolicy,
)
from pelops.domain.quantities import render_seconds

_LONGEST_PERIOD_S: Final = 1800.0  # the maximum in the API


class Recommendation(NamedTuple):
    """A number of replicas that was wanted, after tolerance and before all limits."""

    at: float  # when it was last wanted
    replicas: int


class Change(NamedTuple):
    """A write that changed the replicas."""

    at: float
    by: int  # positive: added; negative: removed


def apply_tolerance(demand: float, *, current: int, behavior: BehaviorSpec) -> int:
    """Return the number to recommend for a demand in replicas, which need not be whole.

    "Algorithm details": "The control plane skips any scaling action if the ratio is sufficiently
    close to 1.0"; "Tolerance": each direction may have its own. A demand of 0 is never close.
    """
    if current == 0 or demand <= 0:
        return ceil(demand)
    ratio = demand / current
    down = behavior.scale_down.tolerance_percent / 100
    up = behavior.scale_up.tolerance_percent / 100
    return current if 1.0 - down <= ratio <= 1.0 + up else ceil(demand)


@dataclass(slots=True, kw_only=True)
class ReplicaHistory:
    """Recommendations and changes, as far back as the longest window or period requires."""

    recommendations: tuple[Recommendation, ...] = ()
    changes: tuple[Change, ...] = ()

    def recommend(self, replicas: int, *, current: int, behavior: BehaviorSpec, now: float) -> None:
        """Add a recommendation, and forget those outside of all windows.

        An empty history starts with the current count, so that no replica is removed right after a
        start (recordInitialRecommendation). A repeated number is kept once, with its latest time,
        which decides whether it is in a window.
        """
        known = self.recommendations or (Recommendation(now, current),)
        longest = max(_window(behavior.scale_up), _window(behavior.scale_down))
        kept = [one for one in known if one.at > now - longest]
        if kept and kept[-1].replicas == replicas:
            kept.pop()
        self.recommendations = (*kept, Recommendation(now, replicas))
        self.changes = tuple(one for one in self.changes if one.at > now - _LONGEST_PERIOD_S)

    def limit(
        self, wanted: int, *, current: int, behavior: BehaviorSpec, now: float
    ) -> tuple[int, str]:
        """Add a recommendation. Return the number that windows and policies allow now, and what
        limited it: an empty text if it is the wanted number.
        """
        self.recommend(wanted, current=current, behavior=behavior, now=now)
        stable = stabilize(self.recommendations, current=current, behavior=behavior, now=now)
        limited = _limit_rate(stable, self.changes, current=current, behavior=behavior, now=now)
        if limited == wanted:
            return limited, ""
        direction = "scaleUp" if wanted > limited else "scaleDown"
        if limited != stable:
            return limited, f"the policies of behavior.{direction}"
        window = _window(behavior.scale_up if wanted > limited else behavior.scale_down)
        return limited, (
            f"the {render_seconds(window)} stabilization window of behavior.{direction}"
        )

    def record_change(self, by: int, *, now: float) -> None:
        """Record a write that changed the replicas (storeScaleEvent)."""
        if by != 0:
            self.changes = (*self.changes, Change(now, by))


def stabilize(
    recommendations: Iterable[Recommendation],
    *,
    current: int,
    behavior: BehaviorSpec,
    now: float,
) -> int:
    """Return the current count, limited to what was wanted throughout the windows.

    "Stabilization window": "the algorithm looks into previously computed desired states, and uses
    the highest value from the specified interval"; for scaling up, the lowest. Between the two, the
    current count stays (stabilizeRecommendationWithBehaviors). The newest recommendation counts
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

    If a limit is used up already, the current count stays; it never changes in the other direction
    (convertDesiredReplicasWithBehaviorRate).
    """
    if wanted > current:
        return min(wanted, max(current, _highest(behavior.scale_up, changes, current, now)))
    if wanted < current:
        return max(wanted, min(current, _lowest(behavior.scale_down, changes, current, now)))
    return current


def _highest(rules: ScaleUpRules, changes: tuple[Change, ...], current: int, now: float) -> int:
    """Return the most replicas that scaleUp allows (calculateScaleUpLimitWithScalingRules)."""
    if rules.select_policy is PolicySelect.DISABLED:
        return current
    return _select(rules.select_policy, widest=max)(
        _most(policy, _at_start(policy, changes, current, now)) for policy in rules.policies
    )


def _lowest(rules: ScaleDownRules, changes: tuple[Change, ...], current: int, now: float) -> int:
    """Return the fewest replicas that scaleDown allows (calculateScaleDownLimitWithBehaviors)."""
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
    """Return the maximum that a policy allows, rounded up so that a small count can grow."""
    if policy.type is PolicyType.PODS:
        return start + policy.value
    return ceil(start * (100 + policy.value) / 100)


def _fewest(policy: ScalingPolicy, start: int) -> int:
    """ "10% of the pods is 7.2 but the number is rounded up to 8": what remains is rounded down."""
    if policy.type is PolicyType.PODS:
        return start - policy.value
    return floor(start * (100 - policy.value) / 100)
