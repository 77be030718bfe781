"""When a group is scanned again: quickly while something changes, rarely while nothing does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pelops.controller.recovery.scan_schedule import ScanSchedule
from pelops.controller.runtime.cache import Name
from pelops.domain.recovery import Offers, Trigger
from pelops.policy.recovery.scan_interval import (
    MOST_DOUBLINGS,
    NOT_TAKEN_AFTER,
    RECHECK,
    SOON,
    SOONEST,
    UNCONFIRMED_END,
    Standstill,
    Unfinished,
    count_standstill,
    decide_due,
    decide_wait,
    is_not_taken,
    next_scan,
    until_next_scan,
)
from tests.builders import NOW, later

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
NAME: Name = ("shop", "orders")
OTHER: Name = ("shop", "bills")
WAITING = Unfinished(retry_batch="1-1 2-1", waiting=3, under_way=2)


def wait(left: Unfinished, *, rounds: int = 0, rank: int = 0) -> timedelta:
    """What is decided after so many scans that changed nothing."""
    standstill = count_standstill(None, left)
    if standstill is not None:
        standstill = replace(standstill, rounds=rounds)
    return decide_wait(left, standstill, HOUR, rank=rank)


@pytest.mark.parametrize(
    ("left", "wanted"),
    [
        (Unfinished(), HOUR),
        (Unfinished(moved=7, retry_batch="1-1"), HOUR),
        (Unfinished(waiting=1), SOON),
        (Unfinished(under_way=1), SOON),
        (Unfinished(young=1), RECHECK),
        (Unfinished(young=1, under_way=1), SOON),
        (Unfinished(has_unconfirmed_ends=True), UNCONFIRMED_END),
        (Unfinished(has_unconfirmed_ends=True, young=1), RECHECK),
        (Unfinished(earliest=MINUTE), MINUTE),
        (Unfinished(earliest=2 * HOUR), HOUR),
        (Unfinished(earliest=MINUTE, has_unconfirmed_ends=True), UNCONFIRMED_END),
        (Unfinished(earliest=timedelta(milliseconds=50), waiting=1), timedelta(milliseconds=50)),
    ],
)
def test_the_first_thing_that_may_happen_says_when(left: Unfinished, wanted: timedelta) -> None:
    assert wait(left) == wanted


def test_the_wait_doubles_with_each_round_up_to_a_limit() -> None:
    waits = [wait(WAITING, rounds=rounds) for rounds in range(MOST_DOUBLINGS + 3)]
    assert waits[:4] == [SOON, 2 * SOON, 4 * SOON, 8 * SOON]
    assert set(waits[MOST_DOUBLINGS:]) == {SOON * 2**MOST_DOUBLINGS}


def test_the_replica_that_ranks_first_looks_twice_before_another_one_looks() -> None:
    first, second, third = (wait(WAITING, rank=rank) for rank in range(3))
    assert second > 2 * first + first
    assert third > second


def test_nothing_that_waits_makes_a_scan_later_than_usual() -> None:
    assert wait(WAITING, rounds=MOST_DOUBLINGS, rank=1_000) == HOUR


def test_rounds_are_counted_while_nothing_changes() -> None:
    standstill = count_standstill(None, WAITING)
    assert standstill is not None and standstill.rounds == 0
    for rounds in (1, 2, 3):
        standstill = count_standstill(standstill, WAITING)
        assert standstill is not None and standstill.rounds == rounds


@pytest.mark.parametrize(
    "changed",
    [
        replace(WAITING, retry_batch="1-1"),
        replace(WAITING, waiting=2),
        replace(WAITING, under_way=1),
        replace(WAITING, young=1),
        replace(WAITING, under_way=1, young=1),
        replace(WAITING, moved=1),
    ],
)
def test_any_progress_resets_the_count(changed: Unfinished) -> None:
    before = count_standstill(None, WAITING)
    assert before is not None
    after = count_standstill(Standstill(before.state, 5), changed)
    assert after is not None and after.rounds == 0


@pytest.mark.parametrize(
    "left", [Unfinished(), Unfinished(earliest=SOON, has_unconfirmed_ends=True)]
)
def test_without_anything_to_press_for_no_rounds_are_counted(left: Unfinished) -> None:
    assert count_standstill(count_standstill(None, WAITING), left) is None


def test_a_recent_scan_of_another_replica_delays_timers_but_not_pod_deaths() -> None:
    assert timedelta() < decide_due(MINUTE, is_timer=True) < MINUTE
    assert decide_due(MINUTE, is_timer=False) == timedelta()


def test_ranks_follow_each_other_and_the_interval_counts_from_the_last_scan() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def after(age: timedelta, rank: int = 0, jitter: float = 0.0) -> timedelta:
        return next_scan(MINUTE, scanned_at=now - age, now=now, rank=rank, jitter=jitter)

    assert after(timedelta()) == MINUTE
    assert after(20 * SECOND) == 40 * SECOND
    assert after(HOUR) == SOON
    assert after(timedelta(), jitter=0.999) < after(timedelta(), rank=1)


def test_a_group_where_nothing_changes_is_looked_at_ever_more_rarely() -> None:
    pacing = ScanSchedule()
    waits = [pacing.after(NAME, WAITING, HOUR, rank=0) for _ in range(4)]
    assert waits == [SOON, 2 * SOON, 4 * SOON, 8 * SOON]
    assert pacing.after(NAME, replace(WAITING, moved=1), HOUR, rank=0) == SOON
    assert pacing.after(NAME, WAITING, HOUR, rank=0) == 2 * SOON


def test_what_stood_still_in_one_group_says_nothing_of_another_one() -> None:
    pacing = ScanSchedule()
    for _ in range(3):
        pacing.after(NAME, WAITING, HOUR, rank=0)
    assert pacing.after(OTHER, WAITING, HOUR, rank=0) == SOON


def test_what_is_done_with_is_looked_at_quickly_when_it_comes_again() -> None:
    pacing = ScanSchedule()
    for _ in range(3):
        pacing.after(NAME, WAITING, HOUR, rank=0)
    assert pacing.after(NAME, Unfinished(), HOUR, rank=0) == HOUR
    assert pacing.after(NAME, WAITING, HOUR, rank=0) == SOON


def test_an_early_scan_of_the_first_replica_runs_unconditionally_once() -> None:
    pacing = ScanSchedule()
    pacing.after(NAME, WAITING, MINUTE, rank=0)
    assert pacing.due(NAME, MINUTE, Trigger.SCAN, rank=0) == timedelta()
    assert pacing.due(NAME, MINUTE, Trigger.SCAN, rank=0) == decide_due(MINUTE, is_timer=True)


def test_another_replica_skips_its_early_scan_after_an_equally_early_one() -> None:
    pacing = ScanSchedule()
    early = pacing.after(NAME, WAITING, MINUTE, rank=1)
    due = pacing.due(NAME, MINUTE, Trigger.SCAN, rank=1)
    assert timedelta() < due == decide_due(early, is_timer=True) < early


@pytest.mark.parametrize("rank", [0, 1])
def test_a_usual_wait_leaves_others_scans_enough(rank: int) -> None:
    pacing = ScanSchedule()
    assert pacing.after(NAME, Unfinished(earliest=HOUR), MINUTE, rank=rank) == MINUTE
    due = pacing.due(NAME, MINUTE, Trigger.SCAN, rank=rank)
    assert due == decide_due(MINUTE, is_timer=True)


def test_a_death_is_scanned_for_in_any_case() -> None:
    assert ScanSchedule().due(NAME, MINUTE, Trigger.POD_DEATH, rank=1) == timedelta()


def test_who_comes_back_scans_though_a_scan_has_just_begun() -> None:
    pacing = ScanSchedule()
    assert pacing.plan_early(NAME, SECOND) == SECOND
    assert pacing.due(NAME, MINUTE, Trigger.SCAN, rank=0) == timedelta()
    pacing.plan_early(NAME, HOUR)
    assert pacing.due(NAME, MINUTE, Trigger.SCAN, rank=1) == decide_due(MINUTE, is_timer=True)


def test_a_forgotten_resource_starts_without_a_history() -> None:
    pacing = ScanSchedule()
    for _ in range(3):
        pacing.after(NAME, WAITING, HOUR, rank=0)
    pacing.forget(NAME)
    assert pacing.due(NAME, MINUTE, Trigger.SCAN, rank=0) == decide_due(MINUTE, is_timer=True)
    assert pacing.after(NAME, WAITING, HOUR, rank=0) == SOON
    pacing.forget(OTHER)


def test_a_replica_looks_again_by_the_interval_alone_when_nothing_calls() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    found = ScanSchedule().until_next(MINUTE, scanned_at=now, now=now, rank=0)
    assert MINUTE <= found <= 1.1 * MINUTE


# --- When offers count as not taken, and when the next scan for them is due


LONG_AGO = NOW - NOT_TAKEN_AFTER


def open_since(
    oldest: datetime | None, taken_at: datetime | None = None, due: datetime | None = None
) -> Offers:
    return Offers(now=NOW, untaken=1, oldest=oldest, due=due or NOW + SECOND, taken_at=taken_at)


@pytest.mark.parametrize(
    ("offers", "wanted"),
    [
        (Offers(now=NOW), False),
        (open_since(LONG_AGO + SECOND), False),
        (open_since(LONG_AGO), True),
        # Busy workers take some from time to time.
        (open_since(LONG_AGO, taken_at=NOW - SECOND), False),
        (open_since(LONG_AGO, taken_at=LONG_AGO), True),
        # The clock went back.
        (open_since(LONG_AGO, taken_at=later(seconds=9)), True),
        (open_since(later(seconds=9)), False),
    ],
)
def test_offers_are_not_taken_when_one_waits_without_recent_claims(
    offers: Offers, wanted: bool
) -> None:
    assert is_not_taken(offers) is wanted


@pytest.mark.parametrize(
    ("offers", "wanted"),
    [
        (Offers(now=NOW), None),
        (open_since(NOW, due=NOW + 5 * SECOND), 5 * SECOND),
        (open_since(NOW, due=NOW), SOONEST),
        # In time to report that no worker takes it.
        (open_since(LONG_AGO + 2 * SECOND, due=NOW + 9 * SECOND), 2 * SECOND),
        (open_since(LONG_AGO, due=NOW + 9 * SECOND), 9 * SECOND),
    ],
)
def test_the_next_scan_is_when_an_offer_repeats_or_is_overdue(
    offers: Offers, wanted: timedelta | None
) -> None:
    assert until_next_scan(offers) == wanted


def test_two_pages_of_offers_are_one() -> None:
    first = Offers(now=NOW, taken={"scan": 1}, untaken=2, oldest=later(seconds=1), repeated=1)
    second = Offers(now=NOW, taken={"scan": 2, "start-up": 1}, untaken=3, oldest=NOW, due=NOW)
    both = first.plus(second)
    assert both.taken == {"scan": 3, "start-up": 1}
    assert (both.untaken, both.oldest, both.due, both.repeated) == (5, NOW, NOW, 1)
