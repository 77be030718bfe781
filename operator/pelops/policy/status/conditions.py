"""The conditions of a resource: what holds, why, and what to do when it does not.

    Ready            Everything that the spec requires works.
    GroupReady       The group, its dead-letter stream and its ledger exist in Redis, and this
                     resource manages them.
    WorkloadReady    The workers run.
    ScalingActive    The number of workers is decided; the reason is by what.
    RecoveryHealthy  Stuck entries are recovered; present unless recovery is Disabled.
    RetentionActive  The stream is trimmed; present if spec.retention is set.
    Suspended        Present if spec.suspend is true.
    The alarms       Present while they hold, with no effect on Ready.

Ready reports the first problem in this order.

A message contains no changing numbers: otherwise every entry would cause a write. Problems of
recovery that last until a user acts are decided here, at once; others are from the last scan.
"""

from __future__ import annotations

from typing import Final

from pelops.api.group.recovery import RecoverySpec, RecoveryStrategy, RetentionSpec
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.condition import MESSAGE_LIMIT, Condition, Finding, Truth
from pelops.domain.locks import lock_slot_problem
from pelops.domain.naming import GroupKeys
from pelops.domain.quantities import render_seconds
from pelops.domain.stream_observation import StreamObservation
from pelops.domain.workload import PodObservation, WorkloadObservation
from pelops.errors import InvalidSpec
from pelops.policy.scaling.decision import NOT_DECIDED, report_dry
from pelops.policy.status.alarms import decide_alarms
from pelops.policy.status.facts import Facts, printable
from pelops.policy.status.reasons import ConditionType, Reason, fit_reason

CLUSTER: Final = "Cluster"
_SUSPENDED: Final = "spec.suspend is true"
_DRY: Final = "spec.recovery.dryRun is true"


def decide_upkeep(facts: Facts) -> list[Condition]:
    """Return RecoveryHealthy and RetentionActive, each if the spec enables it."""
    asked = []
    if facts.recovers:
        asked.append(_recovery(facts))
    if facts.resource.spec.retention is not None:
        asked.append(_retention(facts, facts.resource.spec.retention))
    return asked


def find_refusal(
    recovery: RecoverySpec, keys: GroupKeys, stream: StreamObservation, *, is_cluster: bool
) -> Finding | None:
    """Return why nothing can be recovered before a user changes something; None if it can."""
    return (
        _duplicates(recovery, stream)
        or _position_ahead(keys, stream)
        or (_locks_unusable(recovery, keys) if is_cluster else None)
    )


def _recovery(facts: Facts) -> Condition:
    kind, spec = ConditionType.RECOVERY_HEALTHY, facts.resource.spec
    problem = _not_possible(facts, "Stuck entries are not recovered") or _refusal(facts)
    if problem is not None:
        return _condition(kind, "False", problem)
    if spec.suspend:
        message = f"{_SUSPENDED}: stuck entries are not recovered"
        return _condition(kind, "True", Finding(reason=Reason.SUSPENDED, message=message))
    finding = _reported(facts)
    if finding is not None:
        # Keyspace notifications about locks only make recovery faster; it works without them.
        is_fine = finding.reason == Reason.KEYSPACE_NOTIFICATIONS_UNAVAILABLE
        return _condition(kind, "True" if is_fine else "False", finding)
    if facts.offers_fail:
        message = (
            "Stuck entries stay pending: they are offered to workers that claim entries, and no "
            "worker takes them. See the condition OffersNotTaken"
        )
        return _condition(kind, "False", Finding(reason=Reason.OFFERS_NOT_TAKEN, message=message))
    message = _describe(spec.recovery, facts.keys)
    if facts.is_dry:
        counted = f"{_DRY}: stuck entries are only counted, in status.recovery.dryRun"
        message = f"{counted}. Without a dry run: {message[:1].lower()}{message[1:]}"
        return _condition(kind, "True", Finding(reason=Reason.DRY_RUN, message=message))
    return _condition(kind, "True", Finding(reason=Reason.SCANNING, message=message))


