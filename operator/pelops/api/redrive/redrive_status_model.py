"""What the operator reports of a `StreamRedrive`.

Every field may be absent: before the redrive starts there is nothing to count.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from pelops.api.group.group_status_model import EntryIdText, StatusCondition
from pelops.api.schema.base import ApiModel, Count, ObservedGeneration, Timestamp

MOST_SAMPLES: Final = 5
_Message = Annotated[str, Field(max_length=1024)]


class RedriveSource(ApiModel):
    """Place that a redrive takes dead letters from."""

    server: _Message | None = Field(
        default=None, description="Address of the Redis server, without credentials."
    )
    stream: _Message | None = Field(default=None, description="Key of the stream.")
    group_uid: _Message | None = Field(
        default=None, description="UID of the StreamConsumerGroup, as metadata.uid."
    )


class StreamRedriveStatus(ApiModel):
    """Observed state of a redrive."""

    observed_generation: ObservedGeneration | None = Field(
        default=None,
        description=(
            "Generation of the spec that this status describes, or -1 before the "
            "operator has observed the resource."
        ),
    )
    conditions: Annotated[tuple[StatusCondition, ...], Field(max_length=64)] | None = Field(
        default=None,
        description=(
            "Conditions of the redrive. Complete or Failed is True once it has finished; "
            "Ready is True once it is complete."
        ),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    selected: Count | None = Field(
        default=None,
        description=(
            "Number of dead letters that the selection matches, at most maxEntries. They are "
            "counted when the redrive starts."
        ),
    )
    moved: Count | None = Field(
        default=None, description="Number of dead letters that were moved; 0 in a dry run."
    )
    skipped: Count | None = Field(
        default=None,
        description=(
            "Number of selected dead letters that were not moved: gone meanwhile, without a body, "
            "or too large."
        ),
    )
    failed_again: Count | None = Field(
        default=None,
        description="Number of moved entries that are dead letters again. Action Redrive only.",
    )
    acknowledged: Count | None = Field(
        default=None,
        description=(
            "Number of moved entries that workers acknowledged: moved, delivered, not failed "
            "again, and no longer unprocessed. Action Redrive only."
        ),
    )
    lost: Count | None = Field(
        default=None,
        description=(
            "Number of moved entries that were deleted or trimmed from the stream before a worker "
            "received them. Above 0 the redrive stops and has failed. Action Redrive only."
        ),
    )
    unknown: Count | None = Field(
        default=None,
        description=(
            "Number of moved entries that were deleted or trimmed from the stream before the "
            "operator had seen their delivery, or while they were pending. They were processed, or "
            "they are lost. Action Redrive only."
        ),
    )
    remaining: Count | None = Field(
        default=None, description="Number of selected dead letters that are yet to be moved."
    )
    source: RedriveSource | None = Field(
        default=None,
        description=(
            "Place that dead letters are taken from. The redrive stops when the group has another "
            "server or dead-letter stream, or was created again."
        ),
    )
    until_id: EntryIdText | None = Field(
        default=None,
        description=(
            "Last entry ID of the source stream at the start. Newer entries, such as entries that "
            "fail again, are never moved."
        ),
    )
    last_id: EntryIdText | None = Field(
        default=None, description="Entry ID of the last dead letter that was read."
    )
    start_time: Timestamp | None = Field(
        default=None, description="Time at which the redrive started."
    )
    completion_time: Timestamp | None = Field(
        default=None, description="Time at which the redrive was complete, or failed."
    )
    estimated_completion_time: Timestamp | None = Field(
        default=None,
        description=(
            "Time at which the last dead letter is expected to be read, at the present rate. "
            "Absent while the redrive does not move dead letters."
        ),
    )
    samples: Annotated[tuple[EntryIdText, ...], Field(max_length=MOST_SAMPLES)] | None = Field(
        default=None,
        description="Entry IDs of the first selected dead letters, at most 5.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    message: _Message | None = Field(
        default=None, description="Result of the redrive, as a sentence for people."
    )
