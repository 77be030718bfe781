"""What the operator reports: `status`.

Every field may be absent: a fresh resource has no status, and what could not be seen is left out
rather than guessed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from pelops.api.schema.base import (
    ApiModel,
    Count,
    KeyName,
    ObservedGeneration,
    RedisName,
    Text,
    Timestamp,
)

EntryIdText = Annotated[str, Field(max_length=41, pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]
_Cell = Annotated[str, Field(max_length=64)]


# As metav1.Condition in k8s.io/apimachinery has it: linters and clients compare it.
_CONDITION_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class StatusCondition(ApiModel):
    """One statement about the resource, with a reason for programs and a message for people."""

    type: Annotated[str, Field(min_length=1, max_length=316, pattern=_CONDITION_TYPE)] = Field(
        description="Type of the condition, such as Ready."
    )
    status: ConditionStatus = Field(description="True, False or Unknown.")
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ] = Field(description="Reason for the status, as one CamelCase word for programs.")
    message: Annotated[str, Field(max_length=32768)] = Field(
        description="Explanation of the status for people, and what to do about it."
    )
    last_transition_time: Timestamp = Field(description="Time at which the status last changed.")
    observed_generation: Count | None = Field(
        default=None, description="Generation of the spec that the condition describes."
    )


class GroupStatus(ApiModel):
    """The consumer group as Redis shows it."""

    name: RedisName | None = Field(default=None, description="Name of the group in Redis.")
    last_delivered_id: EntryIdText | None = Field(
        default=None, description="ID of the last entry that was delivered to the group."
    )
    pending: Count | None = Field(
        default=None,
        description=(
            "Number of pending entries (delivered, not acknowledged) of the stream "
            "and the retry stream."
        ),
    )
    lag: Count | None = Field(
        default=None,
        description=(
            "Number of undelivered entries of the stream and the retry stream if "
            "lagKnown is true, otherwise a lower bound. Absent if nothing is known."
        ),
    )
    lag_known: bool | None = Field(
        default=None,
        description=(
            "True if lag is exact. Redis does not know the lag after undelivered "
            "entries were deleted or the position was set by hand."
        ),
    )
    oldest_pending_time: Timestamp | None = Field(
        default=None,
        description=(
            "Time at which the oldest pending entry of the stream and the retry "
            "stream was added, from its ID. Absent if no entry is pending."
        ),
    )
    consumers: Count | None = Field(default=None, description="Number of consumers of the group.")
    owned_by: Text | None = Field(
        default=None,
        description=(
            "StreamConsumerGroup that manages this group, as NAMESPACE/NAME, if it is another one."
        ),
    )


class StreamStatus(ApiModel):
    """The stream as Redis shows it."""

    length: Count | None = Field(default=None, description="Number of entries in the stream.")
    entries_added: Count | None = Field(
        default=None,
        description=(
            "Number of entries that were ever added to the stream, as counted by "
            "Redis. A smaller number than before means that the stream was deleted, "
            "or that Redis restarted with an older state."
        ),
    )
    last_generated_id: EntryIdText | None = Field(
        default=None, description="ID of the entry that was added last."
    )


class RetryStreamStatus(ApiModel):
    """The retry stream of the group alone; its numbers are part of those of the group."""

    name: KeyName | None = Field(default=None, description="Key of the retry stream.")
    pending: Count | None = Field(default=None, description="Number of its pending copies.")
    lag: Count | None = Field(
        default=None,
        description=(
            "Number of its undelivered copies if lagKnown is true, otherwise a lower bound."
        ),
    )
    lag_known: bool | None = Field(default=None, description="True if lag is exact.")
    oldest_pending_time: Timestamp | None = Field(
        default=None,
        description=(
            "Time at which its oldest pending copy was added. Absent if no copy is pending."
        ),
    )


class DeadLetterStatus(ApiModel):
    """The dead letters of the group."""

    stream: KeyName | None = Field(default=None, description="Key of the dead-letter stream.")
    length: Count | None = Field(default=None, description="Number of dead letters.")


class ReportedTopology(StrEnum):
    """How the servers are arranged."""

    STANDALONE = "Standalone"
    SENTINEL = "Sentinel"
    CLUSTER = "Cluster"


class RedisStatus(ApiModel):
    """The server that answered."""

    topology: ReportedTopology | None = Field(
        default=None, description="Topology of the server, as detected."
    )
    version: Text | None = Field(default=None, description="Version of the server.")


class DryRunAction(StrEnum):
    """What recovery would do with a stuck entry."""

    REQUEUE = "Requeue"
    RELEASE = "Release"
    DEAD_LETTER = "DeadLetter"
    KEEP = "Keep"


class DryRunOutcome(ApiModel):
    """Stuck entries that would be treated alike, for the same reason."""

    action: DryRunAction = Field(
        description=(
            "Action of recovery. Requeue: copy and acknowledge. Release: offer to "
            "claiming workers. DeadLetter: move to the dead-letter stream. Keep: "
            "leave pending until the next scan."
        )
    )
    reason: Annotated[str, Field(max_length=64)] = Field(
        description=(
            "Reason for the action, such as PodGone, ProcessingTimeout or MaxRetriesExceeded."
        )
    )
    entries: Count = Field(description="Number of entries.")


class DryRunStatus(ApiModel):
    """What the last scan of a dry run found."""

    stuck: Count | None = Field(default=None, description="Number of stuck entries.")
    outcomes: Annotated[tuple[DryRunOutcome, ...], Field(max_length=64)] | None = Field(
        default=None,
        description=("Numbers of stuck entries by action and reason. Absent if no entry is stuck."),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["action", "reason"],
        },
    )
    reason: Annotated[str, Field(max_length=128)] | None = Field(
        default=None,
        description="Reason for which recovery would not work. Absent if it would work.",
    )
    message: Text | None = Field(default=None, description="Explanation of the reason, for people.")


class RecoveryStatus(ApiModel):
    """Results of recovery since the ledger of the group began, and the entries that it left."""

    requeued: Count | None = Field(
        default=None,
        description=(
            "Number of stuck entries that were copied to the end of the stream or to "
            "the retry stream."
        ),
    )
    released: Count | None = Field(
        default=None,
        description=("Number of stuck entries that claiming workers took after they were offered."),
    )
    dead_lettered: Count | None = Field(
        default=None,
        description=(
            "Number of entries that the operator moved to the dead-letter stream, "
            "without those that workers moved."
        ),
    )
    payload_gone: Count | None = Field(
        default=None,
        description=(
            "Number of pending entries that were acknowledged because their body had been deleted."
        ),
    )
    stuck: Count | None = Field(
        default=None,
        description=(
            "Number of stuck entries that the last scan left pending. If entries are "
            "not recovered, at most 10000 are counted in each stream. Absent before "
            "the first scan, and while locks cannot be checked."
        ),
    )
    waiting: Count | None = Field(
        default=None,
        description=(
            "Number of stuck entries that failed together with others and wait to be "
            "retried one by one."
        ),
    )
    offered: Count | None = Field(
        default=None,
        description=(
            "Number of stuck entries that are offered to claiming workers and not taken yet."
        ),
    )
    unmovable: Count | None = Field(
        default=None,
        description=(
            "Number of stuck entries that recovery cannot move. They stay pending; "
            "the condition UnmovableEntries explains why."
        ),
    )
    last_scan_time: Timestamp | None = Field(
        default=None,
        description=(
            "Time of the last completed scan, on the clock of Redis, when this status was "
            "written. A scan alone does not cause a write, so the value of an idle "
            "group is older."
        ),
    )
    unmatched_consumers: Annotated[tuple[Text, ...], Field(max_length=5)] | None = Field(
        default=None,
        description=(
            "Names of consumers with pending entries that match no pod, at most 5. "
            "Their entries are recovered after the processing timeout only."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    dry_run: DryRunStatus | None = Field(
        default=None,
        description=(
            "Result of the last scan of a dry run. Present while spec.recovery.dryRun is true."
        ),
    )


class SharedGroupStatus(ApiModel):
    """Another resource with the same workers."""

    name: Text | None = Field(default=None, description="Name of the resource.")
    mode: Text | None = Field(
        default=None,
        description="Value of its spec.scaling.mode. Absent if it has no spec.scaling.",
    )
    demand: Text | None = Field(
        default=None,
        description=(
            "Number of workers that its backlog calls for, before rounding and "
            "limits, such as 1.25. Absent if it is unknown or does not count."
        ),
    )


class ScalingStatus(ApiModel):
    """Who decides the number of workers, and what each group with the same workers asks for."""

    leader: Text | None = Field(
        default=None,
        description=(
            "Name of the resource that decides the number of workers. Absent if none does."
        ),
    )
    demand: Text | None = Field(
        default=None,
        description=(
            "Number of workers that the backlog of this group calls for, before "
            "rounding and limits, such as 1.25. Absent if it is unknown or does not "
            "count."
        ),
    )
    shared_with: Annotated[tuple[SharedGroupStatus, ...], Field(max_length=20)] | None = Field(
        default=None,
        description=(
            "Other resources with the same workload, at most 20: first the one that "
            "decides, then by name."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class Summary(ApiModel):
    """Cells of `kubectl get` that no single field could fill."""

    lag: _Cell | None = Field(
        default=None, description="Lag as text, such as 1240, >=312 or unknown."
    )
    replicas: _Cell | None = Field(
        default=None, description="Ready and desired replicas, such as 2/3."
    )
    recovered: Count | None = Field(
        default=None,
        description="Number of stuck entries that were requeued, or offered and taken.",
    )
    redis: _Cell | None = Field(
        default=None, description="Version and topology of the server, such as 8.6.0 Cluster."
    )


class StreamConsumerGroupStatus(ApiModel):
    """Observed state of the group, its workers and its streams."""

    observed_generation: ObservedGeneration | None = Field(
        default=None,
        description=(
            "Generation of the spec that this status describes, or -1 before the "
            "operator has observed the resource."
        ),
    )
    conditions: Annotated[tuple[StatusCondition, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Conditions of the resource. Ready summarizes the others.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    replicas: Count | None = Field(default=None, description="Number of worker pods that exist.")
    ready_replicas: Count | None = Field(
        default=None, description="Number of worker pods that are ready."
    )
    desired_replicas: Count | None = Field(
        default=None, description="Number of worker pods that are wanted."
    )
    selector: Annotated[str, Field(max_length=4096)] | None = Field(
        default=None,
        description="Label selector of the worker pods, for the scale subresource.",
    )
    group: GroupStatus | None = Field(default=None, description="State of the consumer group.")
    stream: StreamStatus | None = Field(default=None, description="State of the stream.")
    retry_stream: RetryStreamStatus | None = Field(
        default=None,
        description=(
            "State of the retry stream. Present while spec.recovery.strategy is "
            "RetryStream, and afterwards while the key exists."
        ),
    )
    dead_letter: DeadLetterStatus | None = Field(
        default=None, description="State of the dead-letter stream."
    )
    redis: RedisStatus | None = Field(
        default=None, description="Redis server that the operator is connected to."
    )
    recovery: RecoveryStatus | None = Field(
        default=None, description="Results of recovery, and the stuck entries that are left."
    )
    scaling: ScalingStatus | None = Field(
        default=None,
        description=(
            "Scaling of a shared workload. Present while other resources have the same workload."
        ),
    )
    summary: Summary | None = Field(
        default=None, description="Values of columns of kubectl get that no other field has."
    )
