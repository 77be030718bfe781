"""The kind `StreamRedrive`: one movement of selected dead letters of a group.

It runs once. Everything but `suspend`, `ratePerSecond` and `approved` is immutable, so that what
was approved is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, ValidationError

from pelops.api.group.group_status_model import EntryIdText
from pelops.api.redrive.redrive_status_model import StreamRedriveStatus
from pelops.api.schema.base import (
    API_VERSION,
    LONGEST_WAIT_SECONDS,
    MAX_SECONDS,
    ApiModel,
    ObjectMeta,
    ObjectName,
    PositiveCount,
    Rule,
    RuleReason,
    Timestamp,
    cel,
    render_errors,
)
from pelops.errors import InvalidSpec

REDRIVE_KIND: Final = "StreamRedrive"
MOST_IDS: Final = 1000
MOST_FIELDS: Final = 8
MOST_PER_SECOND: Final = 100_000
DEFAULT_PER_SECOND: Final = 100
DEFAULT_FAILED_AGAIN_PERCENT: Final = 20

_Word = Annotated[str, Field(min_length=1, max_length=64)]
_Text = Annotated[str, Field(min_length=1, max_length=512)]


class RedriveAction(StrEnum):
    """What is done with the selected dead letters."""

    REDRIVE = "Redrive"
    DISCARD = "Discard"
    RESTORE = "Restore"


class RedriveDestination(StrEnum):
    """Where copies of redriven entries are added."""

    STREAM = "Stream"
    RETRY_STREAM = "RetryStream"


class RedriveMode(StrEnum):
    """Whether anything is moved."""

    DRY_RUN = "DryRun"
    MOVE = "Move"


class Approval(StrEnum):
    """Whether a redrive waits for `spec.approved`."""

    NOT_REQUIRED = "NotRequired"
    REQUIRED = "Required"


class GroupRef(ApiModel):
    """A StreamConsumerGroup in the same namespace."""

    name: ObjectName = Field(description="Name of the StreamConsumerGroup.")


class PlanRef(ApiModel):
    """A redrive plan of the audit pipeline, in a ConfigMap in the same namespace."""

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        default="plan.jsonl", description="Key of the ConfigMap that has the plan."
    )


class FieldMatch(ApiModel):
    """A field of the original entry and its value."""

    name: _Text = Field(description="Name of the field.")
    value: Annotated[str, Field(max_length=512)] = Field(
        description="Value of the field; the whole value must be equal."
    )


_Fields = Annotated[tuple[FieldMatch, ...], Field(min_length=1, max_length=MOST_FIELDS)]
_Ids = Annotated[tuple[EntryIdText, ...], Field(min_length=1, max_length=MOST_IDS)]


class SelectionSpec(ApiModel):
    """Which dead letters are selected. All that is set must match."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="!has(self.deadLetteredAfter) || !has(self.deadLetteredBefore)"
                " || self.deadLetteredAfter < self.deadLetteredBefore",
                message="deadLetteredAfter must be before deadLetteredBefore",
                field_path=".deadLetteredAfter",
            )
        )
    )

    reasons: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description=(
            "Reasons of dead letters, such as MaxRetriesExceeded or Rejected; one of them must be "
            "the reason of the dead letter. Default: any reason."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    clusters: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description=(
            "Clusters of dead letters that failed alike, as the triage of the audit pipeline "
            "names them; the dead letter must be in one of them. Default: any cluster."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    error_contains: _Text | None = Field(
        default=None,
        description="Text that the error of the dead letter must contain. Default: any error.",
    )
    error_matches: _Text | None = Field(
        default=None,
        description=(
            "Regular expression (RE2 syntax) that must match somewhere in the error of the dead "
            "letter. Default: any error."
        ),
    )
    fields: (
        Annotated[tuple[FieldMatch, ...], Field(min_length=1, max_length=MOST_FIELDS)] | None
    ) = Field(
        default=None,
        description=(
            "Fields that the original entry must have with these values. Default: any fields."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    dead_lettered_after: Timestamp | None = Field(
        default=None,
        description=(
            "Time after which the dead letter was added to the dead-letter stream, by the clock of "
            "Redis. Default: any time."
        ),
    )
    dead_lettered_before: Timestamp | None = Field(
        default=None,
        description=(
            "Time before which the dead letter was added to the dead-letter stream, by the clock "
            "of Redis. Default: any time before the start of the redrive."
        ),
    )
    ids: Annotated[tuple[EntryIdText, ...], Field(min_length=1, max_length=MOST_IDS)] | None = (
        Field(
            default=None,
            description="Entry IDs of dead letters, at most 1000. Default: any ID.",
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        )
    )
    plan_ref: PlanRef | None = Field(
        default=None,
        description=(
            "Redrive plan of the audit pipeline in a ConfigMap; the dead letter must have the "
            "action redrive in it. Default: no plan."
        ),
    )
    max_returned: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None,
        description=(
            "Largest number of times that a dead letter was redriven before; with 0 a dead letter "
            "that came back is not selected again. Default: any number."
        ),
    )


class TrialSpec(ApiModel):
    """A first part that is moved and watched before the rest."""

    entries: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=10, description="Number of dead letters that are moved first. Default: 10."
    )
    wait_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] = Field(
        default=60,
        description=(
            "Longest wait for the result of the trial, in seconds. The rest follows when no "
            "entry of the trial is unprocessed, or after this time, if at most "
            "stopOnFailedAgainPercent of the entries failed again. Default: 60 s."
        ),
    )


_FIXED: Final = (
    "groupRef",
    "action",
    "mode",
    "destination",
    "approval",
    "stopOnFailedAgainPercent",
)
_FIXED_OPTIONAL: Final = (
    "selection",
    "maxEntries",
    "maxBacklog",
    "trial",
    "ttlSecondsAfterFinished",
)


def _immutable(name: str, *, is_optional: bool) -> Rule:
    rule = f"self.{name} == oldSelf.{name}"
    if is_optional:
        rule = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {rule})"
    return Rule(
        rule=rule,
        message=f"{name} is immutable: create another StreamRedrive",
        field_path=f".{name}",
        reason=RuleReason.FORBIDDEN,
    )


