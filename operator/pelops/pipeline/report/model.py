"""The report of an audit: what the page shows, and what `audit.json` holds.

Values that are not valid UTF-8 are base64. Durations are in seconds, and times in milliseconds
since 1970, unless the description of the field names another unit. Fields can be added in this
version; a changed or removed field requires a new version. A part that is null was not checked; an
empty one was.

`python -m pelops.pipeline.report.model --write` writes `audit.schema.json`. `--check` exits 1 and
shows the difference if the file does not match the models.
"""

# mypy: disable-error-code="prop-decorator"
from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    computed_field,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    AuditVerdict,
    Certainty,
    worst_certainty,
    worst_verdict,
)
from pelops.domain.records.redrive import PlannedLetterAction
from pelops.pipeline.report.findings import ReportFinding, list_findings, list_notes
from pelops.pipeline.report.overview import GroupLine, describe_groups, sort_lines
from pelops.pipeline.report.parts import (
    Count,
    Counts,
    Id,
    Moment,
    ReportPart,
    Span,
    Step,
    Summary,
)
from pelops.pipeline.report.words import (
    join_words,
)
from pelops.pipeline.triage import clusters as triaged

SCHEMA: Final = "operator/pelops/pipeline/report/audit.schema.json"
_PROGRAM: Final = "python -m pelops.pipeline.report.model"


class CountCheck(ReportPart):
    """Two ways of counting the same. A number is negative only where records contradict others."""

    name: str
    expected: int
    found: int

    @computed_field
    @property
    def holds(self) -> bool:
        """Whether both numbers are equal."""
        return self.expected == self.found


class Timeline(ReportPart):
    """Counts over time, in steps of equal length; the three lists are equally long."""

    start: Annotated[Moment, Field(alias="start_ms")]
    step: Annotated[Step, Field(alias="step_ms")]
    arrivals: tuple[Count, ...]
    recoveries: tuple[Count, ...] = Field(description="Requeued or released entries.")
    dead_letters: tuple[Count, ...]


class AgeBand(ReportPart):
    """Stuck entries by the time since their last delivery; `to_s` is null for the oldest band."""

    at_least: Annotated[Span, Field(alias="from_s")]
    below: Annotated[Span | None, Field(alias="to_s")]
    entries: Count


class EntrySource(StrEnum):
    """The origin of an entry that the audit kept one by one."""

    WINDOW = "window"  # the window of the report
    EARLIER = "earlier"  # windows before it, and it can still change
    SETTLED = "settled"  # windows before it, open until this one
    COPY = "copy"  # copies in the group's own retry stream


class ExceptionalEntry(ReportPart):
    """One entry to look at."""

    entry_id: Annotated[Id, Field(alias="id")]
    source: EntrySource = EntrySource.WINDOW
    status: EntryStatus
    why: str
    consumer: str = ""
    idle: Annotated[Span | None, Field(alias="idle_s")] = None
    deliveries: Count | None = None
    root_id: Annotated[Id | None, Field(alias="root", description="The root of a copy.")] = None


class Exceptions(ReportPart):
    """Entries to look at, from all tables of the audit."""

    count: Count
    path: str = Field(default="", description="Where all of them are.")
    counts: dict[EntrySource, Counts] = Field(default={})
    first: tuple[ExceptionalEntry, ...] = Field(description="The worst ones.")


class TextHead(ReportPart):
    """The beginning of a name or value, and the size of the whole in bytes."""

    text: str
    size: Count


class BytesHead(ReportPart):
    """The beginning of a name or value that is not UTF-8, and the size of the whole in bytes."""

    base64: str
    size: Count


def _read_head(value: Any) -> Any:
    """Return the beginning of a value, as text if it is UTF-8, cut after a whole character."""
    if not isinstance(value, triaged.ValueHead):
        return value
    head, size = value.head, value.size
    try:
        return {"text": head.decode("utf-8"), "size": size}
    except UnicodeDecodeError as error:
        if size > len(head) and error.start >= len(head) - 3 and "end" in error.reason:
            return {"text": head[: error.start].decode("utf-8"), "size": size}
        return {"base64": b64encode(head).decode(), "size": size}


