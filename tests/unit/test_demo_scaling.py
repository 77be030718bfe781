"""What the demo concludes of the number of workers, what its checks find, and its picture."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.plot import Panel
from demo.direct import ROOT
from demo.following import Line
from demo.picture import draw_course, list_panels
from demo.recovery import Move
from demo.sampling import Sampling, SamplingEnded
from demo.scaling import Count, Course, GroupBacklog, Look, read_counts
from demo.scaling_checks import LATEST_WAKE_MS, ScalingOutcome, check_scaling
from demo.workers import End, History
from local_cluster.processes import wait_until

pytestmark = pytest.mark.full

FIRST = 1_000_000
NAME = "indexers-workers"
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


def test_reported_times_of_a_run_count_from_the_first_entry() -> None:
    assert (COURSE.wanted_after_ms, COURSE.ready_after_ms) == (70, 1_900)
    assert (COURSE.most_wanted, COURSE.most_ready) == (4, 3)
    assert COURSE.settled_ms == FIRST + 4_000
    assert COURSE.zeros == [FIRST + 9_000]
    found = [check.found for check in check_scaling(GOOD)]
    assert found[WAKING] == "wanted after 70 ms, ready after 1,900 ms"
    assert found[LAST].startswith("5.0 s after that")


def test_worker_counts_of_one_deployment_are_read_from_kubectl_lines() -> None:
    texts = [
        "No resources found in demo namespace.",
        "",
        f"ADDED   {NAME}   w0   r",
        "MODIFIED   another   w7   r7",
        f"MODIFIED   {NAME}   w4   r2",
        f"DELETED   {NAME}   w4   r2",
    ]
    lines = [Line(text=text, came_ms=number) for number, text in enumerate(texts)]
    assert read_counts(lines, NAME) == [
        Count(at_ms=2, wanted=0, ready=0),
        Count(at_ms=4, wanted=4, ready=2),
    ]


def test_the_chart_shows_every_sample_and_worker_count_until_the_end() -> None:
    lag, pending, workers = list_panels(COURSE)
    assert points(lag)[:3] == [(-0.2, 0), (0.1, 9), (2.0, 3)]
    assert points(pending)[-1] == (8.9, 0)
    wanted, ready = workers.lines
    assert (wanted.is_step, ready.is_step) == (True, True)
    assert wanted.points[1:3] == [(0.07, 4), (1.9, 4)]
    assert ready.points[-1] == (9.5, 0)


def test_an_unknown_lag_is_not_drawn_as_zero() -> None:
    unknown = replace(COURSE, looks=[look(0, None, 5), look(100, 3, 5)])
    assert points(list_panels(unknown)[0]) == [(0.1, 3)]


def points(panel: Panel) -> list[tuple[float, float]]:
    return list(panel.lines[0].points)


def test_a_chart_is_drawn_of_any_run_with_a_relative_path(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "new" / "one.svg"
    assert draw_course(COURSE, outside, title="3 < 4") == outside
    assert "3 &lt; 4" in outside.read_text()
    nothing = Course(first_ms=0, looks=[], counts=[])
    draw_course(nothing, outside, title="")
    assert ">workers</text>" in outside.read_text()
    inside = ROOT / "build" / "test-demo-scaling.svg"
    try:
        assert draw_course(COURSE, inside, title="") == Path("build/test-demo-scaling.svg")
    finally:
        inside.unlink()


def test_sampling_continues_until_stopped_and_skips_missing_observations() -> None:
    answers = iter([None, GroupBacklog(pending=1, lag=2)])
    sampling = Sampling(lambda: next(answers, None))
    try:
        wait_until(lambda: sampling.looks, timeout_s=30, what="a look")
        assert [one.backlog for one in sampling.looks] == [GroupBacklog(pending=1, lag=2)]
    finally:
        sampling.stop()


def test_a_failed_sample_raises_an_error_in_the_caller() -> None:
    def fail() -> GroupBacklog:
        raise ConnectionError("gone")

    sampling = Sampling(fail)
    with pytest.raises(SamplingEnded, match="gone"):
        wait_until(lambda: sampling.looks, timeout_s=30, what="a look")
