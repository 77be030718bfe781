"""What the operator reports: `status`.

Every field may be absent: a fresh resource has no status, and what could not be seen is left out
rather than guessed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

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


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class StatusCondition(ApiModel):
    """One statement about the resource, with a reason for programs and a message for people."""

    type: Annotated[
        str,
        Field(min_length=1, max_length=316, pattern=r"^[A-Za-z]([A-Za-z0-9_./-]*[A-Za-z0-9])?$"),
    ] = Field(description="Type of the condition, such as Ready.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ] = Field(description="Reason for the status, one word for programs.")
    message: Annotated[str, Field(max_length=32768)] = Field(
        description="Reason for the status, and what to do about it, in a sentence for people."
    )
    last_transition_time: Timestamp = Field(description="Time at which the status last changed.")
    observed_generation: Count | None = Field(
        default=None, description="Generation of the spec that the condition is about."
    )


class GroupStatus(ApiModel):
    """The consumer group as Redis shows it."""

    name: RedisName | None = Field(default=None, description="Name of the group in Redis.")
    last_delivered_id: EntryIdText | None = Field(
        default=None, description="ID of the last entry that the group delivered."
    )
    pending: Count | None = Field(
        default=None,
        description="Entries delivered and not yet acknowledged, of the stream and of the retry"
        " stream together.",
    )
    lag: Count | None = Field(
        default=None,
        description="Entries not yet delivered, of the stream and of the retry stream together:"
        " the number itself when lagKnown is true, else the least that it can be. Absent when"
        " nothing is known.",
    )
    lag_known: bool | None = Field(
        default=None,
        description="True when lag is exact. Redis loses count when entries are deleted ahead of"
        " the group or its position is set by hand.",
    )
    oldest_pending_time: Timestamp | None = Field(
        default=None,
        description="When the oldest pending entry of both streams was added, as its ID tells;"
        " absent when nothing is pending.",
    )
    consumers: Count | None = Field(default=None, description="Number of consumers of the group.")
    owned_by: Text | None = Field(
        default=None,
        description="The resource that manages this group, as NAMESPACE/NAME, when it is not this"
        " one.",
    )


class StreamStatus(ApiModel):
    """The stream as Redis shows it."""

    length: Count | None = Field(default=None, description="Entries in the stream.")
    entries_added: Count | None = Field(
        default=None,
        description="Entries ever added to the stream, as the server counts them. Fewer than before"
        " show that the stream was deleted, or that the server came back with an older state.",
    )
    last_generated_id: EntryIdText | None = Field(
        default=None, description="ID of the entry that was added last."
    )


class RetryStreamStatus(ApiModel):
    """The retry stream of the group alone; its numbers are part of those of the group."""

    name: KeyName | None = Field(default=None, description="Key of the retry stream.")
    pending: Count | None = Field(
        default=None, description="Copies in it delivered and not yet acknowledged."
    )
    lag: Count | None = Field(
        default=None,
        description="Copies in it not yet delivered: the number itself when lagKnown is true, else"
        " the least that it can be.",
    )
    lag_known: bool | None = Field(default=None, description="True when lag is exact.")
    oldest_pending_time: Timestamp | None = Field(
        default=None,
        description="When its oldest pending copy was added; absent when nothing is pending.",
    )


class DeadLetterStatus(ApiModel):
    """The dead letters of the group."""

    stream: KeyName | None = Field(default=None, description="Name of the dead-letter stream.")
    length: Count | None = Field(default=None, description="Dead letters in it.")


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
        description="Requeue: copied and acknowledged. Release: offered to workers that claim."
        " DeadLetter: moved to the dead-letter stream. Keep: left pending for now."
    )
    reason: Annotated[str, Field(max_length=64)] = Field(
        description="Why, such as PodGone, ProcessingTimeout or MaxRetriesExceeded."
    )
    entries: Count = Field(description="Number of entries.")


class DryRunStatus(ApiModel):
    """What the last scan of a dry run found."""

    stuck: Count | None = Field(default=None, description="Number of stuck entries.")
    outcomes: Annotated[tuple[DryRunOutcome, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="What recovery would do with them, by action and reason; absent when no entry"
        " is stuck.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["action", "reason"],
        },
    )
    reason: Annotated[str, Field(max_length=128)] | None = Field(
        default=None,
        description="What would keep recovery from working; absent when it would work.",
    )
    message: Text | None = Field(default=None, description="The same, for people.")


class RecoveryStatus(ApiModel):
    """Results of recovery since the ledger of the group began, and the entries that it left."""

    requeued: Count | None = Field(
        default=None,
        description="Number of stuck entries copied to the end of the stream or retry stream.",
    )
    released: Count | None = Field(
        default=None,
        description="Number of stuck entries that were offered to workers under their own ID, and"
        " taken.",
    )
    dead_lettered: Count | None = Field(
        default=None,
        description="Number of entries that the operator made dead letters. Those that workers"
        " rejected are not counted.",
    )
    payload_gone: Count | None = Field(
        default=None,
        description="Number of pending entries acknowledged because their body was deleted.",
    )
    stuck: Count | None = Field(
        default=None,
        description="Number of stuck entries that the last scan left pending, such as those that"
        " wait for their turn; in a dry run all that are stuck. Of a group whose entries are not"
        " recovered at most 10000 are counted in each of its streams. Absent before the first scan,"
        " and while it is not known which entries are locked.",
    )
    waiting: Count | None = Field(
        default=None,
        description="Number of stuck entries that failed together with others and wait for their"
        " turn to be tried again.",
    )
    offered: Count | None = Field(
        default=None,
        description="Number of stuck entries that are offered to workers that claim, and not taken"
        " yet.",
    )
    unmovable: Count | None = Field(
        default=None,
        description="Number of stuck entries that no script can move: they stay pending.",
    )
    last_scan_time: Timestamp | None = Field(
        default=None,
        description="Time of the last scan, by the clock of Redis, when this status was written."
        " It alone causes no write, so an idle group shows an older one.",
    )
    unmatched_consumers: Annotated[tuple[Text, ...], Field(max_length=5)] | None = Field(
        default=None,
        description="Consumers with pending entries that no pod matches, at most five: their"
        " entries wait for the processing timeout.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    dry_run: DryRunStatus | None = Field(
        default=None,
        description="What recovery would do. Present while spec.recovery.dryRun is true.",
    )


class SharedGroupStatus(ApiModel):
    """Another resource with the same workers."""

    name: Text | None = Field(default=None, description="Name of the resource.")
    mode: Text | None = Field(
        default=None, description="Its spec.scaling.mode; absent when it has no scaling."
    )
    demand: Text | None = Field(
        default=None,
        description="Workers that its group asks for, before rounding and limits, such as 1.25;"
        " absent when that is not known, or does not count.",
    )


class ScalingStatus(ApiModel):
    """Who decides the number of workers, and what each group with the same workers asks for."""

    leader: Text | None = Field(
        default=None,
        description="Name of the resource that decides; absent when none does.",
    )
    demand: Text | None = Field(
        default=None,
        description="Workers that this group asks for, before rounding and limits, such as 1.25;"
        " absent when that is not known, or does not count.",
    )
    shared_with: Annotated[tuple[SharedGroupStatus, ...], Field(max_length=20)] | None = Field(
        default=None,
        description="The other resources with the same workers: the one that decides first, then"
        " by name; at most 20.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class Summary(ApiModel):
    """Cells of `kubectl get` that no single field could fill."""

    lag: _Cell | None = Field(
        default=None, description='The lag as text: "1240", ">=312" or "unknown".'
    )
    replicas: _Cell | None = Field(
        default=None, description='Ready workers of wanted workers, such as "2/3".'
    )
    recovered: Count | None = Field(
        default=None,
        description="Number of stuck entries that were requeued, or offered and taken.",
    )
    redis: _Cell | None = Field(
        default=None, description='Version and topology of the server, such as "8.6.0 Cluster".'
    )


class StreamConsumerGroupStatus(ApiModel):
    """Observed state of the group, its workers and its streams."""

    observed_generation: ObservedGeneration | None = Field(
        default=None,
        description="Generation of the spec that this status is about; -1 until the operator has"
        " observed the resource.",
    )
    conditions: Annotated[tuple[StatusCondition, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Conditions of the resource; Ready sums them up.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    replicas: Count | None = Field(default=None, description="Number of workers that exist.")
    ready_replicas: Count | None = Field(
        default=None, description="Number of workers that are ready."
    )
    desired_replicas: Count | None = Field(default=None, description="Number of workers wanted.")
    selector: Annotated[str, Field(max_length=4096)] | None = Field(
        default=None,
        description="Label selector of the workers' pods; the scale subresource shows it.",
    )
    group: GroupStatus | None = Field(default=None, description="The consumer group.")
    stream: StreamStatus | None = Field(default=None, description="The stream.")
    retry_stream: RetryStreamStatus | None = Field(
        default=None,
        description="The retry stream. Present while spec.recovery.strategy is RetryStream, and"
        " after that while the key exists.",
    )
    dead_letter: DeadLetterStatus | None = Field(default=None, description="The dead letters.")
    redis: RedisStatus | None = Field(default=None, description="The server that answered.")
    recovery: RecoveryStatus | None = Field(
        default=None, description="Results of recovery, and the entries that it left pending."
    )
    scaling: ScalingStatus | None = Field(
        default=None,
        description="How the workers are shared. Present while other resources have the same"
        " workers.",
    )
    summary: Summary | None = Field(
        default=None, description="Values that kubectl get shows and no other field holds."
    )
