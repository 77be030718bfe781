"""What a worker sends to Redis, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from pelops.errors import NoSuchGroup, OutcomeUnknown, RedisUnavailable, WrongType
from pelops.worker.engine.retries import RetryPolicy
from pelops.worker.entry import Entry
from pelops.worker.outcomes import Reject, Retry, Undecodable
from pelops.worker.server.adapter import DeliverySource, Outgoing
from tests.unit.scripted_adapter import (
    STREAM,
    ScriptedAdapter,
    build_worker,
    charged,
    loop_time,
    raw,
    run_virtually,
    until,
    work,
)

Handle = Callable[[Entry], Awaitable[Any]]


def _entries(count: int) -> list[Any]:
    return [raw(number) for number in range(1, count + 1)]


def _serve(
    adapter: ScriptedAdapter, handle: Handle, done: Callable[[], Any], **options: Any
) -> int:
    async def main() -> int:
        worker = build_worker(adapter, **options)
        worker.handler(handle)
        return await work(worker, done)

    return run_virtually(main)


def _marks(outgoing: Outgoing) -> set[bytes]:
    return set((outgoing.started_ids or b"").split())


async def _nothing(entry: Entry) -> None:
    """A handler that is done at once."""


# Marks.


@pytest.mark.parametrize("wait_s", [0, 0.01])
def test_a_handler_starts_only_when_its_mark_has_been_answered(wait_s: float) -> None:
    adapter = ScriptedAdapter(fresh=_entries(300))
    unmarked = []

    async def handle(entry: Entry) -> None:
        said = [one for one in adapter.said if one.started_ids is not None]
        if not any(entry.raw_id in _marks(one) for one in said):
            unmarked.append(entry.id)
        if wait_s:
            await asyncio.sleep(wait_s)

    _serve(adapter, handle, lambda: len(adapter.acked) == 300, concurrency=10)
    assert unmarked == []


def test_with_slow_handlers_exactly_the_running_entries_are_recorded_as_started() -> None:
    adapter = ScriptedAdapter(fresh=_entries(100))
    running: set[bytes] = set()
    ahead = []

    async def handle(entry: Entry) -> None:
        running.add(entry.raw_id)
        await asyncio.sleep(1)
        running.discard(entry.raw_id)

    def look(outgoing: Outgoing) -> None:
        if len(adapter.acked) >= 20:
            ahead.append(len(_marks(outgoing)))

    adapter.on_exchange = look
    _serve(adapter, handle, lambda: len(adapter.acked) == 100, concurrency=10)
    assert max(ahead) <= 10


def test_an_entry_that_failed_before_runs_in_isolation() -> None:
    adapter = ScriptedAdapter(
        fresh=[*_entries(5), charged(6), *[raw(n) for n in (7, 8)], charged(9)]
    )
    running: set[str] = set()
    beside: dict[str, set[str]] = {}

    async def handle(entry: Entry) -> None:
        running.add(entry.id)
        for one in running:
            beside.setdefault(one, set()).update(running)
        await asyncio.sleep(0.5)
        running.discard(entry.id)

    _serve(adapter, handle, lambda: len(adapter.acked) == 9)
    assert beside["6-0"] == {"6-0"} and beside["9-0"] == {"9-0"}
    assert max(len(others) for others in beside.values()) > 1
    isolated = [_marks(one) for one in adapter.said if b"6-0" in _marks(one)]
    assert isolated and all(started_ids == {b"6-0"} for started_ids in isolated)


def test_nothing_is_read_before_what_runs_alone_has_ended() -> None:
    """If it ends the process, what was read meanwhile would get stuck with it, time after time."""
    adapter = ScriptedAdapter(fresh=[raw(1, deliveries=2)])
    while_it_ran: list[bytes] = []

    async def handle(entry: Entry) -> None:
        if entry.id != "1-0":
            return
        adapter.fresh += [raw(n, deliveries=2) for n in (2, 3)] + [raw(4)]
        await asyncio.sleep(5)
        while_it_ran.extend(adapter.pending)

    _serve(adapter, handle, lambda: len(adapter.acked) == 4)
    assert while_it_ran == [b"1-0"]


def test_an_entry_that_was_delivered_again_and_again_runs_alone() -> None:
    adapter = ScriptedAdapter(fresh=[raw(1, deliveries=2), raw(2), raw(3)])
    running, most = set(), []

    async def handle(entry: Entry) -> None:
        running.add(entry.id)
        if "1-0" in running:
            most.append(len(running))
        await asyncio.sleep(1)
        running.discard(entry.id)

    _serve(adapter, handle, lambda: len(adapter.acked) == 3)
    assert most == [1]


def test_an_entry_that_ended_a_former_process_stays_recorded_as_started() -> None:
    adapter = ScriptedAdapter(fresh=_entries(2), history=[raw(7), raw(8)], left=frozenset({b"7-0"}))
    _serve(adapter, _nothing, lambda: len(adapter.acked) == 3)
    assert sorted(adapter.acked) == [b"1-0", b"2-0", b"8-0"]
    assert all(b"7-0" in _marks(one) for one in adapter.said if one.started_ids is not None)


def test_a_skipped_entry_is_handled_when_it_is_delivered_again() -> None:
    adapter = ScriptedAdapter(
        fresh=[raw(7, deliveries=1)], left=frozenset({b"7-0"}), source=DeliverySource.HANDED_OVER
    )
    _serve(adapter, _nothing, lambda: adapter.acked == [b"7-0"])
    assert b"7-0" not in _marks(adapter.said[-1])


# Acknowledgements.


def test_acknowledgements_travel_together() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1000))
    _serve(adapter, _nothing, lambda: len(adapter.acked) == 1000)
    assert len(adapter.said) < 50


def test_an_acknowledgement_whose_answer_was_lost_is_said_again() -> None:
    adapter = ScriptedAdapter(
        fresh=_entries(1), errors=[None, OutcomeUnknown("cut"), OutcomeUnknown("")]
    )
    runs = []

    async def handle(entry: Entry) -> None:
        runs.append(entry.id)

    _serve(adapter, handle, lambda: adapter.acked)
    assert runs == ["1-0"]
    assert adapter.acked == [b"1-0"]


def test_an_entry_that_comes_again_while_it_is_held_runs_once() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    runs = []

    async def handle(entry: Entry) -> None:
        runs.append(entry.id)
        adapter.history = [raw(1, deliveries=1)]
        adapter.epoch += 1  # a connection was lost
        await asyncio.sleep(5)

    _serve(adapter, handle, lambda: adapter.acked)
    assert runs == ["1-0"]


def test_what_was_not_refreshed_for_long_is_acknowledged_only_after_a_look() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    stopped_s = [0.0]

    async def main() -> None:
        worker = build_worker(adapter, processing_timeout_ms=30_000)
        worker._clock = lambda: loop_time() + stopped_s[0]

        @worker.handler
        async def handle(entry: Entry) -> None:
            stopped_s[0] = 100  # SIGSTOP, SIGCONT
            adapter.lost = {entry.raw_id}

        await work(worker, lambda: len(adapter.said) > 1)

    run_virtually(main)
    assert adapter.acked == []
    assert not any(one.acks for one in adapter.said)
    assert any(one.checked_acks for one in adapter.said)


def test_after_a_group_was_lost_nothing_is_acknowledged_without_a_look() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1), errors=[None, NoSuchGroup("gone")])
    _serve(adapter, _nothing, lambda: adapter.acked)
    assert [bool(one.checked_acks) for one in adapter.said if one.acks or one.checked_acks] == [
        False,
        True,
    ]


# Heartbeats.


def test_all_that_is_held_is_refreshed_within_half_of_the_limit() -> None:
    """Entries that run, entries that wait for a slot, and entries that wait for their backoff."""
    adapter = ScriptedAdapter(fresh=_entries(4))
    refreshed: dict[bytes, list[float]] = {}

    def note(outgoing: Outgoing) -> None:
        for one in outgoing.keeps.get(STREAM, ()):
            refreshed.setdefault(one, []).append(loop_time())

    async def handle(entry: Entry) -> None:
        if entry.id == "1-0" and entry.attempt == 1:
            raise Retry(after=100)
        await asyncio.sleep(100)

    adapter.on_exchange = note
    _serve(
        adapter,
        handle,
        lambda: loop_time() > 90,
        concurrency=2,
        processing_timeout_ms=30_000,
        grace_s=0,
    )
    assert set(refreshed) == {b"1-0", b"2-0", b"3-0"}  # the fourth was never asked for
    for times in refreshed.values():
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert min(gaps) > 9 and max(gaps) < 15


def test_a_handler_is_cancelled_when_its_entry_belongs_to_another_worker() -> None:
    adapter = ScriptedAdapter(fresh=_entries(2), lost={b"1-0"})
    ends = []

    async def handle(entry: Entry) -> None:
        try:
            await asyncio.sleep(12)
        except asyncio.CancelledError:
            ends.append((entry.id, entry.is_disowned))
            raise

    _serve(adapter, handle, lambda: ends and adapter.acked, processing_timeout_ms=30_000)
    assert ends == [("1-0", True)]
    assert adapter.acked == [b"2-0"]


def test_a_disowned_entry_is_never_acknowledged() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1), lost={b"1-0"})
    ends = []

    async def handle(entry: Entry) -> None:
        try:
            await asyncio.sleep(12)
        except asyncio.CancelledError:
            ends.append(entry.id)

    _serve(adapter, handle, lambda: ends, processing_timeout_ms=30_000)
    assert adapter.acked == [] and adapter.rejected == []


# Failures.


def test_a_failed_entry_runs_again_here_after_its_backoff() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    times = []

    async def handle(entry: Entry) -> None:
        times.append(loop_time())
        if entry.attempt < 3:
            raise ValueError("not yet")

    _serve(adapter, handle, lambda: adapter.acked, retry=RetryPolicy(initial_s=2, factor=5))
    assert [round(later - sooner) for sooner, later in pairwise(times)] == [
        2,
        10,
    ]


def test_an_entry_beyond_max_retries_becomes_a_dead_letter_with_its_error() -> None:
    adapter = ScriptedAdapter(fresh=[charged(5, 2)])

    async def handle(entry: Entry) -> None:
        raise ValueError("no such order")

    _serve(adapter, handle, lambda: adapter.rejected, retry=RetryPolicy(max_retries=3))
    assert adapter.rejected == [(b"5-0", "HandlerFailed", "ValueError: no such order")]
    assert adapter.acked == []


def test_an_entry_too_large_for_a_dead_letter_stays_pending() -> None:
    adapter = ScriptedAdapter(fresh=[raw(1, b"f", b"v" * 5_000), raw(2, b"f", b"v")])

    async def handle(entry: Entry) -> None:
        raise Reject("Fraud", "a known card")

    _serve(adapter, handle, lambda: adapter.rejected, max_entry_bytes=4_096)
    assert adapter.rejected == [(b"2-0", "Fraud", "a known card")]
    assert adapter.acked == []


@pytest.mark.parametrize("raises", [True, False])
def test_a_handler_can_ask_for_a_retry_and_for_a_dead_letter(raises: bool) -> None:
    adapter = ScriptedAdapter(fresh=_entries(2))
    runs = []

    async def handle(entry: Entry) -> Any:
        runs.append((entry.id, round(loop_time())))
        said: Any = Retry(after=40) if entry.id == "1-0" and entry.attempt == 1 else None
        said = Reject("Fraud", "a known card") if entry.id == "2-0" else said
        if raises and said:
            raise said
        return said

    _serve(adapter, handle, lambda: adapter.rejected and adapter.acked)
    assert adapter.rejected == [(b"2-0", "Fraud", "a known card")]
    assert runs[-1] == ("1-0", 40)


def test_a_retry_that_does_not_count_goes_on_for_ever() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    attempts = []

    async def handle(entry: Entry) -> None:
        attempts.append(entry.attempt)
        if len(attempts) < 20:
            raise Retry(after=1, counts=False)

    _serve(adapter, handle, lambda: adapter.acked)
    assert attempts == [1] * 20


def test_an_undecodable_entry_becomes_a_dead_letter_and_others_continue() -> None:
    adapter = ScriptedAdapter(fresh=[raw(1, b"order", b"{"), raw(2, b"order", b'{"a": 1}')])

    async def handle(entry: Entry) -> None:
        assert entry.json("order") == {"a": 1}

    _serve(adapter, handle, lambda: adapter.rejected and adapter.acked)
    assert adapter.rejected[0][:2] == (b"1-0", Undecodable("").reason)


def test_a_dead_letter_that_redis_refuses_is_tried_until_it_is_there() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    refusals = [RedisUnavailable("OOM"), OutcomeUnknown("cut")]
    reject = adapter.reject

    async def refuse(*args: Any, **named: Any) -> bool:
        if refusals:
            raise refusals.pop()
        return await reject(*args, **named)

    adapter.reject = refuse  # type: ignore[method-assign]

    async def handle(entry: Entry) -> None:
        raise Reject

    _serve(adapter, handle, lambda: adapter.rejected)
    assert len(adapter.rejected) == 1


def test_a_disowned_entry_becomes_no_dead_letter() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1), lost={b"1-0"})
    runs = []

    async def handle(entry: Entry) -> None:
        runs.append(entry.id)
        raise Reject

    _serve(adapter, handle, lambda: runs and loop_time() > 5)
    assert adapter.rejected == [] and adapter.acked == []


def test_a_handler_that_hangs_is_cancelled_and_its_entry_has_failed() -> None:
    adapter = ScriptedAdapter(fresh=_entries(3))

    async def handle(entry: Entry) -> None:
        if entry.id == "1-0":
            await asyncio.sleep(10_000)

    policy = RetryPolicy(max_retries=1)
    _serve(adapter, handle, lambda: adapter.rejected, timeout_s=5, retry=policy)
    assert adapter.rejected == [
        (b"1-0", "HandlerFailed", "TimeoutError: the handler took longer than 5 s")
    ]
    assert sorted(adapter.acked) == [b"2-0", b"3-0"]


def test_a_handler_that_ignores_cancellation_frees_its_slot() -> None:
    adapter = ScriptedAdapter(fresh=_entries(3))
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


# Order.


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

    _serve(
        adapter, handle, lambda: len(adapter.acked) == 30, order_by=lambda entry: entry["customer"]
    )
    assert not any(overlaps)
    assert all(numbers == sorted(numbers) for numbers in ended.values())
    assert len(ended) == 3


# The server.


def test_the_own_history_comes_before_anything_new_and_again_after_a_reconnect() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1), history=[raw(8), raw(9)])

    async def main() -> None:
        worker = build_worker(adapter)
        worker.handler(_nothing)
        serving = asyncio.create_task(worker.serve())
        await until(lambda: len(adapter.acked) == 3)
        assert (
            adapter.calls.index("begin")
            < adapter.calls.index("history")
            < adapter.calls.index("read")
        )
        adapter.history = [raw(10)]
        adapter.epoch += 1
        await until(lambda: len(adapter.acked) == 4)
        worker.stop()
        await serving

    run_virtually(main)


def test_a_group_that_is_missing_is_waited_for() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    refusals = [NoSuchGroup("gone")] * 20
    read = adapter.read

    async def refuse(count: int, block_ms: int) -> Any:
        if refusals:
            raise refusals.pop()
        return await read(count, block_ms)

    adapter.read = refuse  # type: ignore[method-assign]
    _serve(adapter, _nothing, lambda: adapter.acked)


def test_a_server_that_does_not_answer_at_the_start_is_waited_for() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    refusals = [RedisUnavailable("connection refused")] * 3
    begin = adapter.begin

    async def refuse() -> Any:
        if refusals:
            raise refusals.pop()
        return await begin()

    adapter.begin = refuse  # type: ignore[method-assign]
    _serve(adapter, _nothing, lambda: adapter.acked)


def test_what_waiting_does_not_help_ends_the_worker_at_its_start() -> None:
    adapter = ScriptedAdapter()

    async def refuse() -> Any:
        raise WrongType("orders holds a hash", key="orders", found="hash")

    adapter.begin = refuse  # type: ignore[method-assign]
    with pytest.raises(WrongType):
        _serve(adapter, _nothing, lambda: False)
    assert adapter.calls[-1] == "close"


# The end.


def test_a_worker_that_stops_finishes_what_runs_and_hands_back_the_rest() -> None:
    adapter = ScriptedAdapter(fresh=_entries(10))
    ended = []

    async def main() -> int:
        worker = build_worker(adapter, concurrency=2, prefetch=10)

        @worker.handler
        async def handle(entry: Entry) -> None:
            await asyncio.sleep(10)
            ended.append(entry.raw_id)

        serving = asyncio.create_task(worker.serve())
        await until(lambda: worker.describe().startswith("handlers running: 2;"))
        worker.stop()
        return await serving

    assert run_virtually(main) == 0
    assert sorted(ended) == sorted(adapter.acked)
    assert len(ended) == 2
    assert set(adapter.released) == adapter.pending  # whatever had been delivered
    assert adapter.calls[-2:] == ["leave", "close"]


def test_failed_entries_in_backoff_are_released_at_the_end() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))
    runs = []

    async def handle(entry: Entry) -> None:
        runs.append(entry.id)
        raise Retry(after=1000)

    _serve(adapter, handle, lambda: runs)
    assert adapter.released == [b"1-0"]


def test_handlers_beyond_the_grace_period_are_cancelled_and_their_entries_released() -> None:
    adapter = ScriptedAdapter(fresh=_entries(2))
    cancelled_at = []

    async def handle(entry: Entry) -> None:
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            cancelled_at.append(round(loop_time()))
            raise

    started = _serve(
        adapter, handle, lambda: loop_time() > 1, grace_s=20, processing_timeout_ms=600_000
    )
    assert started == 0
    assert cancelled_at == [21, 21]
    assert sorted(adapter.released) == [b"1-0", b"2-0"] and adapter.acked == []


def test_the_last_word_is_one_exchange_and_names_nothing_as_started() -> None:
    adapter = ScriptedAdapter(fresh=_entries(5))
    said_before = []

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(3)
        said_before.append(len(adapter.said))

    _serve(adapter, handle, lambda: loop_time() > 1, acknowledge_s=10, acknowledge_count=100)
    assert len(adapter.acked) == 5
    assert len(adapter.said) - max(said_before) == 1
    assert adapter.said[-1].started_ids == b""


def test_a_second_stop_does_not_wait_for_handlers() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))

    async def main() -> float:
        worker = build_worker(adapter, grace_s=1000, processing_timeout_ms=10_000_000)

        @worker.handler
        async def handle(entry: Entry) -> None:
            await asyncio.sleep(10_000)

        serving = asyncio.create_task(worker.serve())
        await until(lambda: worker.describe().startswith("handlers running: 1;"))
        worker.stop()
        await asyncio.sleep(5)
        worker.stop()
        await serving
        return loop_time()

    assert run_virtually(main) < 20


@pytest.mark.parametrize(("raised", "code"), [(SystemExit(7), 7), (KeyboardInterrupt(), 130)])
def test_a_handler_that_ends_the_process_ends_it_in_good_order(raised: Any, code: int) -> None:
    adapter = ScriptedAdapter(fresh=_entries(3))

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(1)
        if entry.id == "2-0":
            raise raised

    assert _serve(adapter, handle, lambda: False) == code
    assert sorted(adapter.acked) == [b"1-0", b"3-0"]
    assert adapter.released == [b"2-0"]


def test_an_application_that_cancels_a_worker_finds_it_wound_down() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))

    async def main() -> None:
        worker = build_worker(adapter)

        @worker.handler
        async def handle(entry: Entry) -> None:
            await asyncio.sleep(3)

        serving = asyncio.create_task(worker.serve())
        await until(lambda: worker.describe().startswith("handlers running: 1;"))
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    run_virtually(main)
    assert adapter.acked == [b"1-0"] and adapter.calls[-1] == "close"


def test_an_unavailable_redis_does_not_keep_the_process_from_ending() -> None:
    adapter = ScriptedAdapter(fresh=_entries(1))

    async def handle(entry: Entry) -> None:
        adapter.errors = [RedisUnavailable("down")] * 10_000

    async def main() -> tuple[int, float]:
        worker = build_worker(adapter, grace_s=1)
        worker.handler(handle)
        code = await work(worker, lambda: adapter.errors)
        return code, loop_time()

    code, ended_s = run_virtually(main)
    assert code == 0 and ended_s < 15
    assert adapter.acked == []