_SPEC_RULES = cel(
    *(_immutable(name, is_optional=False) for name in _FIXED),
    *(_immutable(name, is_optional=True) for name in _FIXED_OPTIONAL),
    Rule(
        rule="self.action == 'Redrive' || self.destination == 'Stream'",
        message="destination applies to the action Redrive only",
        field_path=".destination",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        rule="self.action == 'Redrive' || (!has(self.trial) && !has(self.maxBacklog))",
        message="trial and maxBacklog apply to the action Redrive only",
        reason=RuleReason.FORBIDDEN,
    ),
)


class StreamRedriveSpec(ApiModel):
    """Which dead letters of which group are moved, and how fast."""

    model_config = ConfigDict(json_schema_extra=_SPEC_RULES)

    group_ref: GroupRef = Field(
        description="StreamConsumerGroup in the same namespace whose dead letters are moved."
    )
    action: RedriveAction = Field(
        default=RedriveAction.REDRIVE,
        description=(
            "Action on the selected dead letters. Redrive: adds a copy of the original entry to "
            "the stream, or to the retry stream. Discard: moves the dead letter to the stream of "
            "discarded dead letters, where deadLetter.retentionSeconds of the group applies. "
            "Restore: moves discarded dead letters back to the dead-letter stream."
        ),
    )
    selection: SelectionSpec | None = Field(
        default=None,
        description=(
            "Conditions that a dead letter must meet, all of them. Default: every dead letter "
            "that exists when the redrive starts."
        ),
    )
    max_entries: PositiveCount | None = Field(
        default=None,
        description="Largest number of dead letters to move, oldest first. Default: no limit.",
    )
    rate_per_second: Annotated[int, Field(ge=1, le=MOST_PER_SECOND)] = Field(
        default=DEFAULT_PER_SECOND,
        description=(
            "Largest number of dead letters that are moved in a second, by all replicas of the "
            "operator together. Default: 100 per second."
        ),
    )
    max_backlog: PositiveCount | None = Field(
        default=None,
        description=(
            "Backlog of the group (undelivered and pending entries) above which no further entry "
            "is moved until workers have reduced it. Default: no limit."
        ),
    )
    trial: TrialSpec | None = Field(
        default=None,
        description=(
            "First part that is moved and watched before the rest is moved. Default: no trial."
        ),
    )
    stop_on_failed_again_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        default=DEFAULT_FAILED_AGAIN_PERCENT,
        description=(
            "Percentage of moved entries that may become dead letters again. Above it the redrive "
            "stops and has failed; with 100 it never stops for that. Default: 20 %."
        ),
    )
    destination: RedriveDestination = Field(
        default=RedriveDestination.STREAM,
        description=(
            "Stream to which Redrive adds the copies. Stream: the group's stream, which no other "
            "group may read. RetryStream: the retry stream of the group, which only its workers "
            "read. Default: Stream."
        ),
    )
    mode: RedriveMode = Field(
        default=RedriveMode.MOVE,
        description=(
            "Mode of the run. DryRun: counts the selected dead letters, reports samples and moves "
            "nothing. Default: Move."
        ),
    )
    approval: Approval = Field(
        default=Approval.NOT_REQUIRED,
        description=(
            "Approval that the redrive needs. With Required it starts once spec.approved is true, "
            "except for a dry run. Default: NotRequired."
        ),
    )
    approved: bool = Field(
        default=False,
        description=(
            "Approval of a redrive whose approval is Required. While it is false, nothing is moved."
        ),
    )
    suspend: bool = Field(
        default=False,
        description="Suspension of the redrive. What was moved stays moved. Default: false.",
    )
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=MAX_SECONDS)] | None = Field(
        default=None,
        description=(
            "Seconds after which a finished StreamRedrive is deleted. Default: it is kept."
        ),
    )

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing is moved."""
        return self.mode is RedriveMode.DRY_RUN

    @property
    def needs_approval(self) -> bool:
        """Whether it must be approved, and is not. A dry run needs no approval."""
        return self.asks_approval and not self.approved

    @property
    def asks_approval(self) -> bool:
        """Whether it moves something that another person approves first."""
        return self.approval is Approval.REQUIRED and not self.is_dry_run


class StreamRedrive(ApiModel):
    """One redrive, as a user declared it and the operator last saw it."""

    api_version: str = API_VERSION
    kind: str = REDRIVE_KIND
    metadata: ObjectMeta
    spec: StreamRedriveSpec
    status: StreamRedriveStatus | None = None

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> StreamRedrive:
        """Return the resource that the API server's JSON describes.

        A status that another version wrote and this one cannot read counts as absent. Rules between
        fields are the API server's to check.

        Raises:
            InvalidSpec: a field is missing or out of bounds; the message names it, never its value.
        """
        try:
            resource = cls.model_validate({**obj, "status": None})
        except ValidationError as error:
            raise InvalidSpec(render_errors(error)) from error
        return resource.model_copy(update={"status": _parse_status(obj.get("status"))})


def _parse_status(status: object) -> StreamRedriveStatus | None:
    try:
        return None if not status else StreamRedriveStatus.model_validate(status)
    except ValidationError:
        return None
