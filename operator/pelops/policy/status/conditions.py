"""The conditions of a resource: what holds, why, and what to do when it does not.

    Ready           everything that was asked for works
    GroupReady      the group, its dead letters and its ledger exist in Redis, and are ours
    WorkloadReady   the workers run
    ScalingActive   somebody decides the number of workers, and who
    RecoveryHealthy stuck entries recover again; present unless recovery is "Off"
    RetentionActive the stream is trimmed; present when retention was asked for
    Suspended       present when spec.suspend is true
    the alarms      present while they hold, with no effect on Ready

The first problem in this order is the one that Ready tells.
"""

from __future__ import annotations

from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.condition import Condition, Finding
from pelops.domain.workload import PodObservation, WorkloadObservation
from pelops.policy.scaling.decision import NOT_DECIDED
from pelops.policy.status.alarms import decide_alarms
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import ConditionType, Reason, fit_reason
from pelops.policy.status.recovery_health import decide_upkeep

# Why nobody decides the number of workers, and Ready does not suffer.
_UNSCALED_AND_WELL: Final = frozenset({Reason.SCALING_OFF, Reason.SUSPENDED, Reason.HOLDING})


def decide_conditions(facts: Facts) -> list[Condition]:
    """All conditions of a resource, Ready first. Total."""
    details = [_group(facts), _workload(facts), _scaling(facts), *decide_upkeep(facts)]
    return [_ready(facts, details), *details, *_suspended(facts), *decide_alarms(facts)]


def refused(problem: Finding) -> list[Condition]:
    """The conditions of a resource whose spec cannot be read at all."""
    return [_false(ConditionType.READY, problem)]


def _ready(facts: Facts, details: list[Condition]) -> Condition:
    failing = [c for c in details if not c.is_true and not _is_harmless(c)]
    if failing:
        first = failing[0]
        return Condition(
            type=ConditionType.READY, status="False", reason=first.reason, message=first.message
        )
    reason = Reason.SUSPENDED if facts.resource.spec.suspend else Reason.READY
    return Condition(
        type=ConditionType.READY,
        status="True",
        reason=reason,
        message=f"{details[0].message}; {details[1].message}",
    )


def _is_harmless(condition: Condition) -> bool:
    """Whether nobody scales for a reason that is asked for, or that another condition tells."""
    is_scaling = condition.type == ConditionType.SCALING_ACTIVE
    return is_scaling and condition.reason in _UNSCALED_AND_WELL


def _group(facts: Facts) -> Condition:
    if facts.redis_problem is not None:
        return _false(ConditionType.GROUP_READY, facts.redis_problem)
    spec, keys = facts.resource.spec, facts.keys
    if keys is None or not facts.is_group_ready:
        if spec.suspend:
            message = "The group is not complete in Redis, and spec.suspend forbids creating it"
            return _false(
                ConditionType.GROUP_READY, Finding(reason=Reason.SUSPENDED, message=message)
            )
        waiting = Finding(reason=Reason.CREATING, message="The group is being created")
        return _false(ConditionType.GROUP_READY, waiting)
    return Condition(
        type=ConditionType.GROUP_READY,
        status="True",
        reason=Reason.GROUP_EXISTS,
        message=f"Group {keys.group} exists on stream {keys.stream}",
    )


def _workload(facts: Facts) -> Condition:
    if not facts.resource.spec.has_workers:
        return Condition(
            type=ConditionType.WORKLOAD_READY,
            status="True",
            reason=Reason.NO_WORKLOAD,
            message="neither targetRef nor template is set: whoever consumes is left alone",
        )
    problem = facts.workload_problem or _workload_problem(facts)
    if problem is not None:
        return _false(ConditionType.WORKLOAD_READY, problem)
    workload = facts.workload
    if workload.wished == 0:
        return Condition(
            type=ConditionType.WORKLOAD_READY,
            status="True",
            reason=Reason.SCALED_TO_ZERO,
            message=f"{workload.target} is scaled to zero",
        )
    return Condition(
        type=ConditionType.WORKLOAD_READY,
        status="True",
        reason=Reason.WORKERS_READY,
        message=f"{workload.ready} of {workload.wished} workers are ready",
    )


