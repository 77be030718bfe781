"""Which dead letters a redrive selects, how far it may go, and what became of its copies."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from pelops.api.redrive.stream_redrive import SelectionSpec, StreamRedrive
from pelops.controller.redrive.redrive_selection import build_selection
from pelops.domain.entry_id import EntryId
from pelops.domain.records.dead_letter import DeadLetter
from pelops.domain.records.redrive import (
    PlanHeader,
    PlannedCluster,
    PlannedLetter,
    PlannedLetterAction,
    parse_plan,
    render_plan,
)
from pelops.domain.recovery import LetterReason
from pelops.errors import InvalidSpec
from pelops.policy.redrive.copies import CopiesObservation, StreamCounters, compare_observations
from pelops.policy.redrive.progress import Outcomes, Trial, fails_again, find_limit
from pelops.policy.redrive.selection import (
    LONGEST_PATTERN,
    Selection,
    compile_pattern,
    find_cluster,
    read_planned,
)
from pelops.worker import outcomes

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
NAMED = {"name": "r", "namespace": "shop", "uid": "u", "generation": 1}
SAMPLE = ROOT / "manifests/samples/12-redrive.yaml"
WORDS = {*LetterReason, outcomes.HANDLER_FAILED, outcomes.REJECTED, outcomes.UNDECODABLE}


def a_letter(
    number: int = 1,
    *,
    reason: str = "MaxRetriesExceeded",
    error: str = "PaymentTimeout: 3000 ms",
    at: datetime = NOON,
    returned: int = 0,
) -> DeadLetter:
    return DeadLetter(
        entry_id=EntryId(number),
        root_id=EntryId(number),
        reason=reason,
        error=error,
        dead_lettered=at,
        redrive="",
        returned=returned,
        pairs=((b"tenant", b"a"), (b"tenant", b"b"), (b"n", b"%d" % number)),
    )


@pytest.mark.parametrize(
    ("selection", "is_taken"),
    [
        (Selection(), True),
        (Selection(reasons=frozenset({"Rejected", "MaxRetriesExceeded"})), True),
        (Selection(reasons=frozenset({"Rejected"})), False),
        (Selection(error_contains="Timeout"), True),
        (Selection(error_contains="timeout"), False),
        (Selection(error_matches=compile_pattern(r"Timeout: \d+ ms$")), True),
        (Selection(error_matches=compile_pattern(r"^\d")), False),
        (Selection(fields=((b"tenant", b"b"),)), True),
        (Selection(fields=((b"tenant", b"b"), (b"n", b"1"))), True),
        (Selection(fields=((b"tenant", b"b"), (b"n", b"2"))), False),
        (Selection(after=NOON), True),
        (Selection(before=NOON), False),
        (Selection(after=NOON, before=NOON + timedelta(seconds=1)), True),
        (Selection(ids=frozenset({EntryId(1)})), True),
        (Selection(ids=frozenset()), False),
        (Selection(planned=frozenset({EntryId(2)})), False),
        (Selection(max_returned=0), True),
        (Selection(clusters=frozenset({find_cluster(a_letter(2))})), True),
        (Selection(clusters=frozenset({find_cluster(a_letter(error="another"))})), False),
        (Selection(reasons=frozenset({"MaxRetriesExceeded"}), error_contains="no"), False),
    ],
)
def test_all_parts_of_a_selection_have_to_fit(selection: Selection, is_taken: bool) -> None:
    letter = a_letter()
    assert selection.selects(letter) is is_taken


def test_a_dead_letter_that_returned_too_often_stays() -> None:
    assert not Selection(max_returned=1).selects(a_letter(returned=2))
    assert Selection(max_returned=2).selects(a_letter(returned=2))


def test_a_regular_expression_that_would_hang_is_searched_at_once() -> None:
    pattern = compile_pattern("(a+)+$")
    letter = a_letter(error="a" * 4000 + "b")
    assert not Selection(error_matches=pattern).selects(letter)


def test_only_the_beginning_of_an_error_is_searched() -> None:
    selection = Selection(error_matches=compile_pattern("b$|b"))
    assert not selection.selects(a_letter(error="a" * 4096 + "b"))
    assert selection.selects(a_letter(error="a" * 4095 + "b"))


def test_an_expression_that_compiles_too_large_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidSpec, match=r"too large once it is compiled. Use shorter repetition"):
        compile_pattern("(.{0,300}a.{0,300}b.{0,300}c.{0,300}d.{0,300}e)")


@pytest.mark.parametrize(
    "text",
    [
        r"(?i)payment\s+(timeout|refused)\b.{0,200}order",
        r"\b\w{1,64}@\w{1,64}\.\w{2,6}\b",
        r"\pL+\s\pL+",
        "|".join(f"error code {number}" for number in range(60)),
    ],
)
def test_what_people_write_is_small_enough(text: str) -> None:
    assert compile_pattern(text).search("nothing") is None or text.startswith(r"\pL")


@pytest.mark.parametrize("text", ["(a", r"(?=a)", r"(a)\1", "(((a{100}){100}){100})", "*"])
def test_what_is_no_expression_of_re2_is_refused_with_its_reason(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"errorMatches is not a regular expression of RE2: \S"):
        compile_pattern(text)


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="1001 characters: use at most 1000"):
        compile_pattern("a" * (LONGEST_PATTERN + 1))


def test_only_the_dead_letters_that_a_plan_redrives_are_selected() -> None:
    header = PlanHeader(stream="s", group="g", dead_letter="d", at=NOON, letters=2)
    letters = [
        PlannedLetter(entry_id=EntryId(number), root_id=EntryId(1), cluster="c", action=action)
        for number, action in ((1, PlannedLetterAction.REDRIVE), (2, PlannedLetterAction.INSPECT))
    ]
    lines = list(render_plan(header, letters))
    assert read_planned(lines, stream="s", group="g") == {EntryId(1)}
    with pytest.raises(InvalidSpec, match="is for group g of stream s, not for group h"):
        read_planned(lines, stream="s", group="h")


@pytest.mark.parametrize(
    ("moved", "failed", "unprocessed", "fails"),
    [
        (0, 0, 0, False),
        (100, 0, 100, False),
        (100, 9, 91, False),  # too few are known
        (100, 10, 90, True),
        (100, 10, 40, False),  # 10 of 60
        (5, 1, 0, False),  # 20 percent are allowed
        (5, 2, 0, True),
        (5, 2, 1, False),  # one is not known yet
    ],
)
def test_a_redrive_stops_when_too_many_settled_copies_fail_again(
    moved: int, failed: int, unprocessed: int, fails: bool
) -> None:
    outcomes = Outcomes(moved=moved, failed_again=failed, unprocessed=unprocessed)
    assert fails_again(outcomes, limit_percent=20) is fails
    assert not fails_again(outcomes, limit_percent=100)


def test_outcomes_never_contradict_each_other() -> None:
    seen = Outcomes(moved=4, failed_again=3, unprocessed=4)
    assert (seen.acknowledged, seen.known, seen.failed_percent) == (0, 3, 100)
    assert Outcomes(moved=0, failed_again=0, unprocessed=0).failed_percent == 0


def test_a_trial_bounds_what_is_moved_until_it_was_waited_for() -> None:
    trial = Trial(entries=10, wait=timedelta(seconds=60))

    def limit(moved: int, *, waited_s: int = 0, most: int | None = None) -> int | None:
        last = None if moved == 0 else NOON
        now = NOON + timedelta(seconds=waited_s)
        return find_limit(max_entries=most, trial=trial, moved=moved, last_moved=last, now=now)

    assert [limit(0), limit(9, waited_s=99), limit(10), limit(10, waited_s=59)] == [10] * 4
    assert [limit(10, waited_s=60), limit(11)] == [None, None]
    assert [limit(3, most=5), limit(10, waited_s=60, most=50)] == [5, 50]
    assert find_limit(max_entries=7, trial=None, moved=0, last_moved=None, now=NOON) == 7


def test_the_sample_selects_what_recovery_gives_up() -> None:
    sample = StreamRedrive.parse({**yaml.safe_load(SAMPLE.read_text()), "metadata": NAMED})
    letter = a_letter(
        reason=LetterReason.MAX_RETRIES,
        error="the worker failed 4 times while it processed the entry, the last time in isolation",
    )
    assert build_selection(sample.spec.selection).selects(letter)


def test_every_reason_that_a_person_can_copy_exists() -> None:
    description = SelectionSpec.model_fields["reasons"].description or ""
    listed = re.search(r"such as (\w+) or (\w+)", description)
    assert listed is not None
    found = set(listed.groups())
    for page in (SAMPLE, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yaml")):
        for words in re.findall(r"^ *reasons: \[([\w, ]+)\]", page.read_text(), re.MULTILINE):
            found |= set(words.split(", "))
    assert found <= WORDS


# --- A redrive plan is read as it was written, and refused with the line that is wrong


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


# --- What became of the copies of a redrive, from two observations of the stream


def at(position: int, *, removed: int, first: int) -> StreamCounters:
    return StreamCounters(
        position=EntryId(position),
        added=20,
        length=20 - removed,
        first=EntryId(first),
        deleted=EntryId.MIN,
    )


@pytest.mark.parametrize(("requeued", "unknown"), [(0, 3), (1, 4), (9, 5)])
def test_a_requeued_copy_can_hide_one_that_was_trimmed(requeued: int, unknown: int) -> None:
    former = CopiesObservation(stream=at(100, removed=0, first=1), moved=5, undelivered=5)
    end = at(200, removed=7, first=150)
    look = compare_observations(
        former,
        begin=end,
        end=end,
        first=EntryId(101),
        moved=5,
        undelivered=2,
        requeued=requeued,
        kept=0,
    )
    assert (look.lost, look.unknown) == (0, unknown)
