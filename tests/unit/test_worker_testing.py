"""What tests of handlers can see with the double."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import pytest

from pelops.errors import PermissionDenied
from pelops.worker import Entry, Reject, Retry
from pelops.worker.testing import Ended, MemoryGroup


def group_of(count: int = 1) -> MemoryGroup:
    """A group with so many entries to deliver."""
    group = MemoryGroup()
    for number in range(count):
        group.add({"n": number})
    return group


def run(group: MemoryGroup, handle: Any, name: str = "one", **options: Any) -> Ended:
    worker = group.worker(name, **options)
    worker.handler(handle)
    return group.run(worker)


def test_entries_are_handled_and_acknowledged() -> None:
    group = MemoryGroup()
    ids = [group.add({"n": number}) for number in range(250)]
    seen: list[str] = []

    async def handle(entry: Entry) -> None:
        seen.append(entry.id)

    ended = run(group, handle)
    assert (ended.exit_code, ended.crashed) == (0, False)
    assert seen == ids
    assert sorted(group.acknowledged) == sorted(ids)
    assert group.pending == []


def test_handlers_that_are_not_async_run_in_order() -> None:
    group = MemoryGroup()
    ids = [group.add({"n": number}) for number in range(20)]
    seen: list[str] = []
    run(group, lambda entry: seen.append(entry.id))
    assert seen == ids


def test_a_handler_class_is_made_once() -> None:
    group = group_of()
    made = []

    class Shipping:
        def __init__(self) -> None:
            made.append(self)

        async def handle(self, entry: Entry) -> None:
            assert made == [self]

    assert run(group, Shipping).exit_code == 0
    assert len(made) == len(group.acknowledged) == 1


def test_waiting_takes_no_time_and_moves_the_clock() -> None:
    group = group_of()

    async def handle(entry: Entry) -> None:
        async with asyncio.timeout(2000):
            await asyncio.sleep(1000)

    began_s, before_s = time.monotonic(), group.clock()
    run(group, handle)
    assert group.clock() - before_s >= 1000
    assert time.monotonic() - began_s < 100
    assert len(group.acknowledged) == 1  # heartbeats kept it


def test_what_a_crash_leaves_is_delivered_again() -> None:
    group = MemoryGroup()
    first, second = group.add({"n": 1}), group.add({"n": 2})
    reported: list[tuple[str, int]] = []

    async def handle(entry: Entry) -> None:
        reported.append((entry.id, entry.deliveries))
        if len(reported) == 1:
            group.crash()

    assert run(group, handle).crashed
    assert {(one.id, one.consumer) for one in group.pending} == {(first, "one"), (second, "one")}
    other = group.worker("other")
    other.handler(handle)
    group.run(other)
    assert reported == [(first, 0)]  # it is not idle yet
    group.redeliver("one")
    group.run(other)
    assert reported == [(first, 0), (first, 1), (second, 1)]
    assert group.pending == []


def test_nothing_happens_after_a_crash() -> None:
    group = group_of(50)
    seen: list[str] = []

    async def handle(entry: Entry) -> None:
        if len(seen) % 2:
            await asyncio.sleep(0.001)
        seen.append(entry.id)
        if len(seen) == 20:
            group.crash()

    assert run(group, handle).exit_code == 137
    assert len(seen) == 20
    assert len(group.acknowledged) <= 19


def test_what_was_started_when_the_process_crashed_is_left_to_recovery() -> None:
    group = group_of()
    worker = group.worker()
    runs: list[int] = []

    @worker.handler
    def handle(entry: Entry) -> None:
        runs.append(entry.deliveries)
        if len(runs) == 1:
            group.crash()

    group.run(worker)
    group.run(worker)  # a new process of the same name
    assert runs == [0]
    group.clock.move(31)
    group.run(worker)
    assert runs == [0, 1]


def test_what_was_done_and_not_said_runs_again() -> None:
    group = group_of()
    worker = group.worker()
    runs: list[str] = []

    @worker.handler
    async def handle(entry: Entry) -> None:
        runs.append(entry.id)
        if len(runs) == 1:
            group.go_down()
            asyncio.get_running_loop().call_later(1, crash_soon)

    def crash_soon() -> None:
        group.come_back()
        group.crash()

    assert group.run(worker).crashed
    group.redeliver()
    group.run(worker)
    assert len(runs) == 2


def test_failures_become_dead_letters_as_in_redis() -> None:
    group = MemoryGroup()
    entry_id = group.add({"order": "17"}, failures=2)

    async def handle(entry: Entry) -> None:
        assert entry.attempt == 3
        raise Reject("Unwanted", "nobody ordered it")

    run(group, handle)
    (letter,) = group.dead_letters
    assert letter[b"order"] == b"17"
    assert letter[b"_reason"] == b"Unwanted"
    assert letter[b"_error"] == b"nobody ordered it"
    assert letter[b"_retry_count"] == b"2"
    assert letter[b"_consumer"] == b"one"
    assert entry_id in group.acknowledged


def test_retries_wait_by_the_clock_of_the_test() -> None:
    group = group_of()
    at: list[float] = []

    async def handle(entry: Entry) -> None:
        at.append(group.clock())
        if len(at) < 3:
            raise Retry(after=600)

    run(group, handle)
    assert [round(later - earlier) for earlier, later in pairwise(at)] == [600, 600]


def test_an_entry_that_another_was_given_is_not_acknowledged() -> None:
    group = MemoryGroup()
    entry_id = group.add({"n": 1})
    ends: list[str] = []

    async def handle(entry: Entry) -> None:
        group.give(entry.id, "other")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    run(group, handle)
    assert ends == ["cancelled"]
    assert [(one.id, one.consumer) for one in group.pending] == [(entry_id, "other")]


def test_a_handler_that_keeps_the_loop_is_a_move_of_the_clock() -> None:
    group = MemoryGroup()
    entry_id = group.add({"n": 1})

    async def handle(entry: Entry) -> None:
        group.clock.move(45)
        group.give(entry.id, "other")

    run(group, handle)
    assert group.acknowledged == []
    assert [(one.id, one.consumer) for one in group.pending] == [(entry_id, "other")]


def test_offers_of_the_operator_are_taken_at_once() -> None:
    group = group_of()
    seen: list[str] = []
    run(group, lambda entry: group.crash())
    group.offer("one")
    run(group, lambda entry: seen.append(entry.source.value), "other")
    assert seen == ["handed-over"]


def test_an_outage_is_waited_out() -> None:
    group = group_of()
    seen: list[str] = []

    async def handle(entry: Entry) -> None:
        seen.append(entry.id)
        group.go_down()
        asyncio.get_running_loop().call_later(10, group.come_back)

    run(group, handle)
    assert len(seen) == len(group.acknowledged) == 1


def test_a_lost_answer_costs_nothing() -> None:
    group = MemoryGroup()
    ids = [group.add({"n": number}) for number in range(10)]
    seen: list[str] = []

    async def handle(entry: Entry) -> None:
        seen.append(entry.id)
        if len(seen) == 3:
            group.lose_answer()

    run(group, handle, concurrency=2)
    assert sorted(group.acknowledged) == ids
    assert sorted(seen) == ids


def test_what_breaks_a_worker_is_raised() -> None:
    group = MemoryGroup()
    group.go_down(PermissionDenied("no"))
    with pytest.raises(PermissionDenied):
        run(group, lambda entry: None)


def test_a_handler_that_never_ends_ends_the_test() -> None:
    group = group_of()
    worker = group.worker()

    @worker.handler
    async def handle(entry: Entry) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="handlers running: 1"):
        group.run(worker, limit_s=300)


def test_a_worker_can_be_stopped_in_the_middle() -> None:
    group = group_of(10)
    worker = group.worker(concurrency=1)
    seen: list[str] = []

    @worker.handler
    async def handle(entry: Entry) -> None:
        seen.append(entry.id)
        worker.stop()
        await asyncio.sleep(1)

    assert group.run(worker).exit_code == 0
    assert group.acknowledged == seen
    assert len(seen) < 10


def test_two_runs_take_the_same_course() -> None:
    def run() -> list[tuple[str, float]]:
        group = MemoryGroup()
        for number in range(100):
            group.add({"n": number})
        worker = group.worker(concurrency=7)
        course: list[tuple[str, float]] = []

        @worker.handler
        async def handle(entry: Entry) -> None:
            await asyncio.sleep(0.001 * (int(entry["n"]) % 13))
            course.append((entry.id, group.clock()))
            if entry["n"] == b"60" and entry.deliveries == 0:
                group.crash()

        group.run(worker)
        group.redeliver()
        group.run(worker)
        return course

    assert run() == run()


def test_the_clock_does_not_run_back() -> None:
    with pytest.raises(ValueError, match="back"):
        MemoryGroup().clock.move(-1)


def test_the_double_needs_no_redis_client() -> None:
    reported = "import sys, pelops.worker.testing; assert 'redis' not in sys.modules"
    subprocess.run([sys.executable, "-c", reported], check=True, env={"PYTHONPATH": "operator"})
