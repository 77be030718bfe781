"""How the kinds of `pelops.dev` are served by the API server."""

from __future__ import annotations

from typing import Final

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.api.audit.stream_audit import AUDIT_KIND, LONGEST_NAME, StreamAuditSpec
from pelops.api.group.group_status_model import StreamConsumerGroupStatus
from pelops.api.group.stream_consumer_group import KIND, StreamConsumerGroupSpec
from pelops.api.redrive.redrive_status_model import StreamRedriveStatus
from pelops.api.redrive.stream_redrive import REDRIVE_KIND, StreamRedriveSpec
from pelops.api.schema.base import KindDefinition, PrinterColumn, Rule, RuleReason, ScalePaths

_READY: Final = (
    PrinterColumn(
        name="Ready",
        type="string",
        path='.status.conditions[?(@.type=="Ready")].status',
        description="Status of the condition Ready.",
    ),
    PrinterColumn(
        name="Reason",
        type="string",
        path='.status.conditions[?(@.type=="Ready")].reason',
        description="Reason of the condition Ready.",
    ),
)
_AGE: Final = PrinterColumn(
    name="Age",
    type="date",
    path=".metadata.creationTimestamp",
    description="Time since the resource was created.",
)

STREAM_CONSUMER_GROUP: Final = KindDefinition(
    kind=KIND,
    plural="streamconsumergroups",
    singular="streamconsumergroup",
    short_names=("scg",),
    description="A consumer group of a Redis stream and its workers. Pelops creates the group, runs"
    " the workers and scales them by the backlog, recovers stuck entries, and moves entries that"
    " cannot be processed to a dead-letter stream.",
    spec=StreamConsumerGroupSpec,
    status=StreamConsumerGroupStatus,
    rules=(
        Rule(
            rule="size(self.metadata.name) <= 52",
            message="metadata.name must have at most 52 characters, because the objects that the"
            " operator creates for the resource have longer names",
        ),
        Rule(
            rule="(has(self.spec.group) ? self.spec.group : self.metadata.name)"
            " == (has(oldSelf.spec.group) ? oldSelf.spec.group : oldSelf.metadata.name)",
            message="group is immutable: create another StreamConsumerGroup for another group",
            field_path=".spec.group",
            reason=RuleReason.FORBIDDEN,
        ),
    ),
    columns=(
        *_READY,
        PrinterColumn(
            name="Lag",
            type="string",
            path=".status.summary.lag",
            description="Number of undelivered entries, including those of the retry stream.",
        ),
        PrinterColumn(
            name="Pending",
            type="integer",
            path=".status.group.pending",
            description="Number of pending entries (delivered, not acknowledged), including those "
            "of"
            " the retry stream.",
        ),
        PrinterColumn(
            name="Stuck",
            type="integer",
            path=".status.recovery.stuck",
            description="Number of stuck entries; empty if unknown.",
        ),
        PrinterColumn(
            name="Oldest",
            type="date",
            path=".status.group.oldestPendingTime",
            description="Age of the oldest pending entry; empty if no entry is pending.",
        ),
        PrinterColumn(
            name="DLQ",
            type="integer",
            path=".status.deadLetter.length",
            description="Number of dead letters.",
        ),
        PrinterColumn(
            name="Replicas",
            type="string",
            path=".status.summary.replicas",
            description="Ready and desired replicas, such as 2/3.",
        ),
        PrinterColumn(
            name="Stream",
            type="string",
            path=".spec.stream",
            description="Key of the stream.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Group",
            type="string",
            path=".status.group.name",
            description="Name of the consumer group.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Desired",
            type="integer",
            path=".status.desiredReplicas",
            description="Desired number of replicas.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Recovered",
            type="integer",
            path=".status.summary.recovered",
            description="Number of stuck entries that were requeued, or offered and taken.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Redis",
            type="string",
            path=".status.summary.redis",
            description="Version and topology of the server.",
            is_wide=True,
        ),
        _AGE,
    ),
    selectable_fields=(
        ".spec.stream",
        ".spec.suspend",
        ".spec.redis.secretRef.name",
        ".spec.targetRef.name",
        ".spec.scaling.mode",
        ".spec.recovery.strategy",
        ".status.group.name",
    ),
    scale=ScalePaths(
        spec_replicas=".spec.replicas",
        status_replicas=".status.replicas",
        label_selector=".status.selector",
    ),
)

