"""When the replicas are nobody's to decide here, though what is owed should decide them."""

from __future__ import annotations

from pelops.api.scaling import ScalingMode
from pelops.api.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.condition import Finding
from pelops.policy.reasons import Reason
from pelops.policy.scaling import ScalingDecision


def is_automatic(spec: StreamConsumerGroupSpec) -> bool:
    """Whether what is owed decides the number of workers."""
    return spec.scaling is not None and spec.scaling.mode is ScalingMode.AUTO


def keep_hands_off(
    spec: StreamConsumerGroupSpec,
    *,
    redis_problem: Finding | None,
    workload_problem: Finding | None,
) -> ScalingDecision | None:
    """Why the replicas are left as they are, whatever the group owes; None when they are not.

    Every replica of the operator comes to the same answer. A Redis that cannot be seen is no
    reason: `decide_replicas` holds the number then. Another resource that acts on the group is one.
    """
    if spec.suspend:
        return ScalingDecision(
            replicas=None,
            reason=Reason.SUSPENDED,
            message="spec.suspend is true: the replicas are left as they are",
        )
    if redis_problem is not None and redis_problem.reason == Reason.CONFLICT:
        return _leave(redis_problem)
    return None if workload_problem is None else _leave(workload_problem)


def _leave(problem: Finding) -> ScalingDecision:
    return ScalingDecision(replicas=None, reason=Reason(problem.reason), message=problem.message)


def tell_failure(decision: ScalingDecision, problem: Finding) -> ScalingDecision:
    """The decision after writing it failed: what is wanted, and why it is not so."""
    return ScalingDecision(
        replicas=decision.replicas,
        reason=Reason(problem.reason),
        message=f"{problem.message}; {decision.message}",
    )
