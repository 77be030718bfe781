"""What the demo's checks of deaths and of poison find."""

from dataclasses import replace
from typing import Any

import pytest

from demo.counting import FileCounts
from demo.effects import Effect
from demo.recovery import Held, Letter, Move, Rescue, Traces, Victim
from demo.recovery_checks import RecoveryOutcome, check_recovery
from demo.workers import End

pytestmark = pytest.mark.full

MOVE = Move(
    kind="requeued",
    entry_id="1-2",
    original_id="1-2",
    consumer="x:u",
    delivered_ms=0,
    moved_ms=1,
    copied_ms=1,
    attempts=1,
)
GIVEN_UP = replace(MOVE, kind="dead-lettered", entry_id="1-1", original_id="1-1", is_own=True)
VICTIM = Victim(
    pod="x",
    consumer="x:u",
    process="process://7-100",
    how="SIGKILL",
    held=(Held(entry_id="1-0", delivered_ms=0), Held(entry_id="1-2", delivered_ms=0)),
    killed_ms=5,
    counts=True,
)
RESCUE = Rescue(
    victim=VICTIM,
    lost=0,
    at_once=1,
    late=0,
    resumed=1,
    kill_to_resumed_ms=2_345,
    reported_to_deliverable_ms=900,
    kill_to_deliverable_ms=1_500,
    wrongly_counted=frozenset(),
    counted_attempts=1,
)
LETTER = Letter(
    path="/bad.py",
    original_id="1-1",
    reason="HandlerFailed",
    error="SyntaxError: no (bad.py, line 1)",
    retry_count=0,
)
CRASH = End(consumer="y:v", process="process://9-1", exit_code=1, finished_ms=0, reported_ms=0)


def effect(original_id: str, entry_id: str = "") -> Effect:
    return Effect(
        path=f"/{original_id}.py",
        counts=FileCounts(),
        entry_id=entry_id or original_id,
        original_id=original_id,
        consumer="y:v",
        at_ms=9,
    )


DONE = [effect("1-0"), effect("1-2", "9-1"), effect("1-3"), effect("1-1", "9-2")]
TRACES = Traces(moves=[MOVE, GIVEN_UP], effects=DONE, letters=[])
GOOD = RecoveryOutcome(
    poison={"/bad.py": FileCounts(error="SyntaxError: no")},
    ids={"/a.py": "1-0", "/bad.py": "1-1", "/b.py": "1-2", "/c.py": "1-3"},
    rescues=[RESCUE],
    traces=TRACES,
    robberies=[],
    crashes=[],
    status={"recovery": {"requeued": 1, "deadLettered": 0}, "deadLetter": {"length": 0}},
    redriven=[LETTER],
)
RESCUED, SPEED, ATTEMPTS, PREMATURE, EFFECTS, REPEATS, CRASHES, LETTERS, REASONS, COUNTS = range(10)


def letters(*them: Letter) -> dict[str, Any]:
    return {"redriven": list(them)}


def effects(*them: Effect) -> dict[str, Any]:
    return {"traces": replace(TRACES, effects=list(them))}


def test_all_holds_when_all_is_well() -> None:
    assert all(check.holds for check in check_recovery(GOOD))


@pytest.mark.parametrize(
    ("damage", "found_by"),
    [
        ({"rescues": [replace(RESCUE, lost=1)]}, {RESCUED}),
        ({"rescues": []}, {RESCUED, SPEED}),
        ({"rescues": [replace(RESCUE, victim=replace(VICTIM, held=()))]}, {RESCUED}),
        ({"rescues": [replace(RESCUE, reported_to_deliverable_ms=5_001)]}, {SPEED}),
        ({"rescues": [replace(RESCUE, at_once=0, late=2)]}, {SPEED}),
        ({"rescues": [replace(RESCUE, wrongly_counted=frozenset({"1-2"}))]}, {ATTEMPTS}),
        ({"robberies": [MOVE]}, {PREMATURE}),
        (effects(*DONE[:2]), {EFFECTS}),  # acknowledged without effect, or lost
        (effects(*DONE, effect("7-7")), {EFFECTS}),  # of no entry that was added
        (effects(*DONE, DONE[1]), set()),  # its worker died before it had acknowledged it
        (effects(*DONE, DONE[0]), set()),  # the same, and the next process did it again
        (effects(*DONE, DONE[2]), {REPEATS}),
        ({"crashes": [CRASH]}, {CRASHES}),
        (letters(LETTER, LETTER), {LETTERS, COUNTS}),
        (letters(), {LETTERS, REASONS, COUNTS}),
        ({"traces": replace(TRACES, letters=[LETTER])}, {COUNTS}),
        (letters(replace(LETTER, path="/a.py")), {LETTERS, REASONS}),
        (letters(replace(LETTER, reason="PayloadGone")), {REASONS}),
        (letters(replace(LETTER, error="")), {REASONS}),
        (letters(replace(LETTER, error="KeyError: no")), {REASONS}),
        (letters(replace(LETTER, original_id="1-0")), {REASONS}),
        ({"status": {}}, {COUNTS}),
        ({"traces": replace(TRACES, moves=[GIVEN_UP])}, {COUNTS}),
    ],
)
def test_each_damage_is_found(damage: dict[str, Any], found_by: set[int]) -> None:
    checks = check_recovery(replace(GOOD, **damage))
    assert {number for number, check in enumerate(checks) if not check.holds} == found_by


def test_of_a_deleted_pod_something_must_be_moved_at_once() -> None:
    resumed = replace(RESCUE, at_once=0, resumed=2)
    assert check_recovery(replace(GOOD, rescues=[RESCUE, resumed]))[SPEED].holds
    deleted = replace(resumed, victim=replace(VICTIM, counts=False))
    assert not check_recovery(replace(GOOD, rescues=[RESCUE, deleted]))[SPEED].holds


def test_the_status_counts_only_dead_letters_of_the_operator() -> None:
    moves = [MOVE, replace(GIVEN_UP, is_own=False)]
    by_operator = replace(GOOD, traces=replace(TRACES, moves=moves))
    assert not check_recovery(by_operator)[COUNTS].holds
    counted = {"recovery": {"requeued": 1, "deadLettered": 1}, "deadLetter": {"length": 0}}
    assert check_recovery(replace(by_operator, status=counted))[COUNTS].holds
    assert not check_recovery(replace(GOOD, status=counted))[COUNTS].holds


def test_without_poison_any_dead_letter_fails_the_checks() -> None:
    ids = {"/a.py": "1-0", "/b.py": "1-2", "/c.py": "1-3"}
    clean = replace(
        GOOD,
        poison={},
        ids=ids,
        redriven=[],
        traces=replace(TRACES, moves=[MOVE], effects=DONE[:3]),
        status={"recovery": {"requeued": 1, "deadLettered": 0}, "deadLetter": {"length": 0}},
    )
    assert all(check.holds for check in check_recovery(clean))
    assert not all(check.holds for check in check_recovery(replace(clean, traces=TRACES)))
    assert not all(check.holds for check in check_recovery(replace(clean, redriven=[LETTER])))
