"""What the operator reports of a `StreamAudit`.

Every field may be absent: before the first run there is nothing to tell.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from pelops.api.group.group_status_model import StatusCondition
from pelops.api.schema.base import (
    ApiModel,
    Count,
    ObjectName,
    ObservedGeneration,
    RedisName,
    Timestamp,
)

MOST_GROUPS_REPORTED: Final = 100  # those that need a look come first
_Cell = Annotated[str, Field(max_length=64)]
_Message = Annotated[str, Field(max_length=512)]


class ReportedVerdict(StrEnum):
    """An audit in a word, from best to worst."""

    BALANCED = "Balanced"
    UNKNOWN = "Unknown"
    FINDINGS = "Findings"
    FAILING = "Failing"


class ReportedCertainty(StrEnum):
    """What acknowledgements rest on, from best to worst."""

    PROVEN = "Proven"
    INFERRED = "Inferred"
    UNKNOWN = "Unknown"


class AuditedGroupStatus(ApiModel):
    """One group in the newest window that was audited."""

    stream: RedisName = Field(description="Key of the stream.")
    group: RedisName = Field(description="Name of the group in Redis.")
    name: ObjectName | None = Field(
        default=None, description="The StreamConsumerGroup, if there is one in this namespace."
    )
    window: Count | None = Field(default=None, description="Number of the window.")
    window_end_time: Timestamp | None = Field(
        default=None, description="Time at which the window was closed."
    )
    verdict: ReportedVerdict | None = Field(
        default=None,
        description="Balanced: every entry is accounted for, and none needs attention. Unknown:"
        " none needs attention, but the end of at least one is not known. Findings: some need"
        " attention. Failing: the audit could not account for the entries.",
    )
    certainty: ReportedCertainty | None = Field(
        default=None,
        description="Evidence of the acknowledgements. Proven: of each there is a record. Inferred:"
        " some entries were delivered and are no longer pending. Unknown: the end of at least one"
        " entry is not known.",
    )
    message: _Message | None = Field(
        default=None, description="The verdict in a sentence for people."
    )
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
        description="True when the stream is trimmed close to entries that are not archived yet, or"
        " beyond them.",
    )
    failing: bool | None = Field(
        default=None, description="True when the entries of this group cannot be accounted for."
    )


class AuditSummaryStatus(ApiModel):
    """Cells of `kubectl get` for all groups together."""

    window: Count | None = Field(
        default=None,
        description="Number of the newest window; of several groups the one furthest behind.",
    )
    verdict: ReportedVerdict | None = Field(
        default=None, description="The worst verdict of all groups."
    )
    certainty: ReportedCertainty | None = Field(
        default=None, description="The least certainty of all groups."
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


class AuditJobReference(ApiModel):
    """The object that runs an audit."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    api_version: Annotated[str, Field(min_length=1, max_length=317)] = Field(
        description="API version of the object."
    )
    kind: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Kind of the object: CronJob, ScheduledSparkApplication or SparkApplication."
    )
    name: ObjectName | None = Field(
        default=None,
        description="Name of the object, in the same namespace. Absent when each run has an object"
        " of its own, as with sparkOperator Apache.",
    )


class AuditRunStatus(ApiModel):
    """The runs of an audit."""

    last_start_time: Timestamp | None = Field(
        default=None, description="Time at which the last run began."
    )
    last_successful_time: Timestamp | None = Field(
        default=None, description="Time at which a run last ended well."
    )
    active: bool | None = Field(default=None, description="True while a run is active.")
    failed_start_time: Timestamp | None = Field(
        default=None,
        description="Time at which the first run began that failed since one last ended well."
        " Absent until another run has begun.",
    )


class StreamAuditStatus(ApiModel):
    """Observed state of an audit and its runs."""

    observed_generation: ObservedGeneration | None = Field(
        default=None,
        description="Generation of the spec that this status is about; -1 until the operator has"
        " observed the resource.",
    )
    conditions: Annotated[tuple[StatusCondition, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Conditions of the audit; Ready is True when it runs as asked.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    job_ref: AuditJobReference | None = Field(
        default=None,
        description="The object that runs the audit. Of a CronJob, kubectl create job"
        " --from=cronjob/NAME starts a run now.",
    )
    run: AuditRunStatus | None = Field(default=None, description="The runs.")
    summary: AuditSummaryStatus | None = Field(default=None, description="All groups together.")
    groups: (
        Annotated[tuple[AuditedGroupStatus, ...], Field(max_length=MOST_GROUPS_REPORTED)] | None
    ) = Field(
        default=None,
        description="The groups, those that need attention first; at most 100 are shown.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["stream", "group"],
        },
    )
