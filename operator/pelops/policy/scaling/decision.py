"""A decision to scale: its form, and the decisions that do not depend on the backlog."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pelops.api.group.scaling import ScalingMode
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.condition import Finding
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling.sharing import Role, Sharing, explain_sharing
from pelops.policy.status.reasons import Reason

_ACTIVE: Final = frozenset(
    {
        Reason.MANUAL,
        Reason.SCALED_BY_AUTOSCALER,
        Reason.SCALED,
        Reason.IDLE,
        Reason.LIMITED,
        Reason.LAG_UNKNOWN,
        Reason.FOLLOWING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """A replica count, or None to leave the replicas alone."""

    replicas: int | None
    reason: Reason  # of the condition ScalingActive
    message: str  # for users, with the numbers that decided
    current: int = 0  # replicas of the workload's spec, including the last write
    keep_at_most: int = 0  # most replicas to keep for workers that hold entries
    only_at_work: bool = False  # count only busy ones: others have finished what they hold
    demand: float | None = None  # of this group alone, before rounding; None: not known

    @property
    def is_change(self) -> bool:
        """Whether `replicas` has to be written."""
        return self.replicas is not None and self.replicas != self.current

    @property
    def needs_busy_count(self) -> bool:
        """Whether to count the busy pods, and call `keep_busy_workers`, before writing."""
        return self.replicas is not None and self.keep_at_most > self.replicas

    @property
    def is_active(self) -> bool:
        """Whether the condition ScalingActive is True."""
        return self.reason in _ACTIVE


NOT_DECIDED: Final = ScalingDecision(
    replicas=None,
    reason=Reason.BACKLOG_UNKNOWN,
    message="The backlog of the group has not been observed yet: the replicas are not changed",
)


_SUSPENDED: Final = ScalingDecision(
    replicas=None,
    reason=Reason.SUSPENDED,
    message="spec.suspend is true: the replicas are not changed",
)


def is_automatic(spec: StreamConsumerGroupSpec) -> bool:
    """Whether the backlog decides the number of workers."""
    return spec.scaling is not None and spec.scaling.mode is ScalingMode.AUTO


def is_measured(spec: StreamConsumerGroupSpec) -> bool:
    """Whether the backlog counts for the number of workers, here or in the resource that leads."""
    mode = None if spec.scaling is None else spec.scaling.mode
    return mode is ScalingMode.AUTO or (mode is ScalingMode.FOLLOW and not spec.recovery.dry_run)


def decide_fixed(
    spec: StreamConsumerGroupSpec, workload: WorkloadObservation, sharing: Sharing | None = None
) -> ScalingDecision | None:
    """Return the decision if it does not depend on Redis; None if the backlog decides. Total.

    A HorizontalPodAutoscaler on the same target always wins, as two writers of one number would
    fight. `sharing` is the role of this resource among those with the same workers; None: there are
    no others.
    """
    if workload.autoscaler is not None:
        return ScalingDecision(
            replicas=None,
            reason=Reason.SCALED_BY_AUTOSCALER,
            message=(
                f"HorizontalPodAutoscaler {workload.autoscaler} scales {workload.target}: Pelops "
                "does not change its replicas"
            ),
        )
    mode = None if spec.scaling is None else spec.scaling.mode
    if sharing is None or sharing.role is Role.LEADS:
        if mode is ScalingMode.MANUAL or (mode is None and spec.template is not None):
            return ScalingDecision(
                replicas=spec.replicas,
                reason=Reason.MANUAL,
                message=f"spec.replicas sets the number of workers: {spec.replicas}",
                current=workload.wished or 0,
            )
        if mode is ScalingMode.AUTO:
            return None
        sharing = Sharing(role=Role.FOLLOWS if mode is ScalingMode.FOLLOW else Role.UNCOUNTED)
    elif spec.suspend:
        return _SUSPENDED
    return _unchanged_because(explain_sharing(sharing, str(workload.target)))


def decide_unchanged(
    spec: StreamConsumerGroupSpec,
    *,
    redis_problem: Finding | None,
    workload_problem: Finding | None,
) -> ScalingDecision | None:
    """Return why the replicas are not changed, whatever the backlog; None if they may be.

    Every replica of the operator reaches the same result. One reason is that another resource acts
    on the group. An unreachable Redis is not: the number is then held.
    """
    if spec.suspend:
        return _SUSPENDED
    if redis_problem is not None and redis_problem.reason == Reason.CONFLICT:
        return _unchanged_because(redis_problem)
    return None if workload_problem is None else _unchanged_because(workload_problem)


def _unchanged_because(problem: Finding) -> ScalingDecision:
    return ScalingDecision(replicas=None, reason=Reason(problem.reason), message=problem.message)


def keep_busy_workers(decision: ScalingDecision, busy: int | None) -> ScalingDecision:
    """Return the decision changed so that no pod that holds entries is deleted. Total.

    It never adds workers. `busy` is the number of such pods; None: not known, keep as many as may
    hold entries.
    """
    if decision.replicas is None or not decision.needs_busy_count:
        return decision
    kept = decision.keep_at_most if busy is None else min(busy, decision.keep_at_most)
    if kept <= decision.replicas:
        return decision
    if busy is None:
        why = "it is unknown which workers have pending entries"
    else:
        why = f"{busy:,} worker{' has' if busy == 1 else 's have'} pending entries"
    return replace(
        decision,
        replicas=kept,
        reason=Reason.SCALED if decision.reason is Reason.IDLE else decision.reason,
        message=f"{decision.message}; held at {kept:,}, because {why}",
        keep_at_most=0,
    )


def report_dry(decision: ScalingDecision, workload: WorkloadObservation) -> ScalingDecision:
    """Return the decision in a dry run: what is wanted, and that it is not written."""
    wanted = decision.replicas
    if wanted is None or wanted == workload.wished or not workload.exists:
        return decision
    return replace(
        decision,
        message=(
            f"spec.recovery.dryRun is true: {workload.target} is not scaled to {wanted:,}. "
            f"{decision.message}"
        ),
    )


def report_failure(decision: ScalingDecision, problem: Finding) -> ScalingDecision:
    """Return the decision after its write failed: what is wanted, and why it was not written."""
    return ScalingDecision(
        replicas=decision.replicas,
        reason=Reason(problem.reason),
        message=f"{problem.message}. {decision.message}",
    )