def _retention(facts: Facts, retention: RetentionSpec) -> Condition:
    kind = ConditionType.RETENTION_ACTIVE
    problem = _not_possible(facts, "Nothing is trimmed")
    if problem is not None:
        return _condition(kind, "False", problem)
    if facts.resource.spec.suspend:
        message = f"{_SUSPENDED}: nothing is trimmed"
        return _condition(kind, "True", Finding(reason=Reason.SUSPENDED, message=message))
    if facts.is_dry:
        message = (
            f"{_DRY}: nothing is trimmed. Without it, entries are trimmed {_limits(retention)}"
        )
        return _condition(kind, "True", Finding(reason=Reason.DRY_RUN, message=message))
    message = (
        f"Entries are trimmed {_limits(retention)}, if every group has acknowledged them. When "
        "several resources have the same stream, the largest limits apply"
    )
    return _condition(kind, "True", Finding(reason=Reason.TRIMMING, message=message))


def _not_possible(facts: Facts, consequence: str) -> Finding | None:
    message = f"{consequence}: see the condition GroupReady"
    if facts.redis_problem is not None:
        return Finding(reason=facts.redis_problem.reason, message=message)
    if facts.keys is None or not facts.is_group_ready:
        return Finding(reason=Reason.WAITING_FOR_GROUP, message=message)
    return None


def _refusal(facts: Facts) -> Finding | None:
    if facts.keys is None or facts.stream is None:
        return None
    is_cluster = facts.topology == CLUSTER
    recovery = facts.resource.spec.recovery
    return find_refusal(recovery, facts.keys, facts.stream, is_cluster=is_cluster)


def _reported(facts: Facts) -> Finding | None:
    report = facts.state.report
    # This pass counts the groups itself, more recently than the last scan.
    if report.reason in ("", Reason.REQUEUE_WOULD_DUPLICATE):
        return None
    return Finding(
        reason=fit_reason(report.reason, otherwise=Reason.UNEXPECTED_ERROR),
        message=printable(report.message, MESSAGE_LIMIT)
        or "The last scan failed: see the log of the operator",
    )


def _duplicates(recovery: RecoverySpec, stream: StreamObservation) -> Finding | None:
    if not _requeues_to_stream(recovery) or stream.groups <= 1:
        return None
    return Finding(
        reason=Reason.REQUEUE_WOULD_DUPLICATE,
        message=(
            "The stream has other consumer groups, and each of them would receive the copies of "
            "stuck entries as well, so Pelops does not requeue them: they stay pending. Set "
            "spec.recovery.strategy: RetryStream (a stream that only this group reads; the workers "
            "must read it in the same XREADGROUP), or Release (for workers that claim entries, "
            "such as those of the SDK)"
        ),
        is_terminal=True,
    )


def _position_ahead(keys: GroupKeys, stream: StreamObservation) -> Finding | None:
    group = stream.group
    if group is None or group.last_delivered_id <= stream.last_generated_id:
        return None
    return Finding(
        reason=Reason.POSITION_AHEAD,
        message=(
            f"The position of group {keys.group} is {group.last_delivered_id}, ahead of the last "
            f"ID of stream {keys.stream}: Redis never delivers entries that are added with lower "
            "IDs, so Pelops recovers nothing. The position was set by hand, the stream was created "
            "anew, or a clock went back. Set the position to the ID after which delivery "
            f"continues: XGROUP SETID {keys.stream} {keys.group} ID (0 delivers every entry of the "
            "stream)"
        ),
        is_terminal=True,
    )


def _locks_unusable(recovery: RecoverySpec, keys: GroupKeys) -> Finding | None:
    if recovery.locks is None:
        return None
    try:
        problem = lock_slot_problem(recovery.locks.key_template, keys)
    except InvalidSpec as error:
        problem = str(error)
    if problem is None:
        return None
    message = (
        f"spec.recovery.locks: {problem}. Without this, Pelops cannot check the locks, so it "
        "recovers nothing"
    )
    return Finding(reason=Reason.LOCK_IN_ANOTHER_SLOT, message=message, is_terminal=True)


def _requeues_to_stream(recovery: RecoverySpec) -> bool:
    return recovery.strategy is RecoveryStrategy.REQUEUE


def _describe(recovery: RecoverySpec, keys: GroupKeys | None) -> str:
    limit = render_seconds(recovery.processing_timeout_seconds)
    freed = (
        "immediately when the pod of their worker has ended; after a restart within the pod if "
        f"they were delivered some seconds before it; otherwise {limit} after their last "
        "delivery or heartbeat"
    )
    if recovery.locks is not None:
        freed = f"{freed}, or {render_seconds(recovery.lock_free_seconds)} without their lock"
    return f"Stuck entries are {_destination(recovery, keys)}: {freed}"


