"""How many workers a resource should have, when a person or another controller says the number.

Facts in, decision out: nothing here reads Redis, Kubernetes or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from pelops.api.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.workload import WorkloadObservation
from pelops.policy.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """A replica count, or None to leave the replicas alone."""

    replicas: int | None
    reason: Reason  # of the condition ScalingActive
    message: str  # for people: names the numbers that decided


def decide_replicas(
    spec: StreamConsumerGroupSpec, workload: WorkloadObservation
) -> ScalingDecision:
    """Choose the replica count. Total for valid specs.

    A HorizontalPodAutoscaler on the same target always wins: two owners of one number fight.
    """
    if workload.autoscaler is not None:
        return ScalingDecision(
            replicas=None,
            reason=Reason.SCALED_BY_AUTOSCALER,
            message=(
                f"HorizontalPodAutoscaler {workload.autoscaler} scales {workload.target}; its "
                "replicas are left to it"
            ),
        )
    if _says_number(spec):
        return ScalingDecision(
            replicas=spec.replicas,
            reason=Reason.MANUAL,
            message=f"{spec.replicas} wanted by spec.replicas",
        )
    if spec.scaling is not None and spec.scaling.mode == "Auto":
        return ScalingDecision(
            replicas=None,
            reason=Reason.NOT_IMPLEMENTED,
            message=(
                "spec.scaling.mode Auto is not available in this version; the replicas are left "
                "alone. Use mode Manual with spec.replicas, or leave the mode out"
            ),
        )
    return ScalingDecision(
        replicas=None,
        reason=Reason.SCALING_OFF,
        message="automatic scaling is off: the replicas are left alone",
    )


def _says_number(spec: StreamConsumerGroupSpec) -> bool:
    if spec.scaling is None:
        return spec.template is not None
    return spec.scaling.mode == "Manual"