STREAM_AUDIT: Final = KindDefinition(
    kind=AUDIT_KIND,
    plural="streamaudits",
    singular="streamaudit",
    short_names=("saudit",),
    description="A scheduled audit of Redis streams. It archives the entries and reports, with"
    " evidence, whether each of them was acknowledged, is in flight or stuck, became a dead letter"
    " or was lost.",
    spec=StreamAuditSpec,
    status=StreamAuditStatus,
    rules=(
        Rule(
            rule=f"size(self.metadata.name) <= {LONGEST_NAME}",
            message=f"metadata.name must have at most {LONGEST_NAME} characters, because the"
            " CronJob and its Jobs have longer names",
        ),
    ),
    columns=(
        *_READY,
        PrinterColumn(
            name="Verdict",
            type="string",
            path=".status.summary.verdict",
            description="Worst verdict of all groups.",
        ),
        PrinterColumn(
            name="Lost",
            type="integer",
            path=".status.summary.lost",
            description="Number of entries that are proven lost and that no person has "
            "acknowledged.",
        ),
        PrinterColumn(
            name="Stuck",
            type="integer",
            path=".status.summary.stuck",
            description="Number of stuck entries.",
        ),
        PrinterColumn(
            name="Dead",
            type="integer",
            path=".status.summary.deadLettered",
            description="Number of entries of the newest windows that became dead letters.",
        ),
        PrinterColumn(
            name="Window",
            type="integer",
            path=".status.summary.window",
            description="Number of the newest window that was audited.",
        ),
        PrinterColumn(
            name="Groups",
            type="string",
            path=".status.summary.groups",
            description="Number of audited groups and of all groups, such as 2/3.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Schedule",
            type="string",
            path=".spec.schedule",
            description="Schedule of the runs.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Last-Run",
            type="date",
            path=".status.run.lastStartTime",
            description="Time since the last run began.",
            is_wide=True,
        ),
        _AGE,
    ),
    selectable_fields=(
        ".spec.suspend",
        ".spec.streamPattern",
        ".spec.payload",
        ".spec.backend.type",
        ".status.summary.verdict",
    ),
    scale=None,
)

STREAM_REDRIVE: Final = KindDefinition(
    kind=REDRIVE_KIND,
    plural="streamredrives",
    singular="streamredrive",
    short_names=("srd",),
    description="One movement of dead letters of a StreamConsumerGroup: back to its stream, to the"
    " stream of discarded dead letters, or from there back to the dead-letter stream. It runs once,"
    " and reports what became of the entries. Deleting it stops it and moves nothing back.",
    spec=StreamRedriveSpec,
    status=StreamRedriveStatus,
    rules=(
        Rule(
            rule="size(self.metadata.name) <= 63",
            message="metadata.name must have at most 63 characters, because every entry that is"
            " moved carries it",
        ),
    ),
    columns=(
        PrinterColumn(
            name="Mode",
            type="string",
            path=".spec.mode",
            description="Move, or DryRun, which moves nothing.",
        ),
        PrinterColumn(
            name="State",
            type="string",
            path='.status.conditions[?(@.type=="Ready")].reason',
            description="Reason of the condition Ready, such as Running or Completed.",
        ),
        PrinterColumn(
            name="Selected",
            type="integer",
            path=".status.selected",
            description="Number of dead letters that the selection matches.",
        ),
        PrinterColumn(
            name="Moved",
            type="integer",
            path=".status.moved",
            description="Number of dead letters that were moved.",
        ),
        PrinterColumn(
            name="Failed-Again",
            type="integer",
            path=".status.failedAgain",
            description="Number of moved entries that are dead letters again.",
        ),
        PrinterColumn(
            name="Remaining",
            type="integer",
            path=".status.remaining",
            description="Number of dead letters that were not read yet.",
        ),
        PrinterColumn(
            name="Group",
            type="string",
            path=".spec.groupRef.name",
            description="Name of the StreamConsumerGroup.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Action",
            type="string",
            path=".spec.action",
            description="Redrive, Discard or Restore.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Acknowledged",
            type="integer",
            path=".status.acknowledged",
            description="Number of moved entries that workers acknowledged.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Message",
            type="string",
            path=".status.message",
            description="Result of the redrive, as a sentence.",
            is_wide=True,
        ),
        _AGE,
    ),
    selectable_fields=(
        ".spec.groupRef.name",
        ".spec.action",
        ".spec.mode",
        ".spec.suspend",
    ),
    scale=None,
)

KINDS: Final = (STREAM_CONSUMER_GROUP, STREAM_AUDIT, STREAM_REDRIVE)