def _destination(recovery: RecoverySpec, keys: GroupKeys | None) -> str:
    if recovery.strategy is RecoveryStrategy.RELEASE:
        return "offered to workers that claim entries"
    if _requeues_to_stream(recovery) or keys is None:
        return "copied to the end of the stream"
    return f"copied to {keys.retry}, which the workers must read as well"


def _limits(retention: RetentionSpec) -> str:
    limits = []
    if retention.max_length is not None:
        limits.append(f"when the stream has more than {retention.max_length:,} entries")
    if retention.max_age_seconds is not None:
        limits.append(f"after {render_seconds(retention.max_age_seconds)}")
    return " or ".join(limits)


def _condition(kind: str, status: Truth, finding: Finding) -> Condition:
    return Condition(type=kind, status=status, reason=finding.reason, message=finding.message)


# Reasons for not deciding the number of workers that have no effect on Ready.
_UNSCALED_AND_WELL: Final = frozenset(
    {Reason.SCALING_DISABLED, Reason.SUSPENDED, Reason.BACKLOG_UNKNOWN}
)


def decide_conditions(facts: Facts) -> list[Condition]:
    """Return all conditions of a resource, Ready first. Total."""
    details = [_group(facts), _workload(facts), _scaling(facts), *decide_upkeep(facts)]
    return [_ready(facts, details), *details, *_suspended(facts), *decide_alarms(facts)]


def refused(problem: Finding) -> list[Condition]:
    """Return the conditions of a resource whose spec cannot be read."""
    return [_false(ConditionType.READY, problem)]


def _ready(facts: Facts, details: list[Condition]) -> Condition:
    failing = [c for c in details if not c.is_true and not _is_harmless(c)]
    if failing:
        first = failing[0]
        return Condition(
            type=ConditionType.READY, status="False", reason=first.reason, message=first.message
        )
    reason = Reason.DRY_RUN if facts.is_dry else Reason.READY
    reason = Reason.SUSPENDED if facts.resource.spec.suspend else reason
    return Condition(
        type=ConditionType.READY,
        status="True",
        reason=reason,
        message=f"{details[0].message}; {details[1].message}",
    )


def _is_harmless(condition: Condition) -> bool:
    """Whether scaling is inactive by choice, or for a reason that another condition reports."""
    is_scaling = condition.type == ConditionType.SCALING_ACTIVE
    return is_scaling and condition.reason in _UNSCALED_AND_WELL


def _group(facts: Facts) -> Condition:
    if facts.redis_problem is not None:
        return _false(ConditionType.GROUP_READY, facts.redis_problem)
    spec, keys = facts.resource.spec, facts.keys
    if keys is None or not facts.is_group_ready:
        if spec.suspend:
            message = (
                "The group, its dead-letter stream or its ledger is missing in Redis, and "
                "spec.suspend: true prevents creating it"
            )
            return _false(
                ConditionType.GROUP_READY, Finding(reason=Reason.SUSPENDED, message=message)
            )
        if facts.is_dry:
            return _false(ConditionType.GROUP_READY, _missing(facts))
        waiting = Finding(reason=Reason.CREATING, message=_creating(facts))
        return _false(ConditionType.GROUP_READY, waiting)
    return Condition(
        type=ConditionType.GROUP_READY,
        status="True",
        reason=Reason.GROUP_EXISTS,
        message=f"Group {keys.group} exists on stream {keys.stream}{_lacking(facts)}",
    )


def _missing(facts: Facts) -> Finding:
    """Return what is missing in a dry run, which does not create it."""
    keys, stream = facts.keys, facts.stream
    group = keys.group if keys else facts.resource.group_name
    what = f"Group {group} does not exist on stream {facts.resource.spec.stream}"
    if stream is not None and not stream.exists:
        what = f"Stream {facts.resource.spec.stream} does not exist"
    return Finding(
        reason=Reason.GROUP_MISSING,
        message=(
            f"{what}, and {_DRY}, so nothing is created. Correct spec.stream and spec.group, or set"
            " dryRun to false to have them created"
        ),
    )


def _lacking(facts: Facts) -> str:
    """Return a clause about what would be created for an existing group; empty if nothing."""
    if not facts.is_dry or facts.stream is None or facts.stream.is_provisioned:
        return ""
    return (
        f"; {_DRY}, so nothing is written. Without it, Pelops creates its own keys, such as "
        "the dead-letter stream and the ledger"
    )


