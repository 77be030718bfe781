"""The report as a JSON document for programs, written and read; `schema.py` describes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from pydantic import ValidationError

from pelops.domain.audit import parse_summary
from pelops.domain.json_fields import load_json_object
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.layout import anchor_of
from pelops.pipeline.report.model import GroupLine, GroupReport, Report, ReportFinding
from pelops.pipeline.report.schema import (
    ClusterJson,
    GroupVerdictJson,
    JsonPart,
    LineJson,
    ReportJson,
    attributes_of,
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
from pelops.pipeline.triage.clusters import Cluster

_MOST_READ: Final = 64 * 1024 * 1024  # bytes
_LAST_MS: Final = 253_370_764_800_000  # the year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def render_document(report: Report) -> str:
    """Return the whole document. Equal reports give equal bytes."""
    document = ReportJson.model_validate(
        attributes_of(report)
        | {
            "verdict": verdict_of_all(report),
            "certainty": certainty_of_all(report),
            "sentence": sentence_of_all(report),
            "groups": [_group(group) for group in report.groups],
        }
    )
    # Half of a surrogate pair can only be written as an escape.
    content = document.model_dump()
    return json.dumps(content, ensure_ascii=True, indent=1, sort_keys=True, allow_nan=False) + "\n"


def render_clusters(clusters: Iterable[Cluster]) -> list[dict[str, Any]]:
    """Return clusters of dead letters as they stand in the document."""
    return [ClusterJson.model_validate(one).model_dump() for one in clusters]


def read_lines(text: str, page: str) -> list[GroupLine]:
    """Return the groups of a document, for an overview that links to its page.

    Raises InvalidSpec when the text is not a document of this version.
    """
    return [_read_group(one, page) for one in _read(text).groups]


def read_all_lines(text: str) -> list[GroupLine]:
    """Return every group of a document, also those that it only links to. Raises InvalidSpec."""
    document = _read(text)
    return [*(_read_group(one, "") for one in document.groups), *map(_read_line, document.others)]


class _ReadGroup(GroupVerdictJson):
    """As much of a group as an overview needs, whichever release wrote it."""

    summary: dict[str, Any]


class _ReadReport(JsonPart):
    kind: Literal["pelops.audit-report"]
    version: Literal[1]
    groups: tuple[_ReadGroup, ...]
    others: tuple[LineJson, ...] = ()


def _group(group: GroupReport) -> dict[str, Any]:
    return attributes_of(group) | {
        "verdict": verdict_of(group),
        "certainty": certainty_of(group),
        "sentence": sentence_of(group),
        "findings": list_findings(group),
    }


def _read(text: str) -> _ReadReport:
    content = load_json_object(text, "the report", limit=_MOST_READ).content
    try:
        return _ReadReport.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidSpec(f"not an audit report of version 1: {place}: {first['msg']}") from error


def _read_group(one: _ReadGroup, page: str) -> GroupLine:
    summary = parse_summary(json.dumps(one.summary))
    return GroupLine(
        stream=summary.stream,
        group=summary.group,
        verdict=one.verdict,
        certainty=one.certainty,
        sentence=one.sentence,
        findings=_read_findings(one),
        window=summary.window.number,
        closed=summary.window.at,
        produced=summary.produced,
        open=summary.open,
        href=f"{page}#{anchor_of(summary.stream, summary.group)}",
    )


def _read_line(one: LineJson) -> GroupLine:
    closed = _EPOCH + min(max(one.closed, 0), _LAST_MS) * _MILLISECOND
    own = {name: getattr(one, name) for name in LineJson.model_fields}
    return GroupLine(**{**own, "closed": closed, "findings": _read_findings(one)})


def _read_findings(one: GroupVerdictJson) -> tuple[ReportFinding, ...]:
    return tuple(ReportFinding(**found.model_dump()) for found in one.findings)
