"""How the kinds of `pelops.dev` are served by the API server."""

from __future__ import annotations

from typing import Final

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.api.audit.stream_audit import AUDIT_KIND, LONGEST_NAME, StreamAuditSpec
from pelops.api.group.group_status_model import StreamConsumerGroupStatus
from pelops.api.group.stream_consumer_group import KIND, StreamConsumerGroupSpec
from pelops.api.schema.base import KindDefinition, PrinterColumn, Rule, RuleReason, ScalePaths

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
        PrinterColumn(
            name="Stream", type="string", path=".spec.stream", description="Key of the stream."
        ),
        PrinterColumn(
            name="Group",
            type="string",
            path=".status.group.name",
            description="Name of the consumer group.",
        ),
        PrinterColumn(
            name="Ready",
            type="string",
            path='.status.conditions[?(@.type=="Ready")].status',
            description="Whether all is well.",
        ),
        PrinterColumn(
            name="Lag",
            type="string",
            path=".status.summary.lag",
            description="Entries not yet delivered, those of the retry stream included.",
        ),
        PrinterColumn(
            name="Pending",
            type="integer",
            path=".status.group.pending",
            description="Entries delivered and not yet acknowledged, those of the retry stream"
            " included.",
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
            description="Dead letters.",
        ),
        PrinterColumn(
            name="Replicas",
            type="string",
            path=".status.summary.replicas",
            description="Workers ready of workers there.",
        ),
        PrinterColumn(
            name="Desired",
            type="integer",
            path=".status.desiredReplicas",
            description="Workers wanted.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Recovered",
            type="integer",
            path=".status.summary.recovered",
            description="Entries that recovery got moving again.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Redis",
            type="string",
            path=".status.summary.redis",
            description="The server that answered.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Reason",
            type="string",
            path='.status.conditions[?(@.type=="Ready")].reason',
            description="Why it is ready or not.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Age",
            type="date",
            path=".metadata.creationTimestamp",
            description="Since when the resource exists.",
        ),
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
        PrinterColumn(
            name="Window",
            type="string",
            path=".status.summary.window",
            description="Number of the newest window that was accounted for.",
        ),
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
            description="Entries proven lost that nobody has acknowledged.",
        ),
        PrinterColumn(
            name="Stuck",
            type="integer",
            path=".status.summary.stuck",
            description="Entries that are stuck.",
        ),
        PrinterColumn(
            name="Dead",
            type="integer",
            path=".status.summary.deadLettered",
            description="Entries that became dead letters in the newest windows.",
        ),
        PrinterColumn(
            name="Groups",
            type="string",
            path=".status.summary.groups",
            description="Groups that were audited of those that should be.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Schedule",
            type="string",
            path=".spec.schedule",
            description="When it runs.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Last-Run",
            type="date",
            path=".status.run.lastStartTime",
            description="Since the last run began.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Ready",
            type="string",
            path='.status.conditions[?(@.type=="Ready")].status',
            description="Whether it runs as asked.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Reason",
            type="string",
            path='.status.conditions[?(@.type=="Ready")].reason',
            description="Why it is ready or not.",
            is_wide=True,
        ),
        PrinterColumn(
            name="Age",
            type="date",
            path=".metadata.creationTimestamp",
            description="Since when the resource exists.",
        ),
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
