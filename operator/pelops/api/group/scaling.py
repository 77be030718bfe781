"""How many workers: `spec.scaling`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field, JsonValue

from pelops.api.schema.base import (
    LONGEST_WAIT_SECONDS,
    MAX_REPLICAS,
    ApiModel,
    PositiveCount,
    Replicas,
    Rule,
    cel,
)


class ScalingMode(StrEnum):
    """Who decides the number of workers.

    "Disabled", since YAML 1.1 reads a bare `Off` as false.
    """

    AUTO = "Auto"
    MANUAL = "Manual"
    FOLLOW = "Follow"
    DISABLED = "Disabled"


DEFAULT_SCALING_MODE: Final = ScalingMode.AUTO


class Combine(StrEnum):
    """How the demands of the groups that share one workload become one number."""

    SUM = "Sum"
    MAX = "Max"


class PolicyType(StrEnum):
    """What the value of a scaling policy counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class PolicySelect(StrEnum):
    """Which of several scaling policies decides."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class ScalingPolicy(ApiModel):
    """Limit of the change of the number of workers within a period."""

    type: PolicyType = Field(
        description=(
            "Unit of value. Pods: a number of pods. Percent: a percentage of the current replicas."
        )
    )
    value: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        description="Largest change within the period, in pods or percent."
    )
    period_seconds: Annotated[int, Field(ge=1, le=1800)] = Field(
        description="Length of the period, in seconds."
    )


_Policies = Annotated[tuple[ScalingPolicy, ...], Field(min_length=1, max_length=16)]
_Window = Annotated[int, Field(ge=0, le=3600)]
_TolerancePercent = Annotated[int, Field(ge=0, le=100)]
# By default a HorizontalPodAutoscaler adds 4 pods or 100% every 15 seconds. Pelops adds faster: it
# observes the backlog each second, and entries that wait cost more than idle pods.
_UP: Final = (
    ScalingPolicy(type=PolicyType.PODS, value=10, period_seconds=10),
    ScalingPolicy(type=PolicyType.PERCENT, value=100, period_seconds=10),
)
_DOWN: Final = (ScalingPolicy(type=PolicyType.PERCENT, value=100, period_seconds=15),)
_ATOMIC: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
_SELECT = (
    "Policy that applies if there are several. Max: the one that allows the largest change. Min: "
    "the one that allows the smallest change. Disabled: no change in this direction."
)
_TOLERANCE = (
    "Largest difference between the wanted and the current number of workers, in percent of the"
    " current number, that is ignored."
)


class ScaleUpRules(ApiModel):
    """Limits on adding workers."""

    stabilization_window_seconds: _Window = Field(
        default=0,
        description=(
            "Seconds over which the smallest wanted number of workers is used. With 0 "
            "workers are added immediately."
        ),
    )
    policies: _Policies = Field(
        default=_UP,
        description=(
            "Limits on how fast workers are added. Default: 10 pods or 100 percent in "
            "10 s, whichever is more."
        ),
        json_schema_extra=_ATOMIC,
    )
    select_policy: PolicySelect = Field(default=PolicySelect.MAX, description=_SELECT)
    tolerance_percent: _TolerancePercent = Field(default=10, description=_TOLERANCE)


class ScaleDownRules(ApiModel):
    """Limits on removing workers."""

    stabilization_window_seconds: _Window = Field(
        default=60,
        description=(
            "Seconds over which the largest wanted number of workers is used, so that "
            "a short lull removes no workers."
        ),
    )
    policies: _Policies = Field(
        default=_DOWN,
        description="Limits on how fast workers are removed. Default: 100 percent in 15 s.",
        json_schema_extra=_ATOMIC,
    )
    select_policy: PolicySelect = Field(default=PolicySelect.MAX, description=_SELECT)
    tolerance_percent: _TolerancePercent = Field(default=10, description=_TOLERANCE)


class BehaviorSpec(ApiModel):
    """How fast the number of workers may move; the fields of HorizontalPodAutoscaler v2.

    Its `tolerance` is `tolerancePercent` here: a Quantity in a CRD refuses a bare 0.1.
    """

    scale_up: ScaleUpRules = Field(
        default=ScaleUpRules(),
        description="Limits on adding workers. They do not apply from 0 workers to 1.",
    )
    scale_down: ScaleDownRules = Field(
        default=ScaleDownRules(), description="Limits on removing workers."
    )


class ScalingSpec(ApiModel):
    """Scaling on the backlog: what the group has not been delivered, and what is pending."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="self.minReplicas <= self.maxReplicas",
                message="minReplicas must not be greater than maxReplicas",
                field_path=".minReplicas",
            )
        )
    )

    mode: ScalingMode = Field(
        default=DEFAULT_SCALING_MODE,
        description=(
            "Source of the number of workers. Auto: the operator, from the backlog. "
            "Manual: spec.replicas, which kubectl scale, a HorizontalPodAutoscaler or "
            "KEDA can set through the scale subresource. Follow: another resource "
            "with the same workload and mode Auto, which counts the demand of this "
            "group as well. Disabled: the operator does not change the replicas."
        ),
    )
    combine: Combine = Field(
        default=Combine.SUM,
        description=(
            "Combination of the demands of all groups with this workload, in mode "
            "Auto. Sum: workers share their time between the streams. Max: each "
            "worker serves every stream at its full rate, so the greatest demand is "
            "enough for all."
        ),
    )
    min_replicas: Replicas = Field(
        default=0,
        description=(
            "Smallest number of workers. With 0 an idle group runs no pod, and the "
            "next new entry starts one."
        ),
    )
    max_replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        default=10, description="Largest number of workers."
    )
    backlog_per_replica: PositiveCount = Field(
        default=100,
        description="Number of entries of backlog (lag plus pending) per worker.",
    )
    drain_within_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None = Field(
        default=None,
        description=(
            "Seconds within which the backlog should be processed, which adds workers "
            "by the measured rate per worker. If absent, only backlogPerReplica and "
            "the arrival rate count."
        ),
    )
    cooldown_seconds: Annotated[int, Field(ge=0, le=86400)] = Field(
        default=60,
        description=(
            "Seconds without backlog after which the number of workers goes to 0, if "
            "minReplicas is 0."
        ),
    )
    behavior: BehaviorSpec = Field(
        default=BehaviorSpec(),
        description=(
            "Limits on how fast the number of workers changes: the fields of "
            "HorizontalPodAutoscaler v2, with other defaults, and with "
            "tolerancePercent (an integer) instead of tolerance."
        ),
    )
