"""The report as a JSON document for programs: version 1, described by `audit.schema.json`.

Bytes that are no UTF-8 text are given in base64; spans are in seconds, moments in milliseconds
since 1970. Fields may be added in this version; a field changes its meaning, or goes, in the next
one only.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

from pelops.domain.audit import Certainty, EntryStatus, Verdict, parse_summary, render_summary
from pelops.domain.entry_id import EntryId
from pelops.domain.json_fields import JsonFields, load_json_object
from pelops.errors import InvalidSpec
from pelops.pipeline.report.links import anchor_of
from pelops.pipeline.report.model import (
    AgeBand,
    CountCheck,
    Duplicate,
    ExceptionalEntry,
    Finding,
    GroupLine,
    GroupReport,
    Report,
    Severity,
    Spread,
    Timeline,
)
from pelops.pipeline.report.severity import (
    certainty_of,
    certainty_of_all,
    list_findings,
    sentence_of,
    sentence_of_all,
    verdict_of,
    verdict_of_all,
)
from pelops.pipeline.triage.clusters import Cluster, LetterExample, ValueHead

KIND: Final = "pelops.audit-report"
VERSION: Final = 1
_MOST_READ: Final = 64 * 1024 * 1024  # bytes
_LAST_MS: Final = 253_370_764_800_000  # the year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def render_document(report: Report) -> str:
    """The whole document. Equal reports give equal bytes."""
    content = {
        "kind": KIND,
        "version": VERSION,
        "audit": report.audit,
        "at_ms": _ms(report.at),
        "pelops": report.pelops,
        "archive": report.archive,
        "stream": report.stream,
        "verdict": verdict_of_all(report).value,
        "certainty": certainty_of_all(report),
        "sentence": sentence_of_all(report),
        "groups": [_group(group) for group in report.groups],
        "others": [_line(one) for one in report.others],
        "unread": list(report.unread),
    }
    # Half of a surrogate pair cannot be written but as an escape.
    return json.dumps(content, ensure_ascii=True, indent=1, sort_keys=True, allow_nan=False) + "\n"


@cache
def read_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document."""
    text = files("pelops.pipeline.report").joinpath("audit.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def read_lines(text: str, page: str) -> list[GroupLine]:
    """The groups of a document, for an overview that links to its page.

    Raises InvalidSpec when it is no document of this version.
    """
    return [_read_group(one, page) for one in _objects(_open(text), "groups")]


def read_all_lines(text: str) -> list[GroupLine]:
    """Every group of a document, also those that it only links to. Raises InvalidSpec."""
    return [*read_lines(text, ""), *map(_read_line, _objects(_open(text), "others"))]


def _open(text: str) -> JsonFields:
    fields = load_json_object(text, "the report", limit=_MOST_READ)
    if fields.text("kind") != KIND or fields.number("version") != VERSION:
        raise InvalidSpec(f"it is no {KIND} of version {VERSION}")
    return fields


def _read_group(fields: JsonFields, page: str) -> GroupLine:
    summary = parse_summary(json.dumps(fields.inner("summary").content))
    return GroupLine(
        stream=summary.stream,
        group=summary.group,
        verdict=fields.word("verdict", Verdict),
        certainty=_certainty(fields),
        sentence=fields.text("sentence", _MOST_READ),
        findings=_findings(fields),
        window=summary.window.number,
        closed=summary.window.at,
        produced=summary.produced,
        open=summary.open,
        href=f"{page}#{anchor_of(summary.stream, summary.group)}",
    )


def _read_line(fields: JsonFields) -> GroupLine:
    return GroupLine(
        stream=fields.text("stream", _MOST_READ),
        group=fields.text("group", _MOST_READ),
        verdict=fields.word("verdict", Verdict),
        certainty=_certainty(fields),
        sentence=fields.text("sentence", _MOST_READ),
        findings=_findings(fields),
        window=fields.number("window"),
        closed=_EPOCH + min(fields.number("closed_ms"), _LAST_MS) * _MILLISECOND,
        produced=fields.number("produced"),
        open=fields.number("open"),
        href=fields.text("page", _MOST_READ),
    )


def _certainty(fields: JsonFields) -> Certainty | None:
    absent = fields.content.get("certainty") is None
    return None if absent else fields.word("certainty", Certainty)


def _findings(fields: JsonFields) -> tuple[Finding, ...]:
    return tuple(map(_read_finding, _objects(fields, "findings")))


def _objects(fields: JsonFields, name: str) -> list[JsonFields]:
    found = fields.content.get(name)
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise InvalidSpec(f"{fields.at}{name} is no list of objects")
    return [JsonFields(content=one, at=f"{fields.at}{name}[].") for one in found]


def _read_finding(fields: JsonFields) -> Finding:
    return Finding(
        severity=fields.word("severity", Severity),
        kind=fields.text("kind", 64),
        count=fields.number("count"),
        sentence=fields.text("sentence", _MOST_READ),
    )


def _line(one: GroupLine) -> dict[str, Any]:
    return {
        "stream": one.stream,
        "group": one.group,
        "verdict": one.verdict.value,
        "certainty": one.certainty,
        "sentence": one.sentence,
        "findings": [_finding(finding) for finding in one.findings],
        "window": one.window,
        "closed_ms": _ms(one.closed),
        "produced": one.produced,
        "open": one.open,
        "page": one.href,
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "severity": one.severity.value,
        "kind": one.kind,
        "count": one.count,
        "sentence": one.sentence,
    }


def _group(group: GroupReport) -> dict[str, Any]:
    return {
        "verdict": verdict_of(group).value,
        "certainty": certainty_of(group),
        "sentence": sentence_of(group),
        "findings": [_finding(one) for one in list_findings(group)],
        "summary": render_summary(group.summary),
        "earlier": [render_summary(one) for one in group.earlier],
        "checks": [_check(one) for one in group.checks],
        "roots": None if group.roots is None else _counts(group.roots),
        "timeline": None if group.timeline is None else _timeline(group.timeline),
        "stuck_ages": None
        if group.stuck_ages is None
        else [_band(one) for one in group.stuck_ages],
        "exceptions": _exceptions(group),
        "dead_letters": _letters(group),
        "duplicates": _duplicates(group),
        "unproven": [
            {"why": one.why, "entries": one.entries, "sentence": one.sentence}
            for one in group.unproven
        ],
        "deliveries": None if group.deliveries is None else list(group.deliveries),
        "times": [_spread(one) for one in group.spreads],
        "comparisons": [
            {
                "kind": one.kind,
                "count": one.count,
                "sentence": one.sentence,
                "examples": list(one.examples),
            }
            for one in group.comparisons
        ],
    }


def _exceptions(group: GroupReport) -> dict[str, Any] | None:
    found = group.exceptions
    if found is None:
        return None
    return {
        "count": found.count,
        "path": found.path,
        "counts": {source.value: _counts(counts) for source, counts in found.counts.items()},
        "first": [_exceptional(one) for one in found.first],
    }


def _exceptional(one: ExceptionalEntry) -> dict[str, Any]:
    return {
        "id": str(one.entry_id),
        "source": one.source.value,
        "status": one.status.value,
        "why": one.why,
        "consumer": one.consumer,
        "idle_s": _seconds(one.idle),
        "deliveries": one.deliveries,
        "root": _id(one.root_id),
    }


def _letters(group: GroupReport) -> dict[str, Any] | None:
    letters = group.letters
    if letters is None:
        return None
    return {
        "count": letters.count,
        "plan": letters.plan,
        "clusters": render_clusters(letters.clusters),
    }


def render_clusters(clusters: Iterable[Cluster]) -> list[dict[str, Any]]:
    """Clusters of dead letters, as they stand in the document."""
    return [_cluster(one) for one in clusters]


def _cluster(one: Cluster) -> dict[str, Any]:
    return {
        "cluster": one.signature.cluster,
        "reason": one.signature.reason,
        "exception": one.signature.exception,
        "error": one.signature.error,
        "shape": one.signature.shape,
        "letters": one.letters,
        "first_seen_ms": one.first_seen_ms,
        "last_seen_ms": one.last_seen_ms,
        "consumers": one.consumers,
        "retries": list(one.retries),
        "returned": one.returned,
        "action": str(one.advice.action),
        "advice": one.advice.reason,
        "examples": [_example(example) for example in one.examples],
    }


def _example(one: LetterExample) -> dict[str, Any]:
    return {
        "id": str(one.entry_id),
        "root": str(one.root_id),
        "consumer": one.consumer,
        "error": one.error,
        "field_count": one.field_count,
        "fields": [{"name": _value(name), "value": _value(value)} for name, value in one.fields],
    }


def _value(value: ValueHead) -> dict[str, Any]:
    try:
        told = {"text": value.head.decode("utf-8")}
    except UnicodeDecodeError:
        told = {"base64": b64encode(value.head).decode()}
    return {**told, "size": value.size}


def _duplicates(group: GroupReport) -> dict[str, Any] | None:
    found = group.duplicates
    if found is None:
        return None
    return {"entries": found.entries, "first": [_duplicate(one) for one in found.first]}


def _duplicate(one: Duplicate) -> dict[str, Any]:
    examples = [str(entry) for entry in one.examples]
    return {"by": one.by, "key": one.key, "copies": one.copies, "examples": examples}


def _timeline(timeline: Timeline) -> dict[str, Any]:
    return {
        "start_ms": _ms(timeline.start),
        "step_ms": timeline.step // _MILLISECOND,
        "arrivals": list(timeline.arrivals),
        "recoveries": list(timeline.recoveries),
        "dead_letters": list(timeline.dead_letters),
    }


def _band(band: AgeBand) -> dict[str, Any]:
    return {
        "from_s": _seconds(band.at_least),
        "to_s": _seconds(band.below),
        "entries": band.entries,
    }


def _spread(one: Spread) -> dict[str, Any]:
    return {
        "name": one.name,
        "entries": one.entries,
        "p50_s": _seconds(one.p50),
        "p90_s": _seconds(one.p90),
        "p99_s": _seconds(one.p99),
        "max_s": _seconds(one.most),
    }


def _check(one: CountCheck) -> dict[str, Any]:
    return {"name": one.name, "expected": one.expected, "found": one.found, "holds": one.holds}


def _counts(counts: Mapping[EntryStatus, int]) -> dict[str, int]:
    return {status.value: count for status, count in counts.items() if count}


def _id(entry_id: EntryId | None) -> str | None:
    return None if entry_id is None else str(entry_id)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else round(span / timedelta(seconds=1), 3)


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
