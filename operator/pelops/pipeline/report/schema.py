"""The models of the report's JSON document, and the JSON Schema generated from them.

Values that are not valid UTF-8 are base64; durations are in seconds and times in milliseconds since
1970, unless the field says otherwise. Fields can be added in this version; changing or removing one
takes a new version.

`python -m pelops.pipeline.report.schema --write` writes `audit.schema.json`; `--check` exits 1 and
shows the difference when the file is not what the models say.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import GenerateJsonSchema

from pelops.domain.audit import (
    AuditSummary,
    AuditVerdict,
    Certainty,
    EntryStatus,
    EvidenceKind,
    render_summary,
)
from pelops.domain.entry_id import EntryId
from pelops.pipeline.report.model import EntrySource, Severity
from pelops.pipeline.triage.clusters import Cluster, ValueHead
from pelops.policy.redrive.triage import RedriveAction

SCHEMA: Final = "operator/pelops/pipeline/report/audit.schema.json"
_PROGRAM: Final = "python -m pelops.pipeline.report.schema"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def attributes_of(one: Any) -> dict[str, Any]:
    """Return the fields of a dataclass object by name; what they hold stays as it is."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _to_ms(value: object) -> object:
    if isinstance(value, datetime):
        value -= _EPOCH
    return value // _MILLISECOND if isinstance(value, timedelta) else value


def _to_seconds(value: object) -> object:
    return round(value / timedelta(seconds=1), 3) if isinstance(value, timedelta) else value


def _to_id(value: object) -> object:
    return str(value) if isinstance(value, EntryId) else value


def _to_summary(value: object) -> object:
    return render_summary(value) if isinstance(value, AuditSummary) else value


def _to_value(value: object) -> object:
    if not isinstance(value, ValueHead):
        return value
    try:
        return {"text": value.head.decode("utf-8"), "size": value.size}
    except UnicodeDecodeError:
        return {"base64": b64encode(value.head).decode(), "size": value.size}


