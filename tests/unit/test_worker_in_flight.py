"""How much a worker takes, which of it runs next, and what it asks before it starts an entry."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.worker.engine.exchange import ExchangeAdditions, build_outgoing, decide_ahead
from pelops.worker.engine.in_flight import InFlight
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.prefetch import DeliveryReceiver, FinishRate, Prefetcher, Sizes
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.handlers import Threads, outcomes_of_batch
from pelops.worker.server.adapter import Delivered, DeliverySource
from tests.unit.scripted_adapter import STREAM, raw

TASK: Any = object()


TERMS = Terms(lambda: 0.0, 30.0)


def _entry(number: int, *, stamp_s: float = 0.0, key: bytes = b"orders") -> Entry:
    return Entry(Arrival(key, DeliverySource.NEW, stamp_s, TERMS), raw(number))


def _additions(grant: int) -> ExchangeAdditions:
    return ExchangeAdditions(left=(), started_ids=None, grant=grant, grant_at_once=grant, read=0)


def _prefetcher(**given: int) -> Prefetcher:
    prefetcher = Prefetcher(
        **{"concurrency": 10, "prefetch": 1000, "prefetch_bytes": 10_000, **given}
    )
    prefetcher.sizes.count(1, 10)
    return prefetcher


@pytest.mark.parametrize(
    ("options", "sizes", "held", "per_s", "room"),
    [
        pytest.param({}, (), 0, 0.5, 11, id="a slow worker"),
        pytest.param({}, (), 11, 0.5, 0, id="a slow worker that holds enough"),
        pytest.param({}, (), 0, 1000, 210, id="a fast worker: a fraction of a second"),
        pytest.param({"prefetch": 50}, (), 0, 1000, 60, id="at most the configured entries"),
        pytest.param({}, (50_000,), 0, 1000, 1, id="large entries one by one"),
        pytest.param({}, (50_000,), 1, 1000, 0, id="a large entry is held"),
    ],
)
def test_a_worker_takes_what_it_can_soon_run(
    options: dict[str, int], sizes: tuple[int, ...], held: int, per_s: float, room: int
) -> None:
    prefetcher = _prefetcher(**options)
    for size in sizes:
        prefetcher.sizes.count(1, size)
    assert prefetcher.room(held=held, waiting=0, per_s=per_s) == room


def test_the_first_read_requests_one_entry_regardless_of_free_room() -> None:
    prefetcher = Prefetcher(concurrency=100, prefetch=1000, prefetch_bytes=1_000_000)
    assert prefetcher.room(held=0, waiting=0, per_s=0.0) == 1
    assert prefetcher.room(held=1, waiting=0, per_s=0.0) == 0
    prefetcher.sizes.count(1, 200)
    assert prefetcher.room(held=0, waiting=0, per_s=0.0) == 100


def test_entries_in_backoff_leave_room_for_others_up_to_a_limit() -> None:
    prefetcher = _prefetcher(prefetch=20, prefetch_bytes=10**9)
    assert prefetcher.room(held=0, waiting=199, per_s=0) > 0
    assert prefetcher.room(held=0, waiting=200, per_s=0) == 0


def test_the_rate_follows_what_is_finished() -> None:
    pace = FinishRate(0.0)
    for step in range(1, 40):
        pace.count(100, step * 0.1)
    assert 900 < pace.per_s < 1100
    pace.count(0, 100.0)
    assert pace.per_s == 0


def test_the_rate_is_known_in_full_soon_after_the_beginning() -> None:
    pace = FinishRate(0.0)
    pace.count(100, 0.02)
    assert pace.per_s == pytest.approx(5000)
    pace.count(100, 0.04)
    assert pace.per_s == pytest.approx(5000)


@pytest.mark.parametrize(
    ("concurrency", "handler_s", "ahead"),
    [(100, 0.00001, 300), (100, 0.001, 100), (100, 0.01, 0), (1, 1.0, 0), (1000, 0.0, 300)],
)
def test_only_quick_handlers_are_granted_ahead(
    concurrency: int, handler_s: float, ahead: int
) -> None:
    assert decide_ahead(concurrency, handler_s) == ahead


def test_entries_that_cannot_be_recorded_as_started_keep_their_order() -> None:
    in_flight = InFlight(10)
    for number in range(1, 6):
        in_flight.accept(_entry(number))
    in_flight.offer(3)
    in_flight.withdraw()
    assert [entry.id for entry in in_flight.offer(10)] == ["1-0", "2-0", "3-0", "4-0", "5-0"]


def test_isolated_entries_and_others_take_turns() -> None:
    in_flight = InFlight(10)
    for number in (1, 2):
        in_flight.accept(_entry(number), isolated=True)
    for number in (3, 4):
        in_flight.accept(_entry(number))
    order = []
    while in_flight.may_grant:
        order.append([entry.id for entry in in_flight.offer(10)])
        in_flight.confirm()
        while (entry := in_flight.start(TASK, 0.0)) is not None:
            in_flight.finish(entry)
    assert order == [["1-0"], ["3-0", "4-0"], ["2-0"]]


def test_the_same_id_on_two_streams_is_two_entries() -> None:
    in_flight = InFlight(10)
    assert in_flight.accept(_entry(1)) and in_flight.accept(_entry(1, key=b"retry"))
    assert not in_flight.accept(_entry(1))
    assert len(in_flight) == 2


def test_heartbeats_are_sent_for_old_entries_in_order_of_delivery() -> None:
    in_flight = InFlight(10)
    for number in range(1, 6):
        in_flight.accept(_entry(number, stamp_s=number))
    due = in_flight.due_for_refresh(3.0, 10)
    assert [entry.id for entry in due] == ["1-0", "2-0", "3-0"]
    in_flight.refreshed(due[:2], 9.0)
    due = in_flight.due_for_refresh(100, 10)
    assert [entry.id for entry in due] == ["3-0", "4-0", "5-0", "1-0", "2-0"]
    assert in_flight.due_for_refresh(2.999, 10) == []


def test_old_knowledge_is_checked_and_young_is_not() -> None:
    in_flight = InFlight(10)
    for number, stamp_s in ((1, 0.0), (2, 95.0)):
        in_flight.accept(_entry(number, stamp_s=stamp_s))
    in_flight.offer(10)
    in_flight.confirm()
    while (entry := in_flight.start(TASK, 96.0)) is not None:
        in_flight.finish(entry)
    said = build_outgoing(in_flight, _additions(10), 100.0, 30.0).outgoing
    assert said.acks == {b"orders": [b"2-0"]}
    assert said.checked_acks == {b"orders": [b"1-0"]}
    assert said.keeps == {}


# An entry that arrived late may belong to another worker: it is asked for before it runs.

NOW_S, IDLE_S = 10.0, 3.0


@pytest.mark.parametrize(
    ("stamps_s", "asked"),
    [
        pytest.param([NOW_S, NOW_S - IDLE_S], [b"2-0"], id="a late entry behind a fresh one"),
        pytest.param(
            [NOW_S - IDLE_S] * 500, [b"%d-0" % number for number in range(1, 501)], id="all late"
        ),
    ],
)
def test_a_late_entry_is_confirmed_once_before_it_starts(
    stamps_s: list[float], asked: list[bytes]
) -> None:
    in_flight = InFlight(concurrency=1000)
    for number, stamp_s in enumerate(stamps_s, start=1):
        in_flight.accept(_entry(number, stamp_s=stamp_s))
    sent = build_outgoing(in_flight, _additions(1000), NOW_S, IDLE_S)
    assert list(sent.outgoing.keeps[b"orders"]) == asked
    assert [entry.raw_id for entry in sent.kept] == asked


def test_what_was_granted_before_a_long_stop_does_not_start_unasked() -> None:
    in_flight = InFlight(concurrency=10, idle_s=IDLE_S)
    held, isolated = _entry(1), _entry(2)
    in_flight.accept(held)
    in_flight.accept(isolated, isolated=True)
    for entry in (isolated, held):
        assert in_flight.offer(10) == [entry]
        in_flight.confirm()
        assert in_flight.start(TASK, IDLE_S + 1) is None
    in_flight.refreshed([held, isolated], IDLE_S + 1)
    in_flight.offer(10)
    in_flight.confirm()
    assert in_flight.start(TASK, IDLE_S + 2) in (held, isolated)


def test_an_entry_starts_even_without_an_answer_about_its_owner() -> None:
    # A worker that may not send heartbeats, or a server without memory: no answer came.
    in_flight = InFlight(concurrency=10, idle_s=IDLE_S)
    entry = _entry(1)
    in_flight.accept(entry)
    for started in (None, entry):
        in_flight.offer(10)
        in_flight.confirm()
        assert in_flight.start(TASK, IDLE_S + 1) is started


def test_what_was_put_off_is_held_before_what_comes_later() -> None:
    in_flight = InFlight(10)
    receiving = DeliveryReceiver(in_flight, TERMS, Sizes(), Observer())
    assert receiving.put_off([Delivered(STREAM, DeliverySource.NEW, [raw(1), raw(2)])], 0.0) == 2
    assert receiving.coming == 2 and len(in_flight) == 0
    assert receiving.accept([Delivered(STREAM, DeliverySource.NEW, [raw(3)])], 1.0) == 1
    assert receiving.coming == 0
    assert [entry.id for entry in in_flight.offer(10)] == ["1-0", "2-0", "3-0"]


# Whatever happens.

_NAMES = ("accept", "plain", "alone", "offer", "start", "finish", "wait", "wake", "disown")
_ACTS = st.lists(st.tuples(st.sampled_from(_NAMES), st.integers(0, 8)), max_size=80)


@given(_ACTS, st.integers(1, 4), st.booleans())
def test_whatever_happens_nothing_is_lost_runs_twice_or_breaks_a_limit(
    acts: list[tuple[str, int]], concurrency: int, ordered: bool
) -> None:
    in_flight = InFlight(concurrency, (lambda entry: entry.raw_id[0] % 2) if ordered else None)
    known: dict[int, Entry] = {}
    for act, number in acts:
        if act in {"accept", "alone"}:
            entry = _entry(number)
            if in_flight.accept(entry, isolated=act == "alone"):
                known[number] = entry
        elif act == "plain":
            some = [_entry(one) for one in (number, number + 1)]
            held = in_flight.accept_plain(b"orders", some)
            known.update({int(one.id[:-2]): one for one in some if one not in held})
        elif act == "disown":
            if number in known and not known[number].is_disowned:
                in_flight.disown(known[number])
        else:
            _act(in_flight, act, number)
        _check(in_flight, concurrency, ordered)
    _run_dry(in_flight)
    owned = {one for one in known.values() if not one.is_disowned}
    assert set(in_flight.done) == owned == set(in_flight)


def _act(in_flight: InFlight, act: str, number: int) -> None:
    running = list(in_flight.running)
    match act:
        case "offer":
            in_flight.offer(2 * in_flight.concurrency)
            in_flight.confirm() if number % 3 else in_flight.withdraw()
        case "start":
            in_flight.start(TASK, 0.0)
        case "wake":
            in_flight.wake(2.0)
        case "finish" if running:
            in_flight.finish(running[number % len(running)])
        case "wait" if running:
            in_flight.wait(running[number % len(running)], 1.0)


def _check(in_flight: InFlight, concurrency: int, ordered: bool) -> None:
    assert len(in_flight.running) <= concurrency
    assert in_flight.queued >= 0
    isolated = [entry for entry in in_flight.running if entry.runs_isolated]
    assert not isolated or len(in_flight.running) == 1
    kept = [entry.order for entry in in_flight.running if not entry.is_disowned]
    assert not ordered or len(kept) == len(set(kept))


def _run_dry(in_flight: InFlight) -> None:
    for _ in range(100):
        in_flight.wake(2.0)
        in_flight.offer(10)
        in_flight.confirm()
        in_flight.start(TASK, 0.0)
        for entry in list(in_flight.running):
            in_flight.finish(entry)


def test_an_answer_of_another_length_fails_the_whole_batch() -> None:
    entries = [_entry(1), _entry(2)]
    assert outcomes_of_batch(None, entries) == [None, None]
    assert outcomes_of_batch([1, ValueError], entries) == [None, None]
    assert all(isinstance(one, TypeError) for one in outcomes_of_batch([None], entries))
    assert all(isinstance(one, TypeError) for one in outcomes_of_batch(True, entries))


async def test_a_hanging_thread_does_not_block_others_and_is_awaited() -> None:
    threads, ends = Threads(), threading.Event()
    hanging = asyncio.create_task(threads.run(lambda _: ends.wait(60), None))
    assert await threads.run(lambda argument: argument + 1, 1) == 2
    hanging.cancel()
    await asyncio.sleep(0.05)
    assert not hanging.done()  # it cannot be interrupted
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    threads.close()


async def test_what_a_thread_raises_is_raised() -> None:
    def fail(error: Exception) -> None:
        raise error

    threads = Threads()
    with pytest.raises(ValueError, match="x"):
        await threads.run(fail, ValueError("x"))
    with pytest.raises(RuntimeError):
        await threads.run(fail, StopIteration())
    threads.close()
