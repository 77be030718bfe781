"""How the kinds of `pelops.dev` are served by the API server."""

from __future__ import annotations

from typing import Final

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.api.audit.stream_audit import AUDIT_KIND, LONGEST_NAME, StreamAuditSpec
from pelops.api.group.group_status_model import StreamConsumerGroupStatus
from pelops.api.group.stream_consumer_group import KIND, StreamConsumerGroupSpec
from pelops.api.schema.base import KindDefinition, PrinterColumn, Rule, RuleReason, ScalePaths

_READY: Final = (
    PrinterColumn(
        name="Ready",
        type="string",
        path='.status.conditions[?(@.type=="Ready")].status',
        description="True when everything that was asked for works.",
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
    description="A consumer group of a Redis stream, with its workers: the group is created, the"
    " workers are run and scaled on what it still owes, stuck entries are recovered and those that"
    " cannot be processed become dead letters.",
    spec=StreamConsumerGroupSpec,
    status=StreamConsumerGroupStatus,
    rules=(
        Rule(
            rule="size(self.metadata.name) <= 52",
            message="metadata.name must have at most 52 characters: the names of what the operator"
            " makes for it are longer",
        ),
        Rule(
            rule="(has(self.spec.group) ? self.spec.group : self.metadata.name)"
            " == (has(oldSelf.spec.group) ? oldSelf.spec.group : oldSelf.metadata.name)",
            message="group cannot be changed: create another StreamConsumerGroup for another group",
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
            description="Number of entries not yet delivered, those of the retry stream included.",
        ),
        PrinterColumn(
            name="Pending",
            type="integer",
            path=".status.group.pending",
            description="Number of entries delivered and not yet acknowledged, those of the retry"
            " stream included.",
        ),
        PrinterColumn(
            name="Stuck",
            type="integer",
            path=".status.recovery.stuck",
            description="Number of pending entries that are stuck; empty while that is not known.",
        ),
        PrinterColumn(
            name="Oldest",
            type="date",
            path=".status.group.oldestPendingTime",
            description="Age of the oldest pending entry; empty when nothing is pending.",
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
            description="Ready workers of wanted workers.",
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
            description="Number of workers wanted.",
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
    description="A scheduled account of what became of every entry: streams are archived, and each"
    " entry of a window is acknowledged, in flight, stuck, dead-lettered or lost, with evidence.",
    spec=StreamAuditSpec,
    status=StreamAuditStatus,
    rules=(
        Rule(
            rule=f"size(self.metadata.name) <= {LONGEST_NAME}",
            message=f"metadata.name must have at most {LONGEST_NAME} characters: the names of the"
            " CronJob and of its Jobs are longer",
        ),
    ),
    columns=(
        *_READY,
        PrinterColumn(
            name="Verdict",
            type="string",
            path=".status.summary.verdict",
            description="The worst verdict of all groups.",
        ),
        PrinterColumn(
            name="Lost",
            type="integer",
            path=".status.summary.lost",
            description="Number of entries that are proven lost and not acknowledged by a person.",
        ),
        PrinterColumn(
            name="Stuck",
            type="integer",
            path=".status.summary.stuck",
            description="Number of entries that are stuck.",
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
            description="Audited groups of all groups that are to be audited.",
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

KINDS: Final = (STREAM_CONSUMER_GROUP, STREAM_AUDIT)