def _creating(facts: Facts) -> str:
    resource = facts.resource
    return f"Creating group {resource.group_name} on stream {resource.spec.stream}"


def _workload(facts: Facts) -> Condition:
    if not facts.resource.spec.has_workers:
        return Condition(
            type=ConditionType.WORKLOAD_READY,
            status="True",
            reason=Reason.NO_WORKLOAD,
            message="Neither spec.targetRef nor spec.template is set: Pelops manages no workers",
        )
    if facts.is_dry and facts.resource.spec.template is not None and not facts.workload.exists:
        message = f"{_DRY}: {facts.workload.target} is not created"
        return _condition(
            ConditionType.WORKLOAD_READY, "True", Finding(reason=Reason.DRY_RUN, message=message)
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
        message=f"{workload.ready:,} of {workload.wished or 0:,} workers are ready",
    )


def _workload_problem(facts: Facts) -> Finding | None:
    workload = facts.workload
    if not workload.exists:
        return _absent(facts)
    count = f"{workload.ready:,} of {workload.wished or 0:,} workers are ready"
    if workload.failure is not None:
        return Finding(
            reason=Reason.PODS_REFUSED,
            message=f"{count}; pods cannot be created: {workload.failure}. Raise the quota, or "
            "correct "
            "the policy or the webhook that refuses them",
        )
    if workload.ready < (workload.wished or 0):
        return _unready(workload, count)
    if not workload.is_rolled_out:
        message = f"{workload.target} was changed, and its controller has not started the rollout"
        return Finding(reason=Reason.WORKERS_NOT_READY, message=message)
    return None


def _absent(facts: Facts) -> Finding:
    target = facts.workload.target
    if facts.resource.spec.template is None:
        return Finding(
            reason=Reason.TARGET_MISSING,
            message=(
                f"{target} does not exist; create it, or correct spec.targetRef. "
                "Pelops continues as soon as it exists"
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
                message=(
                    f"{count}; pod {pod.name} is waiting: {pod.waiting_reason}{detail}; see "
                    f"kubectl describe pod -n {workload.target.namespace} {pod.name}"
                ),
            )
    if workload.unready_nodes:
        nodes = ", ".join(sorted(workload.unready_nodes))
        return Finding(
            reason=Reason.NODE_NOT_READY,
            message=f"{count}; nodes that are not Ready: {nodes}; see kubectl describe nodes",
        )
    if workload.overdue is not None:
        return Finding(
            reason=Reason.PROGRESS_DEADLINE_EXCEEDED,
            message=f"{count}; the rollout exceeded its progress deadline: "
            f"{workload.overdue.rstrip('.')}; see "
            f"kubectl get pods -n {workload.target.namespace} -o wide",
        )
    return Finding(
        reason=Reason.WORKERS_NOT_READY,
        message=f"{count}; see kubectl get pods -n {workload.target.namespace} -o wide",
    )


def _crash(workload: WorkloadObservation, pod: PodObservation) -> str:
    code = "" if pod.exit_code is None else f" (exit code {pod.exit_code})"
    namespace = workload.target.namespace
    return (
        f"pod {pod.name} crashed{code} and is waiting for its next restart; "
        f"see kubectl logs -n {namespace} {pod.name} --previous"
    )


def _scaling(facts: Facts) -> Condition:
    if facts.scaling is None:
        previous = _reported_before(facts.resource)
        if previous is not None:
            return previous
    decision = facts.scaling or NOT_DECIDED
    if facts.is_dry:
        decision = report_dry(decision, facts.workload)
    return Condition(
        type=ConditionType.SCALING_ACTIVE,
        status="True" if decision.is_active else "False",
        reason=decision.reason,
        message=decision.message,
    )


def _reported_before(resource: StreamConsumerGroup) -> Condition | None:
    """Return ScalingActive from the status: only the replica that decides may change it."""
    conditions = (resource.status.conditions if resource.status else None) or ()
    for condition in conditions:
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
    message = f"{_SUSPENDED}: Pelops observes the group and changes nothing"
    return [
        Condition(
            type=ConditionType.SUSPENDED, status="True", reason=Reason.SUSPENDED, message=message
        )
    ]


def _false(kind: str, problem: Finding) -> Condition:
    return Condition(type=kind, status="False", reason=problem.reason, message=problem.message)
