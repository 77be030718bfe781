"""What the operator reports of a `StreamAudit`.

Every field may be absent: before the first run there is nothing to tell.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from pelops.api.group.group_status_model import StatusCondition
from pelops.api.schema.base import (
    ApiModel,
    Count,
    ObjectName,
    ObservedGeneration,
    RedisName,
    Text,
    Timestamp,
)

MOST_GROUPS_REPORTED: Final = 100  # those that need a look come first
_Cell = Annotated[str, Field(max_length=64)]
_Verdict = Annotated[str, Field(max_length=16, pattern=r"^[a-z]*$")]
_Sentence = Annotated[str, Field(max_length=512)]


class AuditedGroupStatus(ApiModel):
    """One group in the newest window that was audited."""

    stream: RedisName = Field(description="Key of the stream.")
    group: RedisName = Field(description="Name of the group in Redis.")
    name: ObjectName | None = Field(
        default=None, description="The StreamConsumerGroup, if there is one in this namespace."
    )
    window: Count | None = Field(default=None, description="Number of the window.")
    time: Timestamp | None = Field(default=None, description="When the window was closed.")
    verdict: _Verdict | None = Field(
        default=None,
        description="balanced: every entry is accounted for, and none needs a look. unknown: none"
        " needs a look, but nothing tells how at least one ended. findings: some need a look."
        " failing: the audit could not account for them.",
    )
    certainty: _Verdict | None = Field(
        default=None,
        description="What acknowledgements rest on. proven: evidence shows each. inferred: some"
        " entries were delivered and are no longer pending. unknown: nothing tells how at least"
        " one entry ended.",
    )
    sentence: _Sentence | None = Field(default=None, description="The verdict in a sentence.")
    produced: Count | None = Field(default=None, description="Entries added in the window.")
    stuck: Count | None = Field(default=None, description="Of them, those that are stuck.")
    dead_lettered: Count | None = Field(
        default=None, description="Of them, those that became dead letters."
    )
    indeterminate: Count | None = Field(
        default=None,
        description="Of them, those of which nothing tells whether they were acknowledged.",
    )
    lost: Count | None = Field(
        default=None,
        description="Entries proven lost, in all windows, that nobody has acknowledged.",
    )
    behind_retention: bool | None = Field(
        default=None,
        description="Whether the stream is being trimmed close to what is not archived yet, or"
        " beyond.",
    )
    failing: bool | None = Field(
        default=None, description="Whether this group cannot be accounted for."
    )


class AuditSummaryStatus(ApiModel):
    """Cells of `kubectl get` for all groups together."""

    window: _Cell | None = Field(
        default=None,
        description="Number of the newest window; of several groups the one furthest behind.",
    )
    verdict: _Verdict | None = Field(default=None, description="The worst verdict of all groups.")
    certainty: _Verdict | None = Field(
        default=None, description="The least certain of all groups: proven, inferred or unknown."
    )
    produced: Count | None = Field(default=None, description="Entries added, of all groups.")
    lost: Count | None = Field(
        default=None, description="Entries proven lost that nobody has acknowledged."
    )
    stuck: Count | None = Field(default=None, description="Entries that are stuck.")
    dead_lettered: Count | None = Field(
        default=None, description="Entries that became dead letters in the newest windows."
    )
    groups: _Cell | None = Field(
        default=None, description='Groups that were audited of those that should be, as in "2/3".'
    )


class AuditRunStatus(ApiModel):
    """The runs, as what runs them tells."""

    last_start_time: Timestamp | None = Field(default=None, description="When a run last began.")
    last_success_time: Timestamp | None = Field(
        default=None, description="When a run last ended well."
    )
    active: bool | None = Field(default=None, description="Whether a run goes on.")
    failed_start_time: Timestamp | None = Field(
        default=None,
        description="When the first run began that failed since one last ended well, once another"
        " has begun.",
    )


class StreamAuditStatus(ApiModel):
    """What the operator saw last."""

    observed_generation: ObservedGeneration | None = Field(
        default=None,
        description="The generation of the spec that this status speaks of; -1 until the operator"
        " has looked at the resource.",
    )
    conditions: Annotated[tuple[StatusCondition, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Statements about the audit; Ready sums up whether it runs as asked.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    job: Text | None = Field(
        default=None,
        description="What runs the audit, as KIND/NAME: kubectl create job --from=cronjob/NAME runs"
        " it now.",
    )
    run: AuditRunStatus | None = Field(default=None, description="The runs.")
    summary: AuditSummaryStatus | None = Field(default=None, description="All groups together.")
    groups: (
        Annotated[tuple[AuditedGroupStatus, ...], Field(max_length=MOST_GROUPS_REPORTED)] | None
    ) = Field(
        default=None,
        description="Group by group, those that need a look first; at most 100 are shown.",
    )