Head = Annotated[TextHead | BytesHead, BeforeValidator(_read_head)]


class LetterField(ReportPart):
    """A field of an entry."""

    name: Head
    value: Head


class DeadLetterExample(ReportPart):
    """One dead letter."""

    entry_id: Annotated[Id, Field(alias="id")]
    root_id: Annotated[Id, Field(alias="root")]
    consumer: str
    error: str
    field_count: Count
    fields: tuple[LetterField, ...] = Field(description="The first ones.")

    @model_validator(mode="before")
    @classmethod
    def _read_letter(cls, given: Any) -> Any:
        if not isinstance(given, triaged.LetterExample):
            return given
        named = [{"name": name, "value": value} for name, value in given.fields]
        return {**_attributes(given), "fields": named}


class DeadLetterCluster(ReportPart):
    """Dead letters that seem to have the same cause."""

    cluster: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    reason: str
    exception: str
    error: str
    shape: str
    letters: Count
    first_seen_ms: int
    last_seen_ms: int
    consumers: Count = Field(description="Different ones, about.")
    retries: tuple[Count, ...] = Field(
        description="Dead letters by their number of failed attempts: 0, 1, 2 ...; the last place "
        "counts this many and more."
    )
    returned: Count = Field(description="Dead letters whose entry was dead-lettered before.")
    action: PlannedLetterAction
    advice: str
    examples: tuple[DeadLetterExample, ...]

    @model_validator(mode="before")
    @classmethod
    def _read_cluster(cls, given: Any) -> Any:
        if not isinstance(given, triaged.Cluster):
            return given
        advice = {"action": given.advice.action, "advice": given.advice.reason}
        signature = {**asdict(given.signature), "cluster": given.signature.cluster}
        return {**_attributes(given), **signature, **advice}


class DeadLetters(ReportPart):
    """Dead letters of the group, whatever window they came from."""

    count: Count
    plan: str = Field(default="", description="Path of the redrive plan.")
    clusters: tuple[DeadLetterCluster, ...] = Field(description="The largest first.")


class Duplicate(ReportPart):
    """Several entries that seem to be the same one."""

    by: str = Field(description="`root`, `payload`, or the name of the business key.")
    key: str
    copies: Count
    examples: tuple[Id, ...]


class Duplicates(ReportPart):
    """Entries that came more than once."""

    entries: Count = Field(description="Those beyond the first of each.")
    first: tuple[Duplicate, ...] = Field(description="Those with most copies.")


class Unproven(ReportPart):
    """Something that the audit could not prove, and what would have proven it."""

    why: str
    entries: Count | None = Field(description="Null when it concerns the audit as a whole.")
    sentence: str


class Spread(ReportPart):
    """How a time is distributed."""

    name: str
    entries: Count
    p50: Annotated[Span, Field(alias="p50_s")]
    p90: Annotated[Span, Field(alias="p90_s")]
    p99: Annotated[Span, Field(alias="p99_s")]
    most: Annotated[Span, Field(alias="max_s")]


class Comparison(ReportPart):
    """What a comparison with the user's own table found."""

    kind: str
    count: Count
    sentence: str
    examples: tuple[str, ...] = Field(default=(), description="Business keys.")


