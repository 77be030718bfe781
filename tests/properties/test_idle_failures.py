"""Attempts while workers live: what idles past the limit, and which entry is the cause."""

from __future__ import annotations

from typing import Any

import pytest

from tests.properties.idle_model import Failing, IdleScene, IdleWorld

RETRIES = 3
SOME = RETRIES + 5  # limits: the first failure and the retries, and up to a scan more for each


def check(limits: int, seeds: int = 3, **reported: Any) -> None:
    """Exactly the poisons are given up, within so many limits."""
    for seed in range(seeds):
        scene = IdleScene(**reported)
        world = IdleWorld(scene, seed)
        world.live(limits)
        assert world.innocents == []
        assert sorted(world.letters) == sorted(world.poisons)
        assert len(world.acknowledged) == world.roots - scene.poisons


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("poisons", [1, 80, 200])
def test_any_number_of_swallowed_entries_become_dead_letters(
    poisons: int, count: int, workers: int
) -> None:
    reported = {"poisons": poisons, "count": count, "workers": workers}
    check(SOME, 1, failing=Failing.SWALLOWS, entries=200, limit=1_000, **reported)


def test_many_hundred_entries_are_given_up_after_as_few_limits() -> None:
    """More than one plan or one scan releases."""
    check(SOME, 1, failing=Failing.SWALLOWS, entries=500, poisons=500, limit=1_500)


@pytest.mark.parametrize("reports_progress", [True, False])
def test_what_is_swallowed_among_traffic_is_given_up_as_soon(reports_progress: bool) -> None:
    check(
        SOME,
        failing=Failing.SWALLOWS,
        entries=400,
        poisons=40,
        arrivals=10,
        reports_progress=reports_progress,
    )


@pytest.mark.parametrize(("max_retries", "limits"), [(0, 4), (1, 6), (2, 7), (5, 11)])
def test_the_limits_grow_with_the_retries_alone(max_retries: int, limits: int) -> None:
    check(limits, failing=Failing.SWALLOWS, poisons=80, max_retries=max_retries)


def test_consumers_that_are_no_pods_take_twice_as_many() -> None:
    """Without a pod, nothing shows whether another process began under the name."""
    check(2 * SOME, 1, failing=Failing.SWALLOWS, poisons=80, is_pod=False)


@pytest.mark.parametrize("count", [10, 100])
def test_invariant_11_entries_behind_a_hanging_entry_become_no_dead_letters(count: int) -> None:
    check(SOME, failing=Failing.HANGS, entries=300, poisons=2, workers=20, count=count)


def test_invariant_11_workers_that_hang_and_continue_cause_no_innocent_dead_letters() -> None:
    check(40, failing=Failing.HANGS_LONG, entries=300, poisons=3, count=50)


def test_what_hangs_in_a_slot_of_its_own_is_given_up_alone() -> None:
    check(SOME, failing=Failing.HANGS_IN_A_SLOT, entries=300, poisons=3)


def test_invariant_11_an_answer_that_cannot_be_parsed_affects_no_other_entry() -> None:
    check(2 * SOME, failing=Failing.CANNOT_PARSE, entries=300, poisons=2, count=100)


def test_lost_answers_give_up_no_innocent() -> None:
    check(2 * SOME, failing=Failing.SWALLOWS, entries=500, poisons=5, count=100, lost=0.1)


def test_batches_that_take_longer_than_the_limit_are_finished() -> None:
    check(15, failing=Failing.SWALLOWS, entries=300, poisons=0, count=100, handling=5)


@pytest.mark.parametrize("count", [1, 10])
def test_invariant_11_processes_that_hang_and_read_on_lose_hardly_anything(
    count: int,
) -> None:
    """Such a process takes entries and finishes none, and four and more of twelve end up so."""
    scene = IdleScene(failing=Failing.READS_ON, entries=300, poisons=1, workers=12, count=count)
    worlds = [IdleWorld(scene, seed) for seed in range(20)]
    for world in worlds:
        world.live(2 * SOME)
        assert world.poisons <= set(world.letters)
    assert sum(len(world.innocents) for world in worlds) <= 1  # of 6,000


@pytest.mark.parametrize("workers", [1, 3])
def test_invariant_11_crashes_beside_what_is_swallowed_are_bounded(workers: int) -> None:
    """An entry that crashes its worker is tried while nothing else is."""
    for seed in range(5):
        scene = IdleScene(
            failing=Failing.CRASHES_TOO, entries=100, poisons=20, crashers=2, workers=workers
        )
        world = IdleWorld(scene, seed)
        world.live(80)
        assert sorted(world.letters) == sorted(world.poisons)
        assert world.crashes <= 2 * (RETRIES + 3)