def _without_zeros(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {status: count for status, count in value.items() if count != 0}


Count = Annotated[int, Field(ge=0, strict=True)]
Milliseconds = Annotated[int, Field(strict=True), BeforeValidator(_to_ms)]
Seconds = Annotated[float, BeforeValidator(_to_seconds)]
IdText = Annotated[str, Field(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$"), BeforeValidator(_to_id)]
Counts = Annotated[
    dict[EntryStatus, Annotated[int, Field(ge=1, strict=True)]],
    Field(description="Entries by status; statuses without entries are left out."),
    BeforeValidator(_without_zeros),
]


class JsonPart(BaseModel):
    """A part of the document, made from the report's object of the same meaning or from JSON."""

    model_config = ConfigDict(
        frozen=True,
        from_attributes=True,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )


class WindowJson(JsonPart):
    """A part of a stream: after `from_id`, up to and including `to_id`."""

    number: Count
    from_id: IdText
    to_id: IdText
    from_added: Count
    to_added: Count
    at_ms: Count


class AuditFindingJson(JsonPart):
    """Something to look at, as the audit of one window found it."""

    kind: str
    count: Count
    sentence: str


class RecoveryTimesJson(JsonPart):
    """Milliseconds from the first observation of a stuck entry to its acknowledgement or
    recovery."""

    p50: Count
    p99: Count


class SummaryJson(JsonPart):
    """One group in one window; the same object as the operator reads from Redis.

    The counts add up to `produced`.
    """

    version: Literal[1]
    stream: str
    group: str
    window: WindowJson
    produced: Count
    archived: Count
    counts: Counts
    open: Count
    lost_earlier: Count = Field(
        description="Number of entries of earlier windows that were undelivered then and are "
        "lost now."
    )
    stuck_earlier: Count = Field(
        description="Number of entries of earlier windows that are pending for longer than the "
        "limit."
    )
    findings: tuple[AuditFindingJson, ...]
    verdict: AuditVerdict
    certainty: Certainty = Field(description="Certainty of the acknowledgements.")
    sentence: str
    oldest_stuck_s: float | None
    time_to_recovery_ms: RecoveryTimesJson | None
    retention_margin: float | None
    evidence: EvidenceKind


RenderedSummary = Annotated[SummaryJson, BeforeValidator(_to_summary)]


class FindingJson(JsonPart):
    """A finding, from any table of the audit."""

    severity: Severity
    kind: str = Field(
        description="A name for programs. The suffix is the origin: `-later`, earlier "
        "windows and settled since; `-earlier`, earlier windows and still open; `-copies`, the "
        "group's retry stream; `-before`, as earlier windows found it."
    )
    count: Count
    sentence: str


class VerdictJson(JsonPart):
    """A verdict and what it rests on."""

    verdict: AuditVerdict
    certainty: Certainty | None = Field(
        default=None, description="Certainty of `balanced`; null for every other verdict."
    )
    sentence: str


class GroupVerdictJson(VerdictJson):
    """The verdict of a group."""

    findings: tuple[FindingJson, ...] = Field(
        description="The worst first. Only a group without findings can be balanced."
    )


class CountCheckJson(JsonPart):
    """Two ways of counting the same. A number is negative only where records contradict others."""

    name: str
    expected: int
    found: int
    holds: bool


class TimelineJson(JsonPart):
    """Counts over time; the three lists are equally long."""

    start: Milliseconds = Field(alias="start_ms")
    step: Annotated[int, Field(strict=True, ge=1), BeforeValidator(_to_ms)] = Field(alias="step_ms")
    arrivals: tuple[Count, ...]
    recoveries: tuple[Count, ...]
    dead_letters: tuple[Count, ...]


class AgeBandJson(JsonPart):
    """Stuck entries by the time since their last delivery; `to_s` is null for the oldest band."""

    at_least: Seconds = Field(alias="from_s")
    below: Seconds | None = Field(alias="to_s")
    entries: Count


class ExceptionalEntryJson(JsonPart):
    """One entry to look at."""

    entry_id: IdText = Field(alias="id")
    source: EntrySource
    status: EntryStatus
    why: str
    consumer: str
    idle: Seconds | None = Field(alias="idle_s")
    deliveries: Count | None
    root_id: IdText | None = Field(alias="root")


class ExceptionsJson(JsonPart):
    """Entries to look at, from all tables of the audit."""

    count: Count
    path: str = Field(description="Where all of them are, as Parquet.")
    counts: dict[EntrySource, Counts]
    first: tuple[ExceptionalEntryJson, ...] = Field(description="The worst ones.")


class TextHeadJson(JsonPart):
    """The beginning of a name or value, and the size of the whole in bytes."""

    text: str
    size: Count


class BytesHeadJson(JsonPart):
    """The beginning of a name or value that is not UTF-8, and the size of the whole in bytes."""

    base64: str
    size: Count


HeadJson = Annotated[TextHeadJson | BytesHeadJson, BeforeValidator(_to_value)]


class FieldJson(JsonPart):
    """A field of an entry."""

    name: HeadJson
    value: HeadJson


class LetterExampleJson(JsonPart):
    """One dead letter."""

    entry_id: IdText = Field(alias="id")
    root_id: IdText = Field(alias="root")
    consumer: str
    error: str
    field_count: Count
    fields: tuple[FieldJson, ...] = Field(description="The first ones.")

    @model_validator(mode="before")
    @classmethod
    def _name_pairs(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return given
        named = [{"name": name, "value": value} for name, value in given.fields]
        return {**attributes_of(given), "fields": named}


class ClusterJson(JsonPart):
    """Dead letters that seem to have the same cause."""

    cluster: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    reason: str
    exception: str
    error: str
    shape: str
    letters: Count
    first_seen_ms: int
    last_seen_ms: int
    consumers: Count
    retries: tuple[Count, ...] = Field(
        description="Dead letters by their number of failed attempts: 0, 1, 2 ...; the last place "
        "counts this many and more."
    )
    returned: Count
    action: RedriveAction
    advice: str
    examples: tuple[LetterExampleJson, ...]

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, given: Any) -> Any:
        if not isinstance(given, Cluster):
            return given
        advice = {"action": given.advice.action, "advice": given.advice.reason}
        signature = {**asdict(given.signature), "cluster": given.signature.cluster}
        return {**attributes_of(given), **signature, **advice}


class DeadLettersJson(JsonPart):
    """Dead letters of the group, whatever window they came from."""

    count: Count
    plan: str = Field(description="Path of the redrive plan.")
    clusters: tuple[ClusterJson, ...]


class DuplicateJson(JsonPart):
    """Several entries that seem to be the same one."""

    by: str
    key: str
    copies: Count
    examples: tuple[IdText, ...]


class DuplicatesJson(JsonPart):
    """Entries that came more than once."""

    entries: Count = Field(description="Those beyond the first of each.")
    first: tuple[DuplicateJson, ...]


class UnprovenJson(JsonPart):
    """Something that the audit could not prove, and what would have proven it."""

    why: str
    entries: Count | None = Field(description="Null when it concerns the audit as a whole.")
    sentence: str


class SpreadJson(JsonPart):
    """How a time is distributed."""

    name: str
    entries: Count
    p50: Seconds = Field(alias="p50_s")
    p90: Seconds = Field(alias="p90_s")
    p99: Seconds = Field(alias="p99_s")
    most: Seconds = Field(alias="max_s")


class ComparisonJson(JsonPart):
    """What a comparison with the user's own table found."""

    kind: str
    count: Count
    sentence: str
    examples: tuple[str, ...]


class GroupJson(GroupVerdictJson):
    """One group. A part that is null was not looked at; one that is empty was."""

    summary: RenderedSummary
    earlier: tuple[RenderedSummary, ...] = Field(description="Windows before it, the oldest first.")
    checks: tuple[CountCheckJson, ...]
    roots: Counts | None
    timeline: TimelineJson | None
    stuck_ages: tuple[AgeBandJson, ...] | None
    exceptions: ExceptionsJson | None
    letters: DeadLettersJson | None = Field(alias="dead_letters")
    duplicates: DuplicatesJson | None
    unproven: tuple[UnprovenJson, ...]
    deliveries: tuple[Count, ...] | None = Field(
        description="Entries that were delivered once, twice ...; the last place: or more often."
    )
    spreads: tuple[SpreadJson, ...] = Field(alias="times")
    comparisons: tuple[ComparisonJson, ...]


class LineJson(GroupVerdictJson):
    """A group that has a report of its own."""

    stream: str
    group: str
    window: Count
    closed: Milliseconds = Field(alias="closed_ms")
    produced: Count
    open: Count = Field(
        description="Entries of this and earlier windows that have not come to an end."
    )
    href: str = Field(alias="page", description="From the directory of this document.")


class ReportJson(VerdictJson):
    """What one run of an audit found. Ignore fields that you do not know."""

    kind: Literal["pelops.audit-report"] = "pelops.audit-report"
    version: Literal[1] = 1
    audit: str
    at: Milliseconds = Field(alias="at_ms")
    pelops: str
    archive: str
    stream: str | None = Field(
        description="Of the report of one stream; null in that of all streams."
    )
    groups: tuple[GroupJson, ...]
    others: tuple[LineJson, ...] = Field(
        description="Groups of the archive that this run did not audit."
    )
    unread: tuple[str, ...] = Field(description="Reports of the archive that could not be read.")


def build_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document."""
    schema = ReportJson.model_json_schema(mode="serialization", schema_generator=_Untitled)
    for one in (schema, *schema["$defs"].values()):
        del one["title"]
    dialect = GenerateJsonSchema.schema_dialect
    return {"$schema": dialect, "title": "Pelops audit report", **schema}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the schema; return the exit code."""
    # Late: what it imports is in no image of the pipeline.
    from pelops.api.generated_files import write_or_check

    text = json.dumps(build_schema(), indent=2) + "\n"
    return write_or_check({SCHEMA: text}, _PROGRAM, __doc__, arguments)


class _Untitled(GenerateJsonSchema):
    """Without titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


if __name__ == "__main__":
    sys.exit(main())
