"""Questions about entries, as they arrive from elsewhere."""

from __future__ import annotations

import pytest

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
