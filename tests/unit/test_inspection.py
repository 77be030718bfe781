"""Questions about entries, their answers as JSON, and the socket between them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pelops.controller.inspection.inspection_server import InspectionServer, listen_on_socket
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
from pelops.errors import InvalidSpec
from pelops.redis_streams.inspection.questions import (
    Question,
    QuestionKind,
    parse_question,
)


def test_a_question_is_read_from_its_text() -> None:
    asked = Question(
        command=QuestionKind.WHY, namespace="shop", name="orders", field="k", value="v", deep=True
    )
    text = (
        '{"command":"why","namespace":"shop","name":"orders","field":"k","value":"v","deep":true}'
    )
    assert parse_question(text) == parse_question(text.encode()) == asked
    assert asked.reads_payloads


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[]", "the question: must be an object"),
        ("{", "the question is not valid JSON"),
        ("{}", "command: is missing"),
        ('{"command": "drop"}', "command: must be 'why', 'pending'"),
        ('{"command": "why", "id": 1}', "id: must be a valid string"),
        ('{"command": "why", "deep": "yes"}', "deep: must be a valid boolean"),
        ('{"command": "why", "server": "redis://other"}', "server: is not a known field"),
        ('{"command": "why", "id": "' + "1" * 70_000 + '"}', "longer than 65536 bytes"),
        ('{"command": "why", "id": "' + "é" * 40_000 + '"}', "longer than 65536 bytes"),
        ('{"command": "why", "token": "' + "x" * 16_385 + '"}', "token: must have at most 16384"),
        (r'{"command": "why", "id": "\ud800"}', "is not valid JSON"),
        ('{"command": "why", "id": ' + "[" * 9000, "is not valid JSON"),
        ('{"command": "why", "' + "x" * 9000 + '": 1}', "question: x{127}…: is not a known field"),
    ],
)
def test_anything_else_is_refused(text: str, named: str) -> None:
    with pytest.raises(InvalidSpec, match=named) as raised:
        parse_question(text)
    assert len(str(raised.value)) < 300


def test_the_token_of_a_question_is_not_shown() -> None:
    assert "secret" not in repr(parse_question('{"command": "why", "token": "secret"}'))


def test_only_questions_about_values_need_the_right_to_them() -> None:
    for command in QuestionKind:
        assert not Question(command=command, id="1-1").reads_payloads
        assert Question(command=command, payload=True).reads_payloads


# --- Answers of an inspection as JSON: names and order of fields, times, and binary values


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


# --- The socket through which `kubectl exec` asks a replica


def ask(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pelops.cli", "pending", "a", "-n", "shop", "--in-pod"],
        env={"PELOPS_INSPECTION_SOCKET": str(path), "PATH": "/usr/bin:/bin"},
        cwd=Path(__file__).parents[2] / "operator",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("length", [20, 200])
async def test_a_replica_answers_on_its_socket_however_long_the_path(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / ("d" * length) / "8080.sock"
    runner = await listen_on_socket(InspectionServer(lambda: None), path)
    assert runner is not None
    try:
        answer = await asyncio.to_thread(ask, path)
        assert "the operator is starting: repeat it later" in answer.stderr
        another = await listen_on_socket(InspectionServer(lambda: None), path)
        assert another is None, "one process listens already"
    finally:
        await runner.cleanup()


async def test_the_socket_of_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "8080.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    runner = await listen_on_socket(InspectionServer(lambda: None), path)
    assert runner is not None
    await runner.cleanup()
