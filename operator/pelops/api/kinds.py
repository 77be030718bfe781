"""How the kinds of `pelops.dev` are served by the API server."""

from __future__ import annotations

from typing import Final

from pelops.api.base import Rule, RuleReason
from pelops.api.kind import Column, Kind, ScalePaths
from pelops.api.status import StreamConsumerGroupStatus
from pelops.api.stream_consumer_group import KIND, StreamConsumerGroupSpec

STREAM_CONSUMER_GROUP: Final = Kind(
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
        Column(name="Stream", type="string", path=".spec.stream", description="Key of the stream."),
        Column(
            name="Group",
            type="string",
            path=".status.group.name",
            description="Name of the consumer group.",
        ),
        Column(
            name="Ready",
            type="string",
            path='.status.conditions[?(@.type=="Ready")].status',
            description="Whether all is well.",
        ),
        Column(
            name="Lag",
            type="string",
            path=".status.summary.lag",
            description="Entries not yet delivered.",
        ),
        Column(
            name="Pending",
            type="integer",
            path=".status.group.pending",
            description="Entries delivered and not yet acknowledged.",
        ),
        Column(
            name="Oldest",
            type="date",
            path=".status.group.oldestPendingTime",
            description="Age of the oldest pending entry; empty when nothing is pending.",
        ),
        Column(
            name="DLQ",
            type="integer",
            path=".status.deadLetter.length",
            description="Dead letters.",
        ),
        Column(
            name="Replicas",
            type="string",
            path=".status.summary.replicas",
            description="Workers ready of workers there.",
        ),
        Column(
            name="Desired",
            type="integer",
            path=".status.desiredReplicas",
            description="Workers wanted.",
            is_wide=True,
        ),
        Column(
            name="Recovered",
            type="integer",
            path=".status.summary.recovered",
            description="Entries that recovery got moving again.",
            is_wide=True,
        ),
        Column(
            name="Redis",
            type="string",
            path=".status.summary.redis",
            description="The server that answered.",
            is_wide=True,
        ),
        Column(
            name="Reason",
            type="string",
            path='.status.conditions[?(@.type=="Ready")].reason',
            description="Why it is ready or not.",
            is_wide=True,
        ),
        Column(
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

KINDS: Final = (STREAM_CONSUMER_GROUP,)
