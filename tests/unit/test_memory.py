"""What a replica remembers of a resource between turns."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pelops.controller.memory import (
    LONGEST_RETRY_S,
    LONGEST_TERMINAL_RETRY_S,
    Memories,
    Memory,
    WriteBudget,
)
from pelops.policy.turn import STEP
from tests.builders import NOW


def test_retries_come_later_each_time_up_to_a_limit() -> None:
    memory = Memory()
    assert [memory.retry_s() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("is_terminal", "longest_s"), [(False, LONGEST_RETRY_S), (True, LONGEST_TERMINAL_RETRY_S)]
)
def test_no_number_of_failures_makes_a_retry_later_than_the_limit(
    is_terminal: bool, longest_s: float
) -> None:
    memory = Memory(failures=10**6)
    assert memory.retry_s(is_terminal=is_terminal) == longest_s


def test_a_success_between_failures_starts_the_retries_anew() -> None:
    memory = Memory()
    for _ in range(4):
        memory.retry_s()
    memory.failures = 0
    assert memory.retry_s() == 0.5


def test_the_wait_counts_from_the_first_look_at_a_difference() -> None:
    memory = Memory()
    assert memory.wait("group", 2, NOW) == 2 * STEP
    assert memory.wait("group", 2, NOW + STEP) == STEP
    assert memory.wait("group", 2, NOW + 5 * STEP) == timedelta(0)


def test_the_next_difference_has_a_wait_of_its_own() -> None:
    memory = Memory()
    memory.wait("group", 1, NOW)
    assert memory.wait("status", 1, NOW + 5 * STEP) == STEP


def test_a_difference_that_comes_back_after_it_was_mended_waits_anew() -> None:
    memory = Memory()
    memory.wait("group", 1, NOW)
    memory.wait("status", 1, NOW)
    memory.sees_only("status")
    assert memory.wait("group", 1, NOW + 5 * STEP) == STEP
    assert memory.wait("status", 1, NOW + STEP) == timedelta(0)


def test_a_failure_is_news_once() -> None:
    memory = Memory()
    told = [memory.is_news(failure) for failure in ("down", "down", "denied", "down")]
    assert told == [True, False, True, True]


def test_a_budget_of_writes_is_used_up_and_fills_again() -> None:
    budget = WriteBudget()
    assert sum(budget.take(1000.0) for _ in range(100)) == 30
    assert not budget.take(1001.9)
    assert budget.take(1002.0)
    assert sum(budget.take(1000.0 + 86400) for _ in range(100)) == 30


def test_an_unforeseen_ping_pong_is_slowed_down_to_a_write_every_two_seconds() -> None:
    budget = WriteBudget()
    allowed = sum(budget.take(1000.0 + tick / 10) for tick in range(36000))
    assert 1800 <= allowed <= 1830


def test_each_resource_has_a_memory_of_its_own() -> None:
    memories = Memories()
    memories["shop", "orders"].retry_s()
    assert memories["shop", "orders"].failures == 1
    assert memories["shop", "returns"].failures == 0
