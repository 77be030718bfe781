"""A handler that runs in line finds what it would find in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from pelops.worker.engine.in_flight import InFlight
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.retries import RetryPolicy
from pelops.worker.engine.shared import build_shared
from pelops.worker.engine.slots import Slots
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.handlers import Handler
from pelops.worker.outcomes import Outcome, Reject
from pelops.worker.server.adapter import DeliverySource
from pelops.worker.settings import WorkerSettings
from tests.unit.scripted_adapter import (
    STREAM,
    ScriptedAdapter,
    build_worker,
    entries,
    raw,
    run_virtually,
    serve,
    until,
    work,
)

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="untouched")


def _handle_all(handle: Any, count: int = 5, **options: Any) -> ScriptedAdapter:
    """Work until every entry is acknowledged or rejected."""
    adapter = ScriptedAdapter(fresh=entries(count))
    serve(adapter, handle, lambda: len(adapter.acked) + len(adapter.rejected) == count, **options)
    return adapter


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def test_a_timeout_within_a_handler_ends_what_it_guards_and_nothing_else() -> None:
    timed_out = []

    async def handle(entry: Entry) -> None:
        for limit_s in (1, 0):
            try:
                async with asyncio.timeout(limit_s):
                    await asyncio.sleep(100)
            except TimeoutError:
                timed_out.append(entry.id)
        async with asyncio.timeout(5):
            await asyncio.sleep(1)

    adapter = _handle_all(handle)
    assert len(timed_out) == 2 * len(adapter.acked) == 10


def test_a_task_group_in_a_handler_cancels_its_tasks_on_failure() -> None:
    ended = []

    async def fail() -> None:
        raise ValueError("one")

    async def last(entry: Entry) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(entry.id)

    async def handle(entry: Entry) -> None:
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(last(entry))
                await asyncio.sleep(0)
                group.create_task(fail())
        async with asyncio.TaskGroup() as group:
            quick = group.create_task(asyncio.sleep(1, "done"))
        assert quick.result() == "done"

    assert len(_handle_all(handle).acked) == len(ended) == 5


def test_the_current_task_stays_the_same_during_a_handler() -> None:
    async def handle(entry: Entry) -> None:
        before = _current_task()
        await asyncio.sleep(0.1)
        assert _current_task() is before

    assert len(_handle_all(handle).acked) == 5


def test_a_context_variable_is_seen_by_its_handler_and_its_tasks_alone() -> None:
    found = []

    async def read() -> str:
        return VARIABLE.get()

    async def handle(entry: Entry) -> None:
        found.append(VARIABLE.get())
        VARIABLE.set(entry.id)
        if int(entry.id[:-2]) % 2:
            await asyncio.sleep(0.1)
            assert await asyncio.create_task(read()) == entry.id

    assert len(_handle_all(handle, 20).acked) == 20
    assert found == ["untouched"] * 20


def test_a_handler_that_cancels_itself_does_not_affect_the_next() -> None:
    async def handle(entry: Entry) -> None:
        _current_task().cancel()

    assert len(_handle_all(handle, 20).acked) == 20


def test_a_handler_that_cancels_itself_and_waits_has_failed() -> None:
    attempts = []

    async def handle(entry: Entry) -> None:
        attempts.append(entry.attempt)
        if entry.attempt == 1:
            _current_task().cancel()
            await asyncio.sleep(1)

    assert len(_handle_all(handle, 1).acked) == 1
    assert attempts == [1, 2]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "error", [ValueError("x"), asyncio.CancelledError(), BaseException("y"), GeneratorExit()]
)
def test_whatever_a_handler_raises_fails_its_entry_alone(error: Any, waits: bool) -> None:
    failed = []

    async def handle(entry: Entry) -> None:
        if waits:
            await asyncio.sleep(0.01)
        if entry.raw_id == b"3-0" and entry.attempt == 1:
            failed.append(entry.id)
            raise error

    assert len(_handle_all(handle).acked) == 5
    assert failed == ["3-0"]


def test_handlers_that_never_suspend_run_in_one_task() -> None:
    tasks = set()

    async def handle(entry: Entry) -> None:
        tasks.add(asyncio.current_task())

    _handle_all(handle, 50)
    assert len(tasks) < 10


def test_handlers_that_suspend_run_at_once_and_no_more_than_the_limit() -> None:
    now = most = 0

    async def handle(entry: Entry) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1

    _handle_all(handle, 200, concurrency=20)
    assert most == 20


def test_a_slow_handler_does_not_hold_up_the_others() -> None:
    ended: list[str] = []

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(60 if entry.id == "1-0" else 0.01)
        ended.append(entry.id)

    _handle_all(handle, 100, concurrency=5)
    assert ended[-1] == "1-0"


def test_a_handler_of_batches_is_given_several_and_can_judge_each() -> None:
    sizes = []

    class Handler:
        async def handle_batch(self, entries: list[Entry]) -> list[Any]:
            sizes.append(len(entries))
            return [Reject("Odd") if entry.raw_id == b"7-0" else None for entry in entries]

    adapter = _handle_all(Handler, 40, batch_size=10, concurrency=40)
    assert max(sizes) == 10
    assert [(one[0], one[1]) for one in adapter.rejected] == [(b"7-0", "Odd")]
    assert len(adapter.acked) == 39


def test_of_a_batch_that_fails_each_entry_is_tried_by_itself() -> None:
    tried = []

    class Handler:
        async def handle_batch(self, entries: list[Entry]) -> None:
            tried.append([entry.id for entry in entries])
            if any(entry.id == "3-0" for entry in entries):
                raise ValueError

    adapter = _handle_all(Handler, 4, retry=RetryPolicy(max_retries=1))
    assert [len(ids) for ids in tried] == [1, 3, 1, 1, 1]  # the first read is of one entry
    assert [one[0] for one in adapter.rejected] == [b"3-0"]


def test_a_handler_that_keeps_the_loop_lets_it_come_round_between_entries() -> None:
    computed_s, turns = 0.0, 0
    turns_at: list[int] = []

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def handle(entry: Entry) -> None:
        nonlocal computed_s
        computed_s += 0.5
        turns_at.append(turns)

    async def main() -> None:
        adapter = ScriptedAdapter(fresh=entries(50))
        worker = build_worker(adapter, clock=lambda: computed_s, processing_timeout_ms=600_000)
        worker.handler(handle)
        counting = asyncio.create_task(count_turns())
        await work(worker, lambda: len(turns_at) == 50)
        counting.cancel()

    asyncio.run(main())
    assert len(set(turns_at)) == 50


def _list_slots(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Grows by one with every slot that is begun in this loop."""
    made: list[str] = []

    def create(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **options)
        if coroutine.__qualname__ == "Slots._run":
            made.append(task.get_name())
        return task

    loop.set_task_factory(create)
    return made


