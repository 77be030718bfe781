"""What a replica keeps in memory about a resource between passes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pelops.controller.group.group_observer import GroupMemories, GroupMemory
from pelops.controller.runtime.kind import LONGEST_RETRY_S, LONGEST_TERMINAL_RETRY_S, WriteBudget
from pelops.domain.entry_id import EntryId
from pelops.policy.group.position import LastSeen
from pelops.policy.membership import STEP
from tests.builders import NOW, group, later, stream


def test_retries_come_later_each_time_up_to_a_limit() -> None:
    memory = GroupMemory()
    assert [memory.retry_s() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("is_terminal", "longest_s"), [(False, LONGEST_RETRY_S), (True, LONGEST_TERMINAL_RETRY_S)]
)
def test_no_number_of_failures_makes_a_retry_later_than_the_limit(
    is_terminal: bool, longest_s: float
) -> None:
    memory = GroupMemory(failures=10**6)
    assert memory.retry_s(is_terminal=is_terminal) == longest_s


def test_a_success_resets_the_retry_delay() -> None:
    memory = GroupMemory()
    for _ in range(4):
        memory.retry_s()
    memory.failures = 0
    assert memory.retry_s() == 0.5


def test_the_wait_counts_from_the_first_look_at_a_difference() -> None:
    memory = GroupMemory()
    assert memory.wait("group", 2, NOW) == 2 * STEP
    assert memory.wait("group", 2, NOW + STEP) == STEP
    assert memory.wait("group", 2, NOW + 5 * STEP) == timedelta(0)


def test_the_next_difference_has_a_wait_of_its_own() -> None:
    memory = GroupMemory()
    memory.wait("group", 1, NOW)
    assert memory.wait("status", 1, NOW + 5 * STEP) == STEP


def test_a_difference_that_returns_after_a_fix_waits_again() -> None:
    memory = GroupMemory()
    memory.wait("group", 1, NOW)
    memory.wait("status", 1, NOW)
    memory.keep_only("status")
    assert memory.wait("group", 1, NOW + 5 * STEP) == STEP
    assert memory.wait("status", 1, NOW + STEP) == timedelta(0)


def test_a_failure_is_news_once() -> None:
    memory = GroupMemory()
    reported = [memory.is_news(failure) for failure in ("down", "down", "denied", "down")]
    assert reported == [True, False, True, True]


def test_a_budget_of_writes_is_used_up_and_fills_again() -> None:
    budget = WriteBudget()
    assert sum(budget.take(1000.0) for _ in range(100)) == 30
    assert not budget.take(1001.9)
    assert budget.take(1002.0)
    assert sum(budget.take(1000.0 + 86400) for _ in range(100)) == 30


def test_an_unforeseen_write_loop_is_limited_to_one_write_per_two_seconds() -> None:
    budget = WriteBudget()
    allowed = sum(budget.take(1000.0 + tick / 10) for tick in range(36000))
    assert 1800 <= allowed <= 1830


def test_each_resource_has_a_memory_of_its_own() -> None:
    memories = GroupMemories()
    memories["shop", "orders"].retry_s()
    assert memories["shop", "orders"].failures == 1
    assert memories["shop", "returns"].failures == 0


GROUP, ANOTHER = ("uid-1", "redis:6379", "orders:events", "g"), ("uid-1", "new:6379", "orders", "g")


def test_a_newer_observation_of_another_loop_replaces_a_former_one() -> None:
    memory = GroupMemory()
    memory.switch_to(GROUP)
    memory.note(GROUP, stream(server_time=NOW))
    assert memory.last_seen is None, "the first is compared with what the status says"
    memory.last_seen = LastSeen.of(stream(server_time=NOW))
    memory.note(GROUP, stream(server_time=later(seconds=1), group=group(at_least=7, lag=7)))
    assert memory.last_seen is not None
    assert memory.last_seen.undelivered == 7
    memory.note(GROUP, stream(server_time=NOW))
    assert memory.last_seen.undelivered == 7, "an older one changes nothing"
    memory.note(ANOTHER, stream(server_time=later(seconds=2)))
    assert memory.last_seen.undelivered == 7, "neither does one of another group"


@pytest.mark.parametrize(
    "found",
    [
        {"group": None, "exists": False, "entries_added": None},
        {"entries_added": 1, "group": group()},
        {"group": group(last_delivered_id=EntryId(1))},
    ],
    ids=["gone", "another stream", "went back"],
)
def test_what_shows_a_loss_is_left_to_the_turn_that_records_it(found: dict[str, Any]) -> None:
    memory = GroupMemory(seen_of=GROUP, last_seen=LastSeen.of(stream(group=group(lag=7))))
    before = memory.last_seen
    memory.note(GROUP, stream(server_time=later(seconds=1), **found))
    assert memory.last_seen == before


def test_of_another_server_nothing_is_known() -> None:
    memory = GroupMemory()
    memory.switch_to(GROUP)
    assert not memory.is_elsewhere, "the status speaks of this group"
    memory.last_seen = LastSeen.of(stream())
    memory.switch_to(GROUP)
    assert memory.last_seen is not None
    memory.switch_to(ANOTHER)
    assert memory.last_seen is None
    assert memory.is_elsewhere
