"""Questions about entries, as they arrive from elsewhere."""

from __future__ import annotations

import pytest

from pelops.errors import InvalidSpec
from pelops.redis_streams.inspection.questions import (
    Question,
    QuestionKind,
    parse_question,
)


def test_a_question_survives_its_text() -> None:
    asked = Question(
        command=QuestionKind.WHY, namespace="shop", name="orders", field="k", value="v", deep=True
    )
    assert parse_question(asked.render()) == asked
    assert asked.reads_payloads


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "{}",
        '{"command": "drop"}',
        '{"command": "why", "id": 1}',
        '{"command": "why", "deep": "yes"}',
        '{"command": "why", "server": "redis://other"}',
        '{"command": "why", "id": "' + "1" * 70_000 + '"}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec):
        parse_question(text)


def test_only_questions_about_values_need_the_right_to_them() -> None:
    for command in QuestionKind:
        assert not Question(command=command, id="1-1").reads_payloads
        assert Question(command=command, payload=True).reads_payloads