def _build_slots(handler: Handler, count: int) -> tuple[Slots, InFlight]:
    """Slots for five handlers at once, and so many entries that may start."""
    clock = asyncio.get_running_loop().time
    shared = build_shared(ScriptedAdapter(), WorkerSettings(concurrency=5), Observer(), clock, None)
    arrival = Arrival(STREAM, DeliverySource.NEW, 0.0, Terms(clock, 30.0))
    in_flight = shared.in_flight
    in_flight.accept_plain(STREAM, [Entry(arrival, raw(number)) for number in range(count)])
    in_flight.offer(count)
    in_flight.confirm()
    slots = Slots(shared, handler, ended=lambda entry, outcome: None, wake_exchange=lambda: None)
    return slots, in_flight


@pytest.mark.parametrize("in_batches", [False, True])
def test_no_slot_is_added_at_the_limit_of_running_handlers(in_batches: bool) -> None:
    async def main() -> None:
        made = _list_slots(asyncio.get_running_loop())
        gate = asyncio.Event()

        async def handle_one(entry: Entry) -> None:
            await gate.wait()

        async def handle_many(entries: list[Entry]) -> list[Outcome]:
            await gate.wait()
            return [None] * len(entries)

        handler = Handler(many=handle_many) if in_batches else Handler(one=handle_one)
        slots, in_flight = _build_slots(handler, 1000)
        slots.wake()
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(in_flight.running) == 5 and in_flight.granted
        gate.set()
        assert 0 < len(made) <= 6

    run_virtually(main)


def test_slots_continue_after_a_time_slice_when_their_handlers_suspend() -> None:
    async def handle(entry: Entry) -> None:
        await asyncio.sleep(0.001)

    async def main() -> None:
        made = _list_slots(asyncio.get_running_loop())
        slots, in_flight = _build_slots(Handler(one=handle), 1000)
        slots.wake()
        await until(lambda: len(in_flight.done) == 1000)
        assert 0 < len(made) < 25

    run_virtually(main)
