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
    ] = Field(description="What is stated, such as Ready.")
    status: ConditionStatus = Field(description="Whether it holds: True, False or Unknown.")
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ] = Field(description="Why, in one word for programs.")
    message: Annotated[str, Field(max_length=32768)] = Field(
        description="Why, and what to do about it, in a sentence for people."
    )
    last_transition_time: Timestamp = Field(description="When the status changed last.")
    observed_generation: Count | None = Field(
        default=None, description="The generation of the spec that this speaks of."
    )


class GroupStatus(ApiModel):
    """The consumer group as Redis shows it."""

    name: RedisName | None = Field(default=None, description="Name of the group in Redis.")
    last_delivered_id: EntryIdText | None = Field(
        default=None, description="The last entry that the group delivered to anyone."
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
        description="Whether lag is exact. Redis loses count when entries are deleted ahead of the"
        " group or its position is set by hand.",
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
    lag_known: bool | None = Field(default=None, description="Whether lag is exact.")
    oldest_pending_time: Timestamp | None = Field(
        default=None,
        description="When its oldest pending copy was added; absent when nothing is pending.",
    )


class DeadLetterStatus(ApiModel):
    """The dead letters of the group."""

    stream: KeyName | None = Field(default=None, description="Name of the dead-letter stream.")
    length: Count | None = Field(default=None, description="Dead letters in it.")


class RedisStatus(ApiModel):
    """The server that answered."""

    topology: Text | None = Field(
        default=None, description="Standalone, Sentinel or Cluster, as detected."
    )
    version: Text | None = Field(default=None, description="Version of the server.")


class RecoveryStatus(ApiModel):
    """What recovery did since the group's ledger began, and what it cannot do."""

    requeued: Count | None = Field(
        default=None, description="Stuck entries copied to the end of the stream or retry stream."
    )
    released: Count | None = Field(
        default=None,
        description="Stuck entries that were offered to other workers under their own ID and"
        " taken.",
    )
    dead_lettered: Count | None = Field(
        default=None,
        description="Entries that the operator made dead letters; those that workers rejected are"
        " not among them.",
    )
    payload_gone: Count | None = Field(
        default=None, description="Pending entries acknowledged because their body was deleted."
    )
    waiting: Count | None = Field(
        default=None,
        description="Stuck entries that failed together with others and wait for their turn to be"
        " tried again.",
    )
    offered: Count | None = Field(
        default=None,
        description="Stuck entries that are on offer to workers that claim, and not taken yet.",
    )
    stuck: Count | None = Field(
        default=None,
        description="Stuck entries that the last scan left where they are, such as those that wait"
        " for their turn. Of a group whose entries are not recovered at most 10000 are counted in"
        " each of its streams. Absent before the first scan.",
    )
    unmovable: Count | None = Field(
        default=None, description="Stuck entries that no script can move: they stay pending."
    )
    unmatched_consumers: Annotated[tuple[Text, ...], Field(max_length=5)] | None = Field(
        default=None,
        description="Consumers with pending entries that no pod matches, at most five: their"
        " entries wait for the processing timeout.",
    )


class Summary(ApiModel):
    """Cells of `kubectl get` that no single field could fill."""

    lag: _Cell | None = Field(
        default=None, description='The lag for reading: "1240", ">=312" or "unknown".'
    )
    replicas: _Cell | None = Field(
        default=None, description='Workers ready of workers there, such as "2/3".'
    )
    recovered: Count | None = Field(
        default=None,
        description="Entries that recovery got moving again: requeued, or offered and taken.",
    )
    redis: _Cell | None = Field(
        default=None, description='The server in a few words, such as "8.6.0 Cluster".'
    )


class StreamConsumerGroupStatus(ApiModel):
    """What the operator saw and did last."""

    observed_generation: ObservedGeneration | None = Field(
        default=None,
        description="The generation of the spec that this status speaks of; -1 until the operator"
        " has looked at the resource.",
    )
    conditions: Annotated[tuple[StatusCondition, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Statements about the resource; Ready sums them up.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    replicas: Count | None = Field(default=None, description="Workers there.")
    ready_replicas: Count | None = Field(default=None, description="Workers that are ready.")
    desired_replicas: Count | None = Field(default=None, description="Workers wanted.")
    selector: Annotated[str, Field(max_length=4096)] | None = Field(
        default=None,
        description="Label selector of the workers' pods; the scale subresource shows it.",
    )
    group: GroupStatus | None = Field(default=None, description="The consumer group.")
    stream: StreamStatus | None = Field(default=None, description="The stream.")
    retry_stream: RetryStreamStatus | None = Field(
        default=None,
        description="The retry stream. Present while spec.recovery.requeueTo is RetryStream, and"
        " after that while the key exists.",
    )
    dead_letter: DeadLetterStatus | None = Field(default=None, description="The dead letters.")
    redis: RedisStatus | None = Field(default=None, description="The server that answered.")
    recovery: RecoveryStatus | None = Field(
        default=None, description="What recovery did, and what it cannot do."
    )
    summary: Summary | None = Field(
        default=None, description="What kubectl get shows and no single field holds."
    )
