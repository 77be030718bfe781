"""What the demo concludes from ledger, API server and effects of what became of entries."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from demo.counting import FileCounts
from demo.effects import Effect
from demo.following import Line
from demo.recovery import (
    Held,
    Move,
    Traces,
    Victim,
    are_rescued,
    assess_rescue,
    find_robberies,
)
from demo.workers import parse_ms, read_history

pytestmark = pytest.mark.full

POD, UID = "indexers-x", "u-1"
CONSUMER = f"{POD}:{UID}"
OLD, NEW = "process://7-100", "process://8-200"
T0 = parse_ms("2026-01-01T00:00:00Z")


def at(seconds: int) -> str:
    return f"2026-01-01T00:00:{seconds:02d}Z"


def running(process: str, second: int) -> dict[str, Any]:
    return {"containerID": process, "state": {"running": {"startedAt": at(second)}}}


def ended(process: str, started: int, finished: int, code: int = 137) -> dict[str, Any]:
    times = {"startedAt": at(started), "finishedAt": at(finished)}
    return {"terminated": {"containerID": process, "exitCode": code, **times}}


def reported(kind: str, container: dict[str, Any] | None, came_ms: int) -> Line:
    text = "" if container is None else json.dumps(container)
    return Line(text=f"{kind}   {POD}   {UID}   {text}", came_ms=came_ms)


RESTARTED = [
    reported("ADDED", None, T0),
    reported("MODIFIED", running(OLD, 1), T0 + 1_100),
    reported("MODIFIED", {"containerID": OLD, "state": ended(OLD, 1, 5)}, T0 + 5_300),
    reported("MODIFIED", running(NEW, 6) | {"lastState": ended(OLD, 1, 5)}, T0 + 6_100),
]


def move(entry_id: str, delivered: int, moved: int, *, attempts: int = 1) -> Move:
    return Move(
        kind="requeued",
        entry_id=entry_id,
        original_id=entry_id,
        consumer=CONSUMER,
        delivered_ms=T0 + delivered,
        moved_ms=T0 + moved,
        copied_ms=T0 + moved,
        attempts=attempts,
    )


VICTIM = Victim(
    pod=POD,
    consumer=CONSUMER,
    process=OLD,
    how="SIGKILL",
    held=(
        Held(entry_id="1-1", delivered_ms=T0 + 4_000),
        Held(entry_id="1-2", delivered_ms=T0 + 6_050),
    ),
    killed_ms=T0 + 5_200,
    counts=True,
)
MOVES = [move("1-1", 4_000, 6_200), move("1-2", 6_050, 16_400)]


def effect(entry_id: str, at: int, *, original: str = "", consumer: str = CONSUMER) -> Effect:
    return Effect(
        path="/a.py",
        counts=FileCounts(),
        entry_id=entry_id,
        original_id=original or entry_id,
        consumer=consumer,
        at_ms=T0 + at,
    )


DONE = [
    effect("9-1", 7_000, original="1-1", consumer="another:one"),
    effect("9-2", 17_000, original="1-2", consumer="another:one"),
]
TRACES = Traces(moves=MOVES, effects=DONE, letters=[])


def left(effects: Sequence[Effect], moves: Sequence[Move] = ()) -> Traces:
    return Traces(moves=moves, effects=effects, letters=[])


def test_entries_delivered_before_the_restart_must_be_recovered_at_once() -> None:
    rescue = assess_rescue(VICTIM, TRACES, read_history(RESTARTED))
    assert rescue is not None
    assert (rescue.at_once, rescue.late, rescue.lost) == (1, 1, 0)
    assert (rescue.moved, rescue.resumed) == (2, 0)
    assert (rescue.reported_to_deliverable_ms, rescue.kill_to_deliverable_ms) == (900, 1_000)
    assert (rescue.counted_attempts, rescue.wrongly_counted) == (2, frozenset())


def test_an_entry_that_the_next_process_resumed_counts_as_rescued() -> None:
    resumed = [effect(held.entry_id, 6_300) for held in VICTIM.held]
    rescue = assess_rescue(VICTIM, left(resumed), read_history(RESTARTED))
    assert rescue is not None
    assert (rescue.lost, rescue.moved, rescue.resumed) == (0, 0, 2)
    assert rescue.kill_to_resumed_ms == 1_100
    assert are_rescued([VICTIM], left(resumed))
    assert are_rescued([VICTIM], left(resumed[:1], MOVES[1:]))
    assert not are_rescued([VICTIM], left(resumed[:1]))
    before = [replace(one, at_ms=VICTIM.killed_ms - 1) for one in resumed]
    assert not are_rescued([VICTIM], left(before))


def test_what_was_moved_and_never_done_is_lost() -> None:
    rescue = assess_rescue(VICTIM, replace(TRACES, effects=DONE[:1]), read_history(RESTARTED))
    assert rescue is not None
    assert (rescue.lost, rescue.moved) == (1, 2)
    done_before = [replace(one, at_ms=VICTIM.killed_ms - 1) for one in DONE]
    rescue = assess_rescue(VICTIM, replace(TRACES, effects=done_before), read_history(RESTARTED))
    assert rescue is not None
    assert rescue.lost == 2, "it was pending when its worker died, so it is done again"


@pytest.mark.parametrize(
    ("delivered", "moved", "is_premature"),
    [
        (4_000, 5_200, False),
        (5_900, 6_500, False),  # the end is known by its second
        (6_000, 6_500, True),  # given to the next process
        (4_000, 4_900, True),  # moved before the end
    ],
)
def test_an_entry_is_recovered_prematurely_unless_its_process_ended_in_between(
    delivered: int, moved: int, is_premature: bool
) -> None:
    one = move("1-1", delivered, moved)
    assert find_robberies([one], read_history(RESTARTED)) == [one] * is_premature
