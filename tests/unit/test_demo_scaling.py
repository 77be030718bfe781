"""The checks of scaling in the demo find each wrong number of workers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from demo.recovery import Move
from demo.scaling import Count, Course, GroupBacklog, Look
from demo.scaling_checks import LATEST_WAKE_MS, ScalingOutcome, check_scaling
from demo.workers import End, History

pytestmark = pytest.mark.full

FIRST = 1_000_000
CONSUMER = "indexers-x:u-1"


def count(after_ms: int, wanted: int, ready: int) -> Count:
    return Count(at_ms=FIRST + after_ms, wanted=wanted, ready=ready)


def look(after_ms: int, lag: int | None, pending: int) -> Look:
    return Look(at_ms=FIRST + after_ms, backlog=GroupBacklog(pending=pending, lag=lag))


COUNTS = [
    count(-900, 0, 0),
    count(70, 4, 0),
    count(1_900, 4, 2),
    count(2_000, 4, 3),
    count(9_000, 0, 3),
    count(9_500, 0, 0),
]
LOOKS = [look(-200, 0, 0), look(100, 9, 0), look(2_000, 3, 4), look(4_000, 0, 0), look(8_900, 0, 0)]
COURSE = Course(first_ms=FIRST, looks=LOOKS, counts=COUNTS)


def an_end(process: str, code: int) -> End:
    return End(
        consumer=CONSUMER, process=process, exit_code=code, finished_ms=FIRST, reported_ms=FIRST
    )


def a_move() -> Move:
    return Move(
        original_id="1-1",
        kind="requeued",
        entry_id="1-1",
        consumer=CONSUMER,
        delivered_ms=FIRST,
        moved_ms=FIRST + 10,
        copied_ms=FIRST + 10,
        attempts=1,
    )


GOOD = ScalingOutcome(
    course=COURSE,
    most=4,
    pods=0,
    status={"desiredReplicas": 0, "readyReplicas": 0},
    history=History(ends={"p": an_end("p", 0)}),
    moves=[],
)
BEGINNING, WAKING, GROWTH, DEPARTURES, LAST, ZERO = range(6)


def test_all_holds_when_all_is_well() -> None:
    assert all(check.holds for check in check_scaling(GOOD))


@pytest.mark.parametrize(
    ("counts", "found_by"),
    [
        (COUNTS[1:], {BEGINNING}),
        ([count(-900, 0, 1), *COUNTS[1:]], {BEGINNING}),
        ([count(-900, 1, 0), *COUNTS[1:]], {BEGINNING, WAKING}),
        ([COUNTS[0], count(LATEST_WAKE_MS + 1, 4, 2), *COUNTS[4:]], {WAKING}),
        ([COUNTS[0], count(70, 4, 1), COUNTS[-1]], {GROWTH}),
        ([COUNTS[0], count(70, 5, 4), *COUNTS[4:]], {GROWTH}),
        (COUNTS[:1], {WAKING, GROWTH, LAST}),
        ([*COUNTS[:4], count(3_000, 0, 3), count(3_100, 4, 3), *COUNTS[4:]], {LAST}),
        (COUNTS[:4], {LAST, ZERO}),
        ([*COUNTS, count(9_900, 1, 0)], {ZERO}),
        ([], {BEGINNING, WAKING, GROWTH, LAST, ZERO}),
    ],
)
def test_each_wrong_number_of_workers_is_found(counts: Sequence[Count], found_by: set[int]) -> None:
    assert failing(replace(GOOD, course=replace(COURSE, counts=counts))) == found_by


@pytest.mark.parametrize(
    ("looks", "found_by"),
    [
        ([], {LAST}),
        (LOOKS[:3], {LAST}),
        ([*LOOKS, look(9_900, 0, 1)], {LAST}),
        ([*LOOKS[:3], look(8_950, None, 0), look(9_200, 0, 0)], {LAST}),
        ([*LOOKS[:3], look(8_950, 0, 1), look(9_200, 0, 0)], {LAST}),
    ],
)
def test_ending_the_last_worker_before_the_backlog_is_known_empty_fails(
    looks: Sequence[Look], found_by: set[int]
) -> None:
    assert failing(replace(GOOD, course=replace(COURSE, looks=looks))) == found_by


@pytest.mark.parametrize(
    ("damage", "found_by"),
    [
        ({"pods": 1}, {ZERO}),
        ({"status": {}}, {ZERO}),
        ({"status": {"desiredReplicas": 1, "readyReplicas": 0}}, {ZERO}),
        ({"status": {"desiredReplicas": 0, "readyReplicas": 1}}, {ZERO}),
        ({"moves": [a_move()]}, {DEPARTURES}),
    ],
)
def test_each_other_damage_is_found(damage: dict[str, Any], found_by: set[int]) -> None:
    assert failing(replace(GOOD, **damage)) == found_by


def test_entries_of_a_killed_worker_do_not_count_against_scale_down() -> None:
    history = History(ends={"p": an_end("p", 137)})
    assert failing(replace(GOOD, history=history, moves=[a_move()])) == set()


def failing(outcome: ScalingOutcome) -> set[int]:
    return {number for number, check in enumerate(check_scaling(outcome)) if not check.holds}
