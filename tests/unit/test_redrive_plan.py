"""A redrive plan is read as it was written, and refused with the line that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.redrive import (
    PlanHeader,
    PlannedCluster,
    PlannedLetter,
    PlannedLetterAction,
    parse_plan,
    render_plan,
)
from pelops.errors import InvalidSpec

REDRIVE, INSPECT = PlannedLetterAction.REDRIVE, PlannedLetterAction.INSPECT
HEADER = PlanHeader(
    stream="orders\u2028:events",
    group="mail",
    dead_letter="{orders}:mail:dlq",
    at=datetime(2026, 1, 1, tzinfo=UTC),
    letters=2,
    actions=dict(zip(PlannedLetterAction, (1, 1, 0), strict=True)),
    clusters=(PlannedCluster(cluster="ab" * 8, letters=2, action=REDRIVE, reason="It passes."),),
)
LETTERS = [
    PlannedLetter(entry_id=EntryId(5), root_id=EntryId(1), cluster="ab" * 8, action=REDRIVE),
    PlannedLetter(entry_id=EntryId(5, 1), root_id=EntryId(2), cluster="ab" * 8, action=INSPECT),
]


def test_a_plan_is_read_as_it_was_written() -> None:
    lines = list(render_plan(HEADER, LETTERS))
    assert all(line.endswith("\n") and len(line.splitlines()) == 1 for line in lines)
    header, letters = parse_plan(lines)
    assert (header, list(letters)) == (HEADER, LETTERS)


def test_lines_that_a_person_dropped_or_left_blank_are_no_error() -> None:
    head, _, last = render_plan(HEADER, LETTERS)
    _, letters = parse_plan([head, "\n", last])
    assert list(letters) == LETTERS[1:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "line 1"),
        (lambda lines: lines[1:], "line 1, the header of the redrive plan: stream: is missing"),
        (lambda lines: [lines[0].replace('"version":1', '"version":2')], "version 2"),
        (
            lambda lines: [lines[0].replace('"clusters":[', '"clusters":[1,')],
            r"clusters\[0\]: must be",
        ),
        (lambda lines: [*lines, lines[1]], "line 4: 5-0 does not follow 5-1"),
        (lambda lines: [lines[0], lines[1], lines[1]], "line 3: 5-0 does not follow 5-0"),
        (
            lambda lines: [lines[0], lines[1].replace("redrive", "send")],
            "line 2: action: must be",
        ),
        (
            lambda lines: [lines[0], lines[1].replace("5-0", "five")],
            "line 2: id: must match",
        ),
        (lambda lines: [lines[0], "{"], "line 2 is not valid JSON"),
        (lambda lines: [lines[0], "é" * 2**20], "line 2 is longer than 1048576 bytes"),
    ],
)
def test_a_line_that_is_wrong_is_named(change, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidSpec, match=message):
        list(parse_plan(change(list(render_plan(HEADER, LETTERS))))[1])
