"""What a worker can do, from observations of which workers hold entries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pelops.policy.scaling.capacity import FIRST_PATIENCE_S, Capacity, Interval


def work(**changes: object) -> Interval:
    """A second in which two of eight workers were busy, and finished 100 entries."""
    usual = Interval(
        seconds=1.0,
        finished=100,
        ready=8,
        busy=2.0,
        busy_most=2,
        is_saturated=False,
        has_room=True,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def learn(capacity: Capacity, seconds: int, **changes: object) -> Capacity:
    """The capacity after so many intervals of a second; the one given is not changed."""
    capacity = replace(capacity)
    for _ in range(seconds):
        capacity.learn(work(**changes))
    return capacity


def slow(capacity: Capacity, seconds: int) -> Capacity:
    """All eight have too much to do, and do 20 entries per second each."""
    return learn(capacity, seconds, finished=160, busy=8.0, busy_most=8, is_saturated=True)


def test_idle_workers_do_not_make_the_others_look_slow() -> None:
    capacity = learn(Capacity(), 60)
    assert capacity.per_replica == pytest.approx(50, rel=0.25)
    assert learn(capacity, 600, ready=20).per_replica == pytest.approx(50, rel=0.25)


def test_pods_that_do_not_read_yet_leave_the_capacity_unchanged() -> None:
    capacity = learn(Capacity(), 10, is_saturated=True)
    assert capacity.per_replica == pytest.approx(50)
    assert learn(capacity, 30, finished=0, busy=0.0, busy_most=0, is_saturated=True) == capacity


def test_a_slow_minute_is_measured_and_forgotten_when_workers_stand_idle() -> None:
    capacity = slow(learn(Capacity(), 60, is_saturated=True), 60)
    assert capacity.per_replica == pytest.approx(20, rel=0.05)
    assert (learn(capacity, 60).per_replica or 0) > 40


def test_never_idle_workers_return_to_the_best_rate_within_two_minutes() -> None:
    capacity = slow(learn(Capacity(), 60, is_saturated=True), 60)
    capacity = learn(capacity, 115, busy=8.0, busy_most=8)
    assert capacity.per_replica == pytest.approx(capacity.best)
    assert capacity.best == pytest.approx(50)
    assert learn(capacity, 3600, busy=8.0, busy_most=8).per_replica == capacity.per_replica


def hope(capacity: Capacity, seconds: int) -> Capacity:
    """Three workers that are always busy do 40 entries per second each, and nothing waits."""
    return learn(capacity, seconds, finished=120, ready=3, busy=3.0, busy_most=3)


def test_a_slow_minute_is_forgotten_where_nothing_was_ever_measured_before_it() -> None:
    before = hope(Capacity(), 240)
    assert before.proven is None
    capacity = slow(before, 60)
    assert capacity.per_replica == pytest.approx(20, rel=0.05)
    capacity = learn(capacity, 115, finished=120, busy=8.0, busy_most=8)
    assert capacity.per_replica == pytest.approx(before.per_replica, rel=0.05)


def test_an_estimate_that_was_too_high_is_dropped_and_retried_only_later() -> None:
    capacity = Capacity()
    for times in (1, 2, 4):
        capacity = hope(replace(capacity, wait_s=0.0), 400)
        assert (capacity.per_replica or 0) > 60
        capacity = learn(capacity, 2, finished=50, ready=1, busy=1.0, busy_most=1, has_room=False)
        assert capacity.per_replica == pytest.approx(40, rel=0.1)
        assert capacity.wait_s > (times - 0.1) * FIRST_PATIENCE_S
        assert (hope(capacity, 200).per_replica or 0) < 45


def test_workers_without_room_do_not_return_to_it() -> None:
    capacity = slow(learn(Capacity(), 60, is_saturated=True), 60)
    assert learn(capacity, 300, busy=8.0, busy_most=8, has_room=False).per_replica == pytest.approx(
        20, rel=0.05
    )


def test_work_that_is_not_saturated_never_lowers_the_capacity() -> None:
    capacity = learn(Capacity(), 20, is_saturated=True)
    found = learn(capacity, 600, finished=10, busy=8.0, busy_most=8, has_room=False)
    assert found.per_replica == capacity.per_replica


def test_a_raise_that_was_wrong_is_not_tried_again_at_once() -> None:
    capacity = learn(Capacity(), 20, is_saturated=True)
    for times in (1, 2, 4):
        capacity = learn(replace(capacity, wait_s=0.0), 60, finished=200)
        assert (capacity.per_replica or 0) > 70
        capacity = learn(capacity, 60, is_saturated=True)
        assert capacity.per_replica == pytest.approx(50)
        assert capacity.wait_s == times * FIRST_PATIENCE_S
        patient = learn(capacity, 60, finished=200)
        assert patient.per_replica == pytest.approx(50)


def test_a_position_that_was_moved_is_no_work() -> None:
    capacity = learn(Capacity(), 20, is_saturated=True)
    assert learn(capacity, 1, finished=100_000) == capacity