class GroupReport(ReportPart):
    """One group in its newest window."""

    summary: Summary
    earlier: tuple[Summary, ...] = Field(default=(), description="The oldest window first.")
    checks: tuple[CountCheck, ...] = ()
    roots: Counts | None = Field(
        default=None, description="Outcomes of what users added: copies are left out."
    )
    timeline: Timeline | None = None
    stuck_ages: tuple[AgeBand, ...] | None = None
    exceptions: Exceptions | None = None
    dead_letters: DeadLetters | None = None
    duplicates: Duplicates | None = None
    unproven: tuple[Unproven, ...] = ()
    deliveries: tuple[Count, ...] | None = Field(
        default=None,
        description="Entries that were delivered once, twice ...; the last place: or more often.",
    )
    times: tuple[Spread, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    @computed_field
    @property
    def verdict(self) -> AuditVerdict:
        """The verdict of the window."""
        return self.summary.verdict

    @computed_field
    @property
    def certainty(self) -> Certainty | None:
        """Certainty of `balanced`; null for every other verdict."""
        return self.summary.certainty if self.verdict is AuditVerdict.BALANCED else None

    @computed_field
    @property
    def sentence(self) -> str:
        """The verdict for people, and the notes."""
        notes = [one.title for one in self.notes]
        sentence = self.summary.sentence
        return f"{sentence} Beside that: {join_words(notes)}." if notes else sentence

    @computed_field
    @property
    def findings(self) -> tuple[ReportFinding, ...]:
        """Findings of the window, the worst first; they are those of the summary."""
        return list_findings(self.summary)

    @computed_field
    @property
    def notes(self) -> tuple[ReportFinding, ...]:
        """Dead letters that are there now, and findings of earlier windows, the worst first. They
        do not change the verdict of the window."""
        letters = 0 if self.dead_letters is None else self.dead_letters.count
        return list_notes(self.summary, letters, self.earlier)

    def line(self, href: str = "") -> GroupLine:
        """Return the group in an overview."""
        shown = {
            name: getattr(self, name) for name in GroupLine.model_fields if hasattr(self, name)
        }
        of_summary = {name: getattr(self.summary, name) for name in ("stream", "group", "produced")}
        window = self.summary.window
        return GroupLine(
            **shown, **of_summary, open=self.summary.open, window=window.number, closed=window.at,
            href=href,
        )  # fmt: skip


class Engine(ReportPart):
    """What computed the report."""

    spark: str = Field(description="Version of Spark.")
    master: str
    jobs: Count
    tasks: Count


class Report(ReportPart):
    """What one run of an audit found. Ignore fields that you do not know."""

    kind: Literal["pelops.audit-report"] = "pelops.audit-report"
    version: Literal[1] = 1
    audit: str = Field(description="Name of the audit.")
    at: Annotated[Moment, Field(alias="at_ms")]
    pelops: str = Field(description="Version of Pelops.")
    engine: Engine | None = None
    archive: str = Field(description="Where the evidence is.")
    stream: str | None = Field(
        default=None, description="Of the report of one stream; null in that of all streams."
    )
    groups: tuple[GroupReport, ...] = ()
    others: tuple[GroupLine, ...] = Field(
        default=(), description="Groups of the archive that this run did not audit."
    )
    unread: tuple[str, ...] = Field(
        default=(), description="Reports of the archive that could not be read."
    )

    @property
    def lines(self) -> list[GroupLine]:
        """All groups, the worst first."""
        return sort_lines([*(one.line() for one in self.groups), *self.others])

    @computed_field
    @property
    def verdict(self) -> AuditVerdict:
        """The worst verdict of all groups; unknown without any, or when a report is unreadable."""
        verdicts = [one.verdict for one in self.lines]
        if self.unread or not verdicts:
            verdicts.append(AuditVerdict.UNKNOWN)
        return worst_verdict(verdicts) or AuditVerdict.UNKNOWN

    @computed_field
    @property
    def certainty(self) -> Certainty | None:
        """Certainty of `balanced`; null for every other verdict."""
        if self.verdict is not AuditVerdict.BALANCED:
            return None
        return worst_certainty([one.certainty for one in self.lines if one.certainty])

    @computed_field
    @property
    def sentence(self) -> str:
        """The verdict for people."""
        return describe_groups(self.lines)


def build_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the document."""
    schema = Report.model_json_schema(mode="serialization", schema_generator=_Untitled)
    for definition in (schema, *schema["$defs"].values()):
        del definition["title"]
        for value in definition.get("properties", {}).values():
            value.pop("readOnly", None)  # marks computed fields, which readers do not need
    dialect = GenerateJsonSchema.schema_dialect
    return {"$schema": dialect, "title": "Pelops audit report", **schema}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the schema; return the exit code."""
    # Imported late: the pipeline's image does not have its dependencies.
    from pelops.api.generated_files import write_or_check

    text = json.dumps(build_schema(), indent=2) + "\n"
    return write_or_check({SCHEMA: text}, _PROGRAM, __doc__, arguments)


class _Untitled(GenerateJsonSchema):
    """Without titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _attributes(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


if __name__ == "__main__":
    sys.exit(main())
