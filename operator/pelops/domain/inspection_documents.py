"""Answers of an inspection as JSON objects, with `apiVersion` and `kind` for scripts to check.

Times are in UTC with milliseconds, durations in seconds. A value that is not UTF-8 text is rendered
as `{"base64": ...}`. Within an API version fields may be added, but keep their meaning.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from pelops.domain.inspection import (
    Coverage,
    EntryFinding,
    EntryReport,
    FoundEntry,
    HistoryEvent,
    LetterGroup,
    LettersPage,
    LettersReport,
    PendingLine,
    PendingReport,
)

API_VERSION: Final = "inspection.pelops.dev/v1alpha1"
Document = dict[str, Any]


def render_entry_report(report: EntryReport) -> Document:
    """The answer to `why`."""
    location = report.location
    return _document(
        "EntryReport",
        report.stream,
        report.group,
        asked=report.asked,
        id=str(report.entry_id),
        rootId=str(report.root_id),
        place=location.place.value,
        at=_time(location.now),
        **_finding(report.finding),
        pending=_pending(report),
        entry=None if location.found is None else _entry(location.found),
        attempts=location.attempts,
        events=[_event(one) for one in report.events],
        coverage=_coverage(report.coverage),
        notes=list(report.notes),
        otherMatches=[str(one) for one in report.others],
    )


def render_pending_report(report: PendingReport) -> Document:
    """The answer to `pending`."""
    return _document(
        "PendingReport",
        report.stream,
        report.group,
        pending=report.pending,
        lines=[_line(one) for one in report.lines],
        coverage=_coverage(report.coverage),
        notes=list(report.notes),
    )


def render_letters_report(report: LettersReport) -> Document:
    """The answer to `dlq list`."""
    return _document(
        "DeadLetterReport",
        report.stream,
        report.group,
        deadLetterStream=report.dead_letter,
        letters=report.letters,
        groups=[_letter_group(one) for one in report.groups],
        coverage=_coverage(report.coverage),
    )


def render_letters_page(page: LettersPage) -> Document:
    """The answer to `dlq show`, and one page of `dlq export`."""
    return _document(
        "DeadLetterList",
        page.stream,
        page.group,
        deadLetterStream=page.dead_letter,
        letters=[_entry(one) for one in page.letters],
        next=None if page.after is None else str(page.after),
    )


def _document(kind: str, stream: str, group: str, **parts: Any) -> Document:
    head = {"apiVersion": API_VERSION, "kind": kind, "stream": stream, "group": group}
    return head | parts


def _finding(finding: EntryFinding) -> Document:
    return {
        "state": finding.state.value,
        "message": finding.message,
        "certain": finding.is_certain,
        "againAt": None if finding.again_at is None else _time(finding.again_at),
    }


def _pending(report: EntryReport) -> Document | None:
    pending, cutoff = report.location.pending, report.location.cutoff
    if pending is None:
        return None
    return {
        "consumer": _text(pending.owner),
        "idleSeconds": pending.idle.total_seconds(),
        "deliveredAt": _time(pending.delivered),
        "deliveries": pending.deliveries,
        "liveness": None if cutoff is None else cutoff.reason.value,
        "process": None if cutoff is None else cutoff.message,
        "lock": report.location.lock,
    }


def _entry(entry: FoundEntry) -> Document:
    shown: Document = {
        "id": str(entry.entry_id),
        "place": entry.place.value,
        "stream": entry.stream,
        "rootId": str(entry.root_id),
        "bytes": entry.bytes,
        "failedAttempts": entry.retry_count,
        "returned": entry.returned,
        "redrive": entry.redrive,
    }
    dead_letter = entry.letter
    if dead_letter is not None:
        shown |= {
            "reason": dead_letter.reason,
            "error": dead_letter.error,
            "consumer": dead_letter.consumer,
            "deliveries": dead_letter.deliveries,
            "deadLetteredAt": None if dead_letter.at is None else _time(dead_letter.at),
        }
    if entry.pairs:
        shown["fields"] = [{"name": _value(n), "value": _value(v)} for n, v in entry.pairs]
    return shown


def _event(event: HistoryEvent) -> Document:
    return {
        "at": _time(event.at),
        "id": str(event.entry_id),
        "what": event.what,
        "details": event.details,
        "source": event.source,
    }


def _line(line: PendingLine) -> Document:
    return {
        "stream": line.stream,
        "consumer": _text(line.consumer),
        "entries": line.entries,
        "id": str(line.entry_id),
        "idleSeconds": line.idle.total_seconds(),
        "deliveries": line.deliveries,
        "liveness": line.liveness,
        "process": line.pod,
        **_finding(line.finding),
    }


def _letter_group(group: LetterGroup) -> Document:
    return {
        "cluster": group.cluster,
        "reason": group.reason,
        "error": group.error,
        "letters": group.letters,
        "oldest": str(group.oldest),
        "newest": str(group.newest),
        "returned": group.returned,
        "suggested": group.action,
        "advice": group.advice,
        "samples": [str(one) for one in group.samples],
    }


def _coverage(parts: Sequence[Coverage]) -> list[Document]:
    return [
        {
            "what": part.what,
            "searched": part.searched,
            "whole": part.is_whole,
            "until": None if part.until is None else str(part.until),
        }
        for part in parts
    ]


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(name: str) -> str:
    """A consumer's name, in which bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _value(value: bytes) -> str | Document:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
