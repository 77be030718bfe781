"""A replica count on its way from what is wanted to what is written, and what limited it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pelops.api.scaling import ScalingSpec
from pelops.domain.scaling import Backlog
from pelops.domain.workload import WorkloadObservation
from pelops.policy.behavior import Allowed
from pelops.policy.demand import Demand, tell_backlog, tell_demand
from pelops.policy.reasons import Reason

_USUAL_GRACE_S: Final = 30.0  # terminationGracePeriodSeconds, unless a pod says otherwise
_SHARE: Final = 1 / 3  # of it: single entries take longer than they do on average


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one decision is made from, beside the backlog."""

    scaling: ScalingSpec
    workload: WorkloadObservation
    current: int  # replicas that are asked for now
    now: float
    recovers: bool = True  # what a worker lost is given to another one

    def clamp(self, replicas: int) -> int:
        """The number within minReplicas and maxReplicas."""
        return max(self.scaling.min_replicas, min(replicas, self.scaling.max_replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The count on its way through the limits; the last one that mattered tells why."""

    replicas: int
    wanted: int
    note: str = ""
    is_ineffective: bool = False


def follow_behavior(allowed: Allowed, wanted: int) -> Course:
    """What windows and policies allow of the number wanted."""
    note = f"{allowed.replicas:,} by {allowed.by}" if allowed.by else ""
    return Course(replicas=allowed.replicas, wanted=wanted, note=note)


def keep_last(
    course: Course, sight: Sight, backlog: Backlog, nothing_owed_since: float | None
) -> Course:
    """The first worker comes at once, whatever behavior says; the last goes after the cool-down,
    and never on a doubt.
    """
    if course.replicas > 0:
        return course
    if not backlog.is_nothing_owed:
        return replace(course, replicas=1, note="")
    cooldown = sight.scaling.cooldown_seconds
    is_over = nothing_owed_since is not None and sight.now - nothing_owed_since >= cooldown
    if sight.current == 0 or is_over:
        return course
    return replace(course, replicas=1, note=f"the last one stays for the cool-down of {cooldown} s")


def clamp(course: Course, sight: Sight) -> Course:
    """minReplicas and maxReplicas are the last word."""
    clamped = sight.clamp(course.replicas)
    if clamped < course.replicas or course.wanted > clamped == sight.scaling.max_replicas:
        return replace(course, replicas=clamped, note=f"limited to {clamped:,} by maxReplicas")
    if clamped > course.replicas:
        return replace(course, replicas=clamped, note=f"{clamped:,} by minReplicas")
    return course


def stop_growth(course: Course, sight: Sight, hindrance: str) -> Course:
    """No further workers than there are: more would not help. Shrinking stays allowed, and the
    first worker and minReplicas are no growth.
    """
    least = max(1, sight.clamp(sight.current))
    note = f"no more than {min(course.replicas, least):,}, since {hindrance}"
    return replace(course, replicas=min(course.replicas, least), note=note, is_ineffective=True)


def find_busy_most(sight: Sight, backlog: Backlog) -> int:
    """The greatest number at which pods that hold entries can keep the replicas.

    Each of them holds one at least. Only of a Deployment's pods can the idle ones be named to go;
    elsewhere idle ones may have to stay for the sake of a busy one.
    """
    pending, most = backlog.held + backlog.waiting, sight.clamp(sight.current)
    if sight.workload.target.kind == "Deployment":
        return min(most, pending)
    return most if pending else 0


def can_finish(sight: Sight, handled_s: float | None) -> bool:
    """Whether a pod that is told to end has the time to finish what it usually holds. `handled_s`
    is how long a worker holds an entry on average; None: not known.

    Then nothing is gained by waiting for it, and much lost by waiting for handlers that failed:
    their entries are pending with a live worker until recovery takes them back.
    """
    if handled_s is None or not sight.recovers:
        return False
    graces = [_USUAL_GRACE_S, *(pod.grace_period_s for pod in sight.workload.pods)]
    return handled_s <= _SHARE * min(graces)


def judge_course(course: Course, backlog: Backlog) -> Reason:
    """The reason of the condition: the gravest of what holds."""
    if course.is_ineffective:
        return Reason.SCALING_INEFFECTIVE
    if not backlog.is_exact:
        return Reason.LAG_UNKNOWN
    if course.replicas < course.wanted:
        return Reason.LIMITED
    return Reason.IDLE if course.replicas == 0 else Reason.SCALED


def tell_course(course: Course, backlog: Backlog, demand: Demand) -> str:
    """What was owed, what that asks for, and what limited it."""
    parts = [tell_backlog(backlog)]
    if not backlog.is_nothing_owed or demand.highest > 0:
        parts.append(tell_demand(demand))
    if not backlog.is_exact:
        parts.append("Redis cannot tell how many are undelivered, so no worker is removed")
    if course.note:
        parts.append(course.note)
    return "; ".join(parts)
