"""Answers of an inspection as JSON: names and order of fields, times, and binary values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryState
from pelops.domain.records.inspection import (
    Coverage,
    EntryFinding,
    FoundEntry,
    LetterDetails,
    LettersPage,
    PendingLine,
    PendingReport,
    StreamKind,
    render_answer,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
LETTER = LetterDetails(reason="HandlerFailed", error="E", consumer="w-1", deliveries=3, at=AT)


def found(letter: LetterDetails | None, *pairs: tuple[bytes, bytes]) -> FoundEntry:
    return FoundEntry(
        entry_id=EntryId(5, 1),
        place=StreamKind.DEAD_LETTERS,
        stream="dlq",
        root_id=EntryId(4),
        bytes=12,
        retry_count=2,
        letter=letter,
        pairs=pairs,
    )


def test_the_details_of_a_dead_letter_are_fields_of_its_entry() -> None:
    letters = (found(LETTER, (b"n", "é".encode()), (b"\xff", b"v")), found(None))
    page = LettersPage(stream="s", group="g", dead_letter="dlq", letters=letters, after=EntryId(9))
    head = '"id": "5-1", "place": "dead-letter stream", "stream": "dlq", "rootId": "4-0", '
    head += '"bytes": 12, "failedAttempts": 2, "returned": 0, "redrive": ""'
    details = '"reason": "HandlerFailed", "error": "E", "consumer": "w-1", "deliveries": 3, '
    details += '"deadLetteredAt": "2026-01-02T03:04:05.678Z"'
    fields = r'[{"name": "n", "value": "\u00e9"}, {"name": {"base64": "/w=="}, "value": "v"}]'
    assert json.dumps(render_answer(page)) == (
        '{"apiVersion": "inspection.pelops.dev/v1alpha1", "kind": "DeadLetterList", '
        '"stream": "s", "group": "g", "deadLetterStream": "dlq", '
        f'"letters": [{{{head}, {details}, "fields": {fields}}}, {{{head}}}], "next": "9-0"}}'
    )


def test_a_finding_is_in_the_line_that_has_it() -> None:
    line = PendingLine(
        stream="s",
        consumer="w\udcff",
        entries=3,
        entry_id=EntryId(1),
        idle=timedelta(seconds=1.25),
        deliveries=1,
        liveness="Gone",
        process="pod w",
        finding=EntryFinding(state=EntryState.LOCKED, message="m", is_certain=False),
    )
    covered = Coverage(what="ledger", searched=3, is_whole=False, until=EntryId(9))
    report = PendingReport(stream="s", group="g", pending=3, lines=(line,), coverage=(covered,))
    assert json.dumps(render_answer(report)) == (
        '{"apiVersion": "inspection.pelops.dev/v1alpha1", "kind": "PendingReport", '
        '"stream": "s", "group": "g", "pending": 3, "lines": [{"stream": "s", '
        r'"consumer": "w\ufffd", "entries": 3, "id": "1-0", "idleSeconds": 1.25, '
        '"deliveries": 1, "liveness": "Gone", "process": "pod w", "state": "Locked", '
        '"message": "m", "certain": false, "againAt": null}], "coverage": [{"what": "ledger", '
        '"searched": 3, "whole": false, "until": "9-0"}], "notes": []}'
    )