def _workload_problem(facts: Facts) -> Finding | None:
    workload = facts.workload
    if not workload.exists:
        return _absent(facts)
    count = f"{workload.ready} of {workload.wished} workers are ready"
    if workload.failure is not None:
        return Finding(
            reason=Reason.PODS_REFUSED,
            message=f"{count}; pods cannot be created: {workload.failure}",
        )
    if workload.ready >= (workload.wished or 0) and workload.is_rolled_out:
        return None
    return _unready(workload, count)


def _absent(facts: Facts) -> Finding:
    target = facts.workload.target
    if facts.resource.spec.template is None:
        return Finding(
            reason=Reason.TARGET_MISSING,
            message=(
                f"{target} does not exist; create it, or correct spec.targetRef. "
                "Pelops goes on by itself when it is there"
            ),
        )
    if not facts.is_group_ready:
        return Finding(
            reason=Reason.WAITING_FOR_GROUP,
            message="The workers start when the group exists: see the condition GroupReady",
        )
    return Finding(reason=Reason.CREATING, message=f"{target} is being created")


def _unready(workload: WorkloadObservation, count: str) -> Finding:
    for pod in workload.pods:
        if pod.waiting_reason == "CrashLoopBackOff":
            return Finding(reason=Reason.CRASH_LOOPING, message=f"{count}; {_crash(workload, pod)}")
    for pod in workload.pods:
        if pod.waiting_reason not in (None, "ContainerCreating", "PodInitializing"):
            detail = f": {pod.waiting_message}" if pod.waiting_message else ""
            return Finding(
                reason=fit_reason(pod.waiting_reason or ""),
                message=f"{count}; pod {pod.name} waits with {pod.waiting_reason}{detail}",
            )
    if workload.unready_nodes:
        nodes = ", ".join(sorted(workload.unready_nodes))
        return Finding(reason=Reason.NODE_NOT_READY, message=f"{count}; not ready: node {nodes}")
    return Finding(reason=Reason.WORKERS_NOT_READY, message=count)


def _crash(workload: WorkloadObservation, pod: PodObservation) -> str:
    code = "" if pod.exit_code is None else f" (exit code {pod.exit_code})"
    namespace = workload.target.namespace
    return (
        f"pod {pod.name} crashed{code} and waits to be started again; "
        f"see kubectl logs -n {namespace} {pod.name} --previous"
    )


def _scaling(facts: Facts) -> Condition:
    if facts.scaling is None:
        reported = _reported_before(facts.resource)
        if reported is not None:
            return reported
    decision = facts.scaling or NOT_DECIDED
    return Condition(
        type=ConditionType.SCALING_ACTIVE,
        status="True" if decision.is_active else "False",
        reason=decision.reason,
        message=decision.message,
    )


def _reported_before(resource: StreamConsumerGroup) -> Condition | None:
    """What the status reports scaling: only the replica that decides may change it."""
    reported = (resource.status.conditions if resource.status else None) or ()
    for condition in reported:
        if condition.type == ConditionType.SCALING_ACTIVE:
            return Condition(
                type=condition.type,
                status=condition.status.value,
                reason=condition.reason,
                message=condition.message,
            )
    return None


def _suspended(facts: Facts) -> list[Condition]:
    if not facts.resource.spec.suspend:
        return []
    message = "spec.suspend is true: Pelops looks and changes nothing"
    return [
        Condition(
            type=ConditionType.SUSPENDED, status="True", reason=Reason.SUSPENDED, message=message
        )
    ]


def _false(kind: str, problem: Finding) -> Condition:
    return Condition(type=kind, status="False", reason=problem.reason, message=problem.message)
