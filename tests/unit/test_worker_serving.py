"""What becomes of entries in a worker: failures, order, refusals of the server, and the end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from pelops.errors import NoSuchGroup, OutcomeUnknown, RedisUnavailable, WrongType
from pelops.worker import Worker
from pelops.worker.engine.retries import RetryPolicy
from pelops.worker.entry import Entry
from pelops.worker.outcomes import Reject, Retry, Undecodable
from tests.unit.scripted_adapter import (
    ScriptedAdapter,
    build_worker,
    charged,
    entries,
    loop_time,
    nothing,
    raw,
    run_virtually,
    serve,
    until,
    work,
)

# Failures.


def test_a_failed_entry_runs_again_here_after_its_backoff() -> None:
    adapter = ScriptedAdapter(fresh=entries(1))
    times = []

    async def handle(entry: Entry) -> None:
        times.append(loop_time())
        if entry.attempt < 3:
            raise ValueError("not yet")

    serve(adapter, handle, lambda: adapter.acked, retry=RetryPolicy(initial_s=2, factor=5))
    assert [round(later - sooner) for sooner, later in pairwise(times)] == [2, 10]


def test_an_entry_beyond_max_retries_becomes_a_dead_letter_with_its_error() -> None:
    adapter = ScriptedAdapter(fresh=[charged(5, 2)])

    async def handle(entry: Entry) -> None:
        raise ValueError("no such order")

    serve(adapter, handle, lambda: adapter.rejected, retry=RetryPolicy(max_retries=3))
    assert adapter.rejected == [(b"5-0", "HandlerFailed", "ValueError: no such order")]
    assert adapter.acked == []


def test_an_entry_too_large_for_a_dead_letter_stays_pending() -> None:
    adapter = ScriptedAdapter(fresh=[raw(1, b"f", b"v" * 5_000), raw(2, b"f", b"v")])

    async def handle(entry: Entry) -> None:
        raise Reject("Fraud", "a known card")

    serve(adapter, handle, lambda: adapter.rejected, max_entry_bytes=4_096)
    assert adapter.rejected == [(b"2-0", "Fraud", "a known card")]
    assert adapter.acked == []


@pytest.mark.parametrize("raises", [True, False])
def test_a_handler_can_ask_for_a_retry_and_for_a_dead_letter(raises: bool) -> None:
    adapter = ScriptedAdapter(fresh=entries(2))
    runs = []

    async def handle(entry: Entry) -> Any:
        runs.append((entry.id, round(loop_time())))
        said: Any = Retry(after=40) if entry.id == "1-0" and entry.attempt == 1 else None
        said = Reject("Fraud", "a known card") if entry.id == "2-0" else said
        if raises and said:
            raise said
        return said

    serve(adapter, handle, lambda: adapter.rejected and adapter.acked)
    assert adapter.rejected == [(b"2-0", "Fraud", "a known card")]
    assert runs[-1] == ("1-0", 40)


def test_a_retry_that_does_not_count_goes_on_for_ever() -> None:
    adapter = ScriptedAdapter(fresh=entries(1))
    attempts = []

    async def handle(entry: Entry) -> None:
        attempts.append(entry.attempt)
        if len(attempts) < 20:
            raise Retry(after=1, counts=False)

    serve(adapter, handle, lambda: adapter.acked)
    assert attempts == [1] * 20


def test_an_undecodable_entry_becomes_a_dead_letter_and_others_continue() -> None:
    adapter = ScriptedAdapter(fresh=[raw(1, b"order", b"{"), raw(2, b"order", b'{"a": 1}')])

    async def handle(entry: Entry) -> None:
        assert entry.json("order") == {"a": 1}

    serve(adapter, handle, lambda: adapter.rejected and adapter.acked)
    assert adapter.rejected[0][:2] == (b"1-0", Undecodable("").reason)


def test_a_handler_that_hangs_is_cancelled_and_its_entry_has_failed() -> None:
    adapter = ScriptedAdapter(fresh=entries(3))

    async def handle(entry: Entry) -> None:
        if entry.id == "1-0":
            await asyncio.sleep(10_000)

    policy = RetryPolicy(max_retries=1)
    serve(adapter, handle, lambda: adapter.rejected, timeout_s=5, retry=policy)
    error = "TimeoutError: the handler took longer than 5 s"
    assert adapter.rejected == [(b"1-0", "HandlerFailed", error)]
    assert sorted(adapter.acked) == [b"2-0", b"3-0"]


def test_a_handler_that_ignores_cancellation_frees_its_slot() -> None:
    adapter = ScriptedAdapter(fresh=entries(3))
    ends = False

    async def handle(entry: Entry) -> None:
        while entry.id == "1-0" and not ends:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        nonlocal ends
        worker = build_worker(adapter, timeout_s=5, concurrency=1, grace_s=0)
        worker.handler(handle)
        await work(worker, lambda: len(adapter.acked) == 2)
        ends = True
        await asyncio.sleep(2)

    run_virtually(main)
    assert adapter.acked == [b"2-0", b"3-0"]


def test_entries_with_equal_keys_run_in_order_even_after_a_failure() -> None:
    adapter = ScriptedAdapter(fresh=[raw(n, b"customer", b"%d" % (n % 3)) for n in range(1, 31)])
    running: set[bytes] = set()
    ended: dict[bytes, list[int]] = {}
    overlaps = []

    async def handle(entry: Entry) -> None:
        key = entry["customer"]
        overlaps.append(key in running)
        running.add(key)
        await asyncio.sleep(0.1)
        running.discard(key)
        if entry.id == "4-0" and entry.attempt == 1:
            raise ValueError
        ended.setdefault(key, []).append(int(entry.id[:-2]))

    done = adapter.acked
    serve(adapter, handle, lambda: len(done) == 30, order_by=lambda entry: entry["customer"])
    assert not any(overlaps)
    assert all(numbers == sorted(numbers) for numbers in ended.values())
    assert len(ended) == 3


# The server.


def _refuse(adapter: ScriptedAdapter, call: str, *errors: Exception) -> None:
    """Let a call fail with each of these errors before it works."""
    waiting, works = list(errors), getattr(adapter, call)

    async def refuse(*args: Any, **named: Any) -> Any:
        if waiting:
            raise waiting.pop(0)
        return await works(*args, **named)

    setattr(adapter, call, refuse)


@pytest.mark.parametrize(
    ("call", "errors"),
    [
        pytest.param("begin", [RedisUnavailable("refused")] * 3, id="no server at the start"),
        pytest.param("read", [NoSuchGroup("gone")] * 20, id="no group"),
        pytest.param(
            "reject", [OutcomeUnknown("cut"), RedisUnavailable("OOM")], id="no room for a letter"
        ),
    ],
)
def test_a_call_that_redis_refuses_is_tried_until_it_works(
    call: str, errors: list[Exception]
) -> None:
    adapter = ScriptedAdapter(fresh=entries(2))
    _refuse(adapter, call, *errors)

    async def handle(entry: Entry) -> None:
        if entry.id == "1-0":
            raise Reject

    serve(adapter, handle, lambda: adapter.rejected and adapter.acked)
    assert [rejected[0] for rejected in adapter.rejected] == [b"1-0"]
    assert adapter.acked == [b"2-0"]


def test_what_waiting_does_not_help_ends_the_worker_at_its_start() -> None:
    adapter = ScriptedAdapter()
    _refuse(adapter, "begin", WrongType("orders holds a hash", key="orders", found="hash"))
    with pytest.raises(WrongType):
        serve(adapter, nothing)
    assert adapter.calls[-1] == "close"


def test_the_own_history_comes_first_at_the_start_and_after_a_reconnect() -> None:
    adapter = ScriptedAdapter(fresh=entries(1), history=[raw(8), raw(9)])

    async def main() -> None:
        worker = build_worker(adapter)
        worker.handler(nothing)
        serving = asyncio.create_task(worker.serve())
        await until(lambda: len(adapter.acked) == 3)
        firsts = [adapter.calls.index(call) for call in ("begin", "history", "read")]
        assert firsts == sorted(firsts)
        adapter.history = [raw(10)]
        adapter.epoch += 1
        await until(lambda: len(adapter.acked) == 4)
        worker.stop()
        await serving

    run_virtually(main)


# The end.


async def _begin(
    adapter: ScriptedAdapter, handle: Any, running: int, **options: Any
) -> tuple[Worker, asyncio.Task[int]]:
    """A worker and its task, once it runs so many handlers."""
    worker = build_worker(adapter, **options)
    worker.handler(handle)
    serving = asyncio.create_task(worker.serve())
    await until(lambda: worker.describe().startswith(f"handlers running: {running};"))
    return worker, serving


def test_a_worker_that_stops_finishes_what_runs_and_hands_back_the_rest() -> None:
    adapter = ScriptedAdapter(fresh=entries(10))
    ended = []

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(10)
        ended.append(entry.raw_id)

    async def main() -> int:
        worker, serving = await _begin(adapter, handle, 2, concurrency=2, prefetch=10)
        worker.stop()
        return await serving

    assert run_virtually(main) == 0
    assert sorted(ended) == sorted(adapter.acked)
    assert len(ended) == 2
    assert set(adapter.released) == adapter.pending  # whatever had been delivered
    assert adapter.calls[-2:] == ["leave", "close"]


def test_failed_entries_in_backoff_are_released_at_the_end() -> None:
    adapter = ScriptedAdapter(fresh=entries(1))
    runs = []

    async def handle(entry: Entry) -> None:
        runs.append(entry.id)
        raise Retry(after=1000)

    serve(adapter, handle, lambda: runs)
    assert adapter.released == [b"1-0"]


def test_after_the_grace_period_handlers_are_cancelled_and_their_entries_released() -> None:
    adapter = ScriptedAdapter(fresh=entries(2))
    cancelled_at = []

    async def handle(entry: Entry) -> None:
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            cancelled_at.append(round(loop_time()))
            raise

    timing = {"grace_s": 20, "processing_timeout_ms": 600_000}
    assert serve(adapter, handle, lambda: loop_time() > 1, **timing) == 0
    assert cancelled_at == [21, 21]
    assert sorted(adapter.released) == [b"1-0", b"2-0"] and adapter.acked == []


def test_the_last_exchange_names_nothing_as_started() -> None:
    adapter = ScriptedAdapter(fresh=entries(5))
    said_before = []

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(3)
        said_before.append(len(adapter.said))

    serve(adapter, handle, lambda: loop_time() > 1, acknowledge_s=10, acknowledge_count=100)
    assert len(adapter.acked) == 5
    assert len(adapter.said) - max(said_before) == 1
    assert adapter.said[-1].started_ids == b""


def test_a_second_stop_does_not_wait_for_handlers() -> None:
    async def handle(entry: Entry) -> None:
        await asyncio.sleep(10_000)

    async def main() -> float:
        timing = {"grace_s": 1000, "processing_timeout_ms": 10_000_000}
        worker, serving = await _begin(ScriptedAdapter(fresh=entries(1)), handle, 1, **timing)
        worker.stop()
        await asyncio.sleep(5)
        worker.stop()
        await serving
        return loop_time()

    assert run_virtually(main) < 20


@pytest.mark.parametrize(("raised", "code"), [(SystemExit(7), 7), (KeyboardInterrupt(), 130)])
def test_a_handler_that_ends_the_process_ends_it_in_good_order(raised: Any, code: int) -> None:
    adapter = ScriptedAdapter(fresh=entries(3))

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(1)
        if entry.id == "2-0":
            raise raised

    assert serve(adapter, handle) == code
    assert sorted(adapter.acked) == [b"1-0", b"3-0"]
    assert adapter.released == [b"2-0"]


def test_an_application_that_cancels_a_worker_finds_it_wound_down() -> None:
    adapter = ScriptedAdapter(fresh=entries(1))

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(3)

    async def main() -> None:
        _, serving = await _begin(adapter, handle, 1)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    run_virtually(main)
    assert adapter.acked == [b"1-0"] and adapter.calls[-1] == "close"


def test_an_unavailable_redis_does_not_keep_the_process_from_ending() -> None:
    adapter = ScriptedAdapter(fresh=entries(1))

    async def handle(entry: Entry) -> None:
        adapter.errors = [RedisUnavailable("down")] * 10_000

    async def main() -> tuple[int, float]:
        worker = build_worker(adapter, grace_s=1)
        worker.handler(handle)
        return await work(worker, lambda: adapter.errors), loop_time()

    code, ended_s = run_virtually(main)
    assert code == 0 and ended_s < 15
    assert adapter.acked == []
