"""What the operator reports of a `StreamAudit`.

Every field may be absent: before the first run there is nothing to report.
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

MOST_GROUPS_REPORTED: Final = 100  # those that need attention come first
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
        default=None,
        description=("Name of the StreamConsumerGroup of this group, if this namespace has one."),
    )
    window: Count | None = Field(default=None, description="Number of the window.")
    window_end_time: Timestamp | None = Field(
        default=None, description="Time at which the window was closed."
    )
    verdict: ReportedVerdict | None = Field(
        default=None,
        description=(
            "Result for the window. Balanced: every entry is accounted for, and none "
            "needs attention. Unknown: no entry needs attention, but what became of "
            "at least one is unknown. Findings: some entries need attention. Failing: "
            "the audit could not account for the entries."
        ),
    )
    certainty: ReportedCertainty | None = Field(
        default=None,
        description=(
            "Evidence for the acknowledgements. Proven: each is recorded. Inferred: "
            "some entries were delivered and are no longer pending. Unknown: what "
            "became of at least one entry is unknown."
        ),
    )
    message: _Message | None = Field(default=None, description="Verdict as a sentence, for people.")
    produced: Count | None = Field(
        default=None, description="Number of entries that were added in the window."
    )
    stuck: Count | None = Field(default=None, description="Number of these entries that are stuck.")
    dead_lettered: Count | None = Field(
        default=None, description="Number of these entries that became dead letters."
    )
    indeterminate: Count | None = Field(
        default=None,
        description=(
            "Number of these entries of which it is unknown whether they were acknowledged."
        ),
    )
    lost: Count | None = Field(
        default=None,
        description=(
            "Number of entries, in all windows, that are proven lost and that no "
            "person has acknowledged."
        ),
    )
    behind_retention: bool | None = Field(
        default=None,
        description=(
            "True if the stream is trimmed before, or shortly after, its entries are archived."
        ),
    )
    failing: bool | None = Field(
        default=None, description="True if the audit cannot account for the entries of this group."
    )


class AuditSummaryStatus(ApiModel):
    """Cells of `kubectl get` for all groups together."""

    window: Count | None = Field(
        default=None,
        description=("Number of the newest audited window, of the group that is furthest behind."),
    )
    verdict: ReportedVerdict | None = Field(
        default=None, description="Worst verdict of all groups."
    )
    certainty: ReportedCertainty | None = Field(
        default=None, description="Lowest certainty of all groups."
    )
    produced: Count | None = Field(
        default=None,
        description="Number of entries that were added in the newest windows of all groups.",
    )
    lost: Count | None = Field(
        default=None,
        description=("Number of entries that are proven lost and that no person has acknowledged."),
    )
    stuck: Count | None = Field(default=None, description="Number of stuck entries.")
    dead_lettered: Count | None = Field(
        default=None,
        description="Number of entries of the newest windows that became dead letters.",
    )
    groups: _Cell | None = Field(
        default=None, description="Number of audited groups and of all groups, such as 2/3."
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
        description=(
            "Name of the object, in the same namespace. Absent if each run has its "
            "own object, as with sparkOperator Apache."
        ),
    )


class AuditRunStatus(ApiModel):
    """The runs of an audit."""

    last_start_time: Timestamp | None = Field(
        default=None, description="Time at which the last run began."
    )
    last_successful_time: Timestamp | None = Field(
        default=None, description="Time at which a run last succeeded."
    )
    active: bool | None = Field(default=None, description="True while a run is active.")
    failed_start_time: Timestamp | None = Field(
        default=None,
        description=(
            "Start time of the first failed run since the last successful run. Absent "
            "until a later run has started."
        ),
    )


class StreamAuditStatus(ApiModel):
    """Observed state of an audit and its runs."""

    observed_generation: ObservedGeneration | None = Field(
        default=None,
        description=(
            "Generation of the spec that this status describes, or -1 before the "
            "operator has observed the resource."
        ),
    )
    conditions: Annotated[tuple[StatusCondition, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Conditions of the audit. Ready is True if it runs as the spec says.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    job_ref: AuditJobReference | None = Field(
        default=None,
        description=(
            "Object that runs the audit. For a CronJob, kubectl create job NAME "
            "--from=cronjob/NAME starts a run now."
        ),
    )
    run: AuditRunStatus | None = Field(default=None, description="Times of the runs.")
    summary: AuditSummaryStatus | None = Field(default=None, description="Summary of all groups.")
    groups: (
        Annotated[tuple[AuditedGroupStatus, ...], Field(max_length=MOST_GROUPS_REPORTED)] | None
    ) = Field(
        default=None,
        description="Results by group, at most 100: first those that need attention.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["stream", "group"],
        },
    )
