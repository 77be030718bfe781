"""HorizontalPodAutoscaler v2, for one external metric with a target of AverageValue.

From the Kubernetes documentation, "Horizontal Pod Autoscaling" (quoted as "..."); where it leaves
a case open, from the controller's source, named.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

# "the default interval is 15 seconds"
SYNC_S = 15.0
# "skips any scaling action if the ratio is sufficiently close to 1.0 (... 0.1 by default)"
TOLERANCE = 0.1
# "--horizontal-pod-autoscaler-downscale-stabilization flag, which defaults to 5 minutes"
DOWNSCALE_STABILIZATION_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """A spec.behavior: the window for scaling down, and one policy Pods for scaling up."""

    down_window_s: float
    up_pods: int
    up_period_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recommendation:
    at: float
    replicas: int


@dataclass(slots=True, kw_only=True)
class Hpa:
    """One HorizontalPodAutoscaler and what its controller keeps in memory about it."""

    target: float  # AverageValue
    most: int
    least: int = 1  # what KEDA writes for minReplicaCount 0
    behavior: Behavior | None = None  # None: not set in the resource
    _wishes: deque[_Recommendation] = field(default_factory=deque)
    _added: deque[tuple[float, int]] = field(default_factory=deque)

    def sync(self, metric: float | None, *, replicas: int, pods: int, now: float) -> int:
        """The replicas after one look. `metric` None: it could not be fetched.

        "If the target's desired replica count is set to 0, and the HPA's minimum replica count is
        greater than 0, the HPA stops adjusting the target".
        """
        if not self._wishes:
            # recordInitialRecommendation: the present count, so nothing shrinks at once
            self._wishes.append(_Recommendation(at=now, replicas=replicas))
        if replicas == 0 or metric is None:
            return replicas
        wish = self._wish(metric, pods)
        if self.behavior is None:
            stable = self._stabilize_by_flag(wish, now)
            return self._limit_by_flag(stable, replicas)
        stable = self._stabilize(wish, replicas, now)
        return self._limit(stable, replicas, now)

    def _wish(self, metric: float, pods: int) -> int:
        """The wish: ceil(metric / target), or the pods that exist within the tolerance.

        "In the autoscaling/v2 API version, this value can optionally be divided by the number of
        Pods before the comparison is made."
        """
        ratio = metric / (self.target * pods) if pods else math.inf
        if abs(ratio - 1.0) <= TOLERANCE:
            return pods
        return math.ceil(metric / self.target)

    def _remember(self, wish: int, now: float, window_s: float) -> list[int]:
        """All wishes within the window, with the newest.

        "right before HPA scales the target, the scale recommendation is recorded"
        """
        while self._wishes and self._wishes[0].at <= now - window_s:
            self._wishes.popleft()
        self._wishes.append(_Recommendation(at=now, replicas=wish))
        return [one.replicas for one in self._wishes]

    def _stabilize_by_flag(self, wish: int, now: float) -> int:
        """Without spec.behavior.

        "The controller considers all recommendations within a configurable window choosing the
        highest recommendation from within that window."

        The highest is applied whatever the present count is, so it acts upwards too: replicas may
        grow on an old wish after the work is done (seen live).
        """
        return max(self._remember(wish, now, DOWNSCALE_STABILIZATION_S))

    def _limit_by_flag(self, wish: int, replicas: int) -> int:
        """Without spec.behavior: max(2 x present, 4) in each sync (calculateScaleUpLimit).

        "4 pods or a 100% of the [...] running replicas may at most be added every 15 seconds"
        """
        return min(max(wish, self.least), self.most, max(2 * replicas, 4))

    def _stabilize(self, wish: int, replicas: int, now: float) -> int:
        """With spec.behavior.

        "When the metrics indicate that the target should be scaled down the algorithm looks into
        previously computed desired states, and uses the highest value from the specified
        interval." Only down: the present count is lowered to the highest wish, and raised
        to no more than the newest ("For scaling up there is no stabilization window").
        """
        assert self.behavior is not None
        highest = max(self._remember(wish, now, self.behavior.down_window_s))
        return min(max(replicas, wish), highest)

    def _limit(self, wish: int, replicas: int, now: float) -> int:
        """With spec.behavior.

        "periodSeconds indicates the length of time in the past for which the policy must hold
        true". Downwards the default policy "allows a 100% of the [...] running replicas to be
        removed".
        """
        assert self.behavior is not None
        if wish <= replicas:
            return max(wish, self.least)
        while self._added and self._added[0][0] <= now - self.behavior.up_period_s:
            self._added.popleft()
        before = replicas - sum(count for _, count in self._added)
        allowed = max(before + self.behavior.up_pods, replicas)
        granted = min(wish, self.most, allowed)
        if granted > replicas:
            self._added.append((now, granted - replicas))
        return granted
