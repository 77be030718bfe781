"""The report as a JSON document for programs: version 1, described by `audit.schema.json`.

Bytes that are no UTF-8 text are given in base64; spans are in seconds, moments in milliseconds
since 1970. Fields may be added in this version; a field changes its meaning, or goes, in the next
one only.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

from pelops.domain.audit import EntryStatus, render_summary
from pelops.domain.entry_id import EntryId
from pelops.pipeline.clusters import Cluster, LetterExample, ValueHead
from pelops.pipeline.report.model import (
    AgeBand,
    CountCheck,
    Duplicate,
    ExceptionalEntry,
    GroupReport,
    Report,
    Spread,
    Timeline,
)

KIND: Final = "pelops.audit-report"
VERSION: Final = 1
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
        "verdict": report.verdict.value,
        "sentence": report.sentence,
        "groups": [_group(group) for group in report.groups],
    }
    # Half of a surrogate pair cannot be written but as an escape.
    return json.dumps(content, ensure_ascii=True, indent=1, sort_keys=True, allow_nan=False) + "\n"


@cache
def read_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document."""
    text = files("pelops.pipeline.report").joinpath("audit.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _group(group: GroupReport) -> dict[str, Any]:
    return {
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
        "first": [_exceptional(one) for one in found.first],
    }


def _exceptional(one: ExceptionalEntry) -> dict[str, Any]:
    return {
        "id": str(one.entry_id),
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


def _counts(counts: dict[EntryStatus, int]) -> dict[str, int]:
    return {status.value: count for status, count in counts.items() if count}


def _id(entry_id: EntryId | None) -> str | None:
    return None if entry_id is None else str(entry_id)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else round(span / timedelta(seconds=1), 3)


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
