"""Attempts under simulated crashes, and for any facts: innocents are never given up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import FINISHED, Action, Death, RetryBatch, Suspect, read_ids, write_ids
from pelops.policy.recovery.attempts import ONE_READ, Backoff, Crash, Rules, plan_attempts
from tests.builders import NOW
from tests.properties.crash_model import AT_ONCE, Habit, Scene, World

SOON: Final = Backoff(initial=timedelta(milliseconds=100), longest=timedelta(seconds=1))
BEFORE_NOW = st.integers(1, 10**7).map(lambda ms: NOW - timedelta(milliseconds=ms))


@pytest.mark.parametrize("seeds", [2, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize("renames", [False, True], ids=["same-name", "new-name"])
@pytest.mark.parametrize("habit", list(Habit), ids=lambda habit: habit.name)
def test_invariant_11_of_4000_entries_only_two_poisons_become_dead_letters(
    habit: Habit, renames: bool, seeds: int
) -> None:
    """Rule B1: the table of facts/protocol.md, with few crashes."""
    for seed in range(1 if habit is Habit.ONE_BY_ONE else seeds):
        world = World(Scene(habit=habit, renames=renames), seed)
        world.run()
        assert set(world.letters) == world.poisons
        assert len(world.letters) == 2
        assert len(world.acknowledged) == 3_998
        assert world.crashes <= 10


@pytest.mark.parametrize("seeds", [2, pytest.param(10, marks=pytest.mark.full)])
@pytest.mark.parametrize("renames", [False, True], ids=["same-name", "new-name"])
@pytest.mark.parametrize("backoff", [AT_ONCE, SOON], ids=["at-once", "backoff"])
@pytest.mark.parametrize("habit", list(Habit), ids=lambda habit: habit.name)
def test_invariant_11_workers_killed_from_outside_give_up_no_innocent(
    habit: Habit, renames: bool, backoff: Backoff, seeds: int
) -> None:
    for seed in range(1 if habit is Habit.ONE_BY_ONE else seeds):
        scene = Scene(
            habit=habit, renames=renames, backoff=backoff, entries=1_000, prefetch=100, kills=30
        )
        world = World(scene, seed)
        world.run()
        assert set(world.letters) == world.poisons


@pytest.mark.parametrize("renames", [False, True], ids=["same-name", "new-name"])
@pytest.mark.parametrize("backoff", [AT_ONCE, SOON], ids=["at-once", "backoff"])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("habit", list(Habit), ids=lambda habit: habit.name)
def test_poisons_that_hang_until_a_probe_kills_become_dead_letters(
    habit: Habit, workers: int, renames: bool, backoff: Backoff
) -> None:
    """They never seem to crash: each of their deaths looks as if it came from outside."""
    for seed in range(4):
        scene = Scene(
            habit=habit,
            workers=workers,
            renames=renames,
            backoff=backoff,
            entries=500,
            prefetch=100,
            poison_looks=Death.KILLED,
        )
        world = World(scene, seed)
        world.run()
        assert set(world.letters) == world.poisons
        assert world.crashes <= 12


@pytest.mark.parametrize("poisons", [0, 1, pytest.param(5, marks=pytest.mark.full), 20])
@pytest.mark.parametrize(
    "max_retries", [0, *(pytest.param(one, marks=pytest.mark.full) for one in (1, 2)), 5]
)
def test_any_number_of_poisons_are_dead_letters_after_bounded_crashes(
    poisons: int, max_retries: int
) -> None:
    for habit in (Habit.TEN_AT_ONCE, Habit.WHOLE_BATCH):
        scene = Scene(
            habit=habit, poisons=poisons, max_retries=max_retries, entries=500, prefetch=100
        )
        world = World(scene, seed=poisons)
        world.run()
        assert set(world.letters) == world.poisons
        assert world.crashes <= (max_retries + 3) * poisons


# -- for any facts


suspects = st.builds(
    Suspect,
    entry_id=st.builds(EntryId, st.integers(1, 30)),
    attempts=st.integers(0, 7) | st.just(999_999),
    isolated_failures=st.integers(0, 3),
    delivered=BEFORE_NOW,
    deliveries=st.integers(1, 9),
    counts_attempt=st.booleans(),
    is_started=st.booleans(),
    was_offered=st.booleans(),
)
rules = st.builds(
    Rules,
    max_retries=st.integers(0, 5),
    backoff=st.just(AT_ONCE)
    | st.builds(
        Backoff,
        initial=st.timedeltas(timedelta(), timedelta(hours=1)),
        factor=st.floats(1, 10),
        longest=st.timedeltas(timedelta(), timedelta(hours=1)),
    ),
)
words = st.lists(
    st.integers(1, 40).map(lambda ms: f"{ms}-0") | st.sampled_from(["banana", "1-٣", "9" * 30]),
    max_size=5,
).map(" ".join)


@st.composite
def scenes(draw: st.DrawFn, *, idles: bool = False) -> tuple[list[Crash], RetryBatch]:
    """Several owners that hold different entries, and what is known of the last retry batch."""
    all_suspects = draw(st.lists(suspects, max_size=20, unique_by=lambda one: one.entry_id))
    owners = draw(st.integers(1, 3))
    crashes = [
        Crash(
            owner=f"w{n}",
            cutoff=NOW,
            death=draw(st.sampled_from(Death)),
            suspects=tuple(all_suspects[n::owners]),
            co_failed=draw(st.none() | BEFORE_NOW),
            is_idle=idles and draw(st.booleans()),
            unproven_since=draw(st.none() | BEFORE_NOW),
            is_outdone=draw(st.booleans()),
        )
        for n in range(owners)
    ]
    written = draw(st.sampled_from(["", "parallel ", "parallel finished "])) + draw(words)
    members = sorted(read_ids(written))
    under_way = draw(st.sets(st.sampled_from(members))) if members else set()
    return crashes, RetryBatch(written=written, under_way=frozenset(under_way))


@given(scenes() | scenes(idles=True), rules)
def test_each_suspect_is_settled_once_or_waits(
    scene: tuple[list[Crash], RetryBatch], reported: Rules
) -> None:
    """Total; and nothing is done that was not asked about."""
    crashes, retry_batch = scene
    plan = plan_attempts(crashes, retry_batch, reported, now=NOW)
    held = [one.entry_id for crash in crashes for one in crash.suspects]
    settled = [one.entry_id for owner in plan.owners for one in owner.settlements]
    assert len(settled) == len(set(settled))
    assert set(settled) <= set(held)
    assert len(settled) + plan.waiting == len(held)
    following = [one.entry_id for owner in plan.following for one in owner.settlements]
    assert len(following) == len(set(following))
    assert set(following) <= set(held) - set(settled)


@given(scenes(idles=True), rules)
def test_invariant_11_only_idle_failures_isolated_in_their_read_become_dead_letters(
    scene: tuple[list[Crash], RetryBatch], reported: Rules
) -> None:
    crashes, retry_batch = scene
    plan = plan_attempts(crashes, retry_batch, reported, now=NOW)
    for crash, owner in zip(crashes, plan.owners, strict=True):
        for one in owner.settlements:
            if one.action is not Action.DEAD or not crash.fails_by_read:
                continue
            assert one.attempts > reported.max_retries
            (dead,) = (each for each in crash.suspects if each.entry_id == one.entry_id)
            beside = [
                other
                for other in crash.suspects
                if other is not dead
                and (other.attempts > 0 or reported.max_retries == 0)
                and (other.counts_attempt and not other.was_offered)
                and (crash.co_failed is None or other.delivered >= crash.co_failed)
                and abs(other.delivered - dead.delivered) <= ONE_READ
            ]
            assert beside == []


@given(scenes(idles=True), rules)
def test_entries_of_a_crash_are_released_without_another_retry_batch(
    scene: tuple[list[Crash], RetryBatch], reported: Rules
) -> None:
    crashes, retry_batch = scene
    plan = plan_attempts(crashes, retry_batch, reported, now=NOW)
    for crash, owner in zip(crashes, plan.owners, strict=True):
        releases = any(one.action is Action.RETRY for one in owner.settlements)
        if releases and not crash.fails_by_read:
            assert not plan.kept
            assert not plan.following


@given(scenes(), rules)
def test_no_retry_batch_is_released_while_one_is_under_way(
    scene: tuple[list[Crash], RetryBatch], reported: Rules
) -> None:
    crashes, retry_batch = scene
    plan = plan_attempts(crashes, retry_batch, reported, now=NOW)
    releasing = [
        owner
        for owner in plan.owners
        if any(one.action is Action.RETRY for one in owner.settlements)
    ]
    assert len(releasing) <= (0 if plan.kept else 1)


@given(scenes(), rules)
def test_invariant_11_only_what_failed_alone_and_too_often_is_given_up(
    scene: tuple[list[Crash], RetryBatch], reported: Rules
) -> None:
    crashes, retry_batch = scene
    plan = plan_attempts(crashes, retry_batch, reported, now=NOW)
    for crash, owner in zip(crashes, plan.owners, strict=True):
        for one in owner.settlements:
            if one.action is not Action.DEAD:
                continue
            assert one.attempts > reported.max_retries
            assert one.isolated_failures >= 1
            beside = [
                other
                for other in crash.suspects
                if other.entry_id != one.entry_id
                and (other.attempts > 0 or other.is_started)
                and (other.counts_attempt and not other.was_offered)
                and (crash.co_failed is None or other.delivered >= crash.co_failed)
            ]
            assert beside == []


@given(scenes(), rules)
def test_invariant_9_what_was_planned_is_not_planned_again(
    scene: tuple[list[Crash], RetryBatch], reported: Rules
) -> None:
    """Without what it settled, on the retry batch that it left, the plan has only dead letters at
    most: what it released is under way.
    """
    crashes, retry_batch = scene
    first = plan_attempts(crashes, retry_batch, reported, now=NOW)
    assert plan_attempts(crashes, retry_batch, reported, now=NOW) == first
    settled = {one.entry_id for owner in first.owners for one in owner.settlements}
    released = {
        EntryId(1_000 + one.entry_id.ms)
        for owner in first.owners
        for one in owner.settlements
        if one.action is Action.RETRY
    }
    left = [
        replace(
            crash,
            suspects=tuple(one for one in crash.suspects if one.entry_id not in settled),
            co_failed=max(filter(None, (crash.co_failed, owner.co_failed)), default=None),
        )
        for crash, owner in zip(crashes, first.owners, strict=True)
    ]
    members = first.kept | released
    # As it is written: that others have finished theirs is not forgotten.
    written = f"{FINISHED * first.has_finished} {write_ids(members)}".strip()
    after = RetryBatch(written=written, under_way=members)
    second = plan_attempts(left, after, reported, now=NOW)
    again = [one for owner in second.owners for one in owner.settlements]
    if released:
        assert not any(one.action is Action.RETRY for one in again)
    assert not any(one.action is Action.DEAD for one in again)
