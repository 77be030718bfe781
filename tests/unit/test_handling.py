"""How long workers hold an entry, estimated from numbers of the whole group alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pelops.policy.scaling.meter import HandlingTime


def watch(
    handling: HandlingTime, seconds: int, *, held: float, acknowledged: int, interval: float = 1.0
) -> HandlingTime:
    """The same look so many times."""
    handling = replace(handling)
    for _ in range(seconds):
        handling.add(held=held, acknowledged=acknowledged, seconds=interval)
    return handling


def test_it_is_what_is_held_for_each_entry_that_is_acknowledged() -> None:
    assert watch(HandlingTime(), 60, held=20, acknowledged=50).mean_s == pytest.approx(0.4)


def test_it_does_not_depend_on_how_often_one_looks() -> None:
    seldom = watch(HandlingTime(), 12, held=20, acknowledged=250, interval=5.0)
    assert seldom.mean_s == pytest.approx(0.4)


def test_too_few_entries_give_no_mean() -> None:
    assert watch(HandlingTime(), 4, held=1, acknowledged=1).mean_s is None
    assert watch(HandlingTime(), 6, held=1, acknowledged=1).mean_s == pytest.approx(1.0)


def test_long_jobs_take_as_long_as_they_do() -> None:
    found = HandlingTime()
    for _ in range(20):
        found = watch(found, 59, held=4, acknowledged=0)
        found = watch(found, 1, held=4, acknowledged=4)
    assert found.mean_s == pytest.approx(60, rel=0.01)


def test_failed_entries_do_not_count_as_long_work_without_traffic() -> None:
    quick = watch(HandlingTime(), 60, held=20, acknowledged=50)
    later = watch(quick, 3_600, held=20, acknowledged=0)
    assert later.mean_s == quick.mean_s
    again = watch(later, 30, held=40, acknowledged=5)
    assert quick.mean_s is not None
    assert again.mean_s is not None
    assert again.mean_s > 10 * quick.mean_s


def test_a_long_silence_counts_for_five_minutes_at_most() -> None:
    silent = watch(HandlingTime(), 1, held=1, acknowledged=0, interval=10_000)
    assert watch(silent, 1, held=1, acknowledged=10).mean_s == pytest.approx(30)


def test_work_that_became_quick_is_seen_to_be() -> None:
    slow = watch(HandlingTime(), 600, held=40, acknowledged=1)
    quick = watch(slow, 900, held=2, acknowledged=10)
    assert slow.mean_s is not None
    assert quick.mean_s is not None
    assert slow.mean_s > 10 > quick.mean_s
