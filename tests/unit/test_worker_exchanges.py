"""What a worker and Redis say to each other: started entries, acknowledgements, heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from pelops.errors import NoSuchGroup, OutcomeUnknown
from pelops.worker.engine.observer import Observer
from pelops.worker.entry import Entry
from pelops.worker.outcomes import Reject, Retry
from pelops.worker.server.adapter import DeliverySource, Exchanged, Outgoing
from tests.unit.scripted_adapter import (
    STREAM,
    ScriptedAdapter,
    build_worker,
    charged,
    entries,
    loop_time,
    nothing,
    raw,
    run_virtually,
    serve,
    work,
)


def _started(outgoing: Outgoing) -> set[bytes]:
    return set((outgoing.started_ids or b"").split())


# Started entries.


@pytest.mark.parametrize("wait_s", [0, 0.01])
def test_a_handler_starts_only_after_its_entry_was_recorded(wait_s: float) -> None:
    adapter = ScriptedAdapter(fresh=entries(300))
    unrecorded = []

    async def handle(entry: Entry) -> None:
        if not any(entry.raw_id in _started(one) for one in adapter.said):
            unrecorded.append(entry.id)
        if wait_s:
            await asyncio.sleep(wait_s)

    serve(adapter, handle, lambda: len(adapter.acked) == 300, concurrency=10)
    assert unrecorded == []


def test_with_slow_handlers_exactly_the_running_entries_are_recorded() -> None:
    adapter = ScriptedAdapter(fresh=entries(100))
    recorded = []

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(1)

    def look(outgoing: Outgoing) -> None:
        if len(adapter.acked) >= 20:
            recorded.append(len(_started(outgoing)))

    adapter.on_exchange = look
    serve(adapter, handle, lambda: len(adapter.acked) == 100, concurrency=10)
    assert max(recorded) <= 10


@pytest.mark.parametrize(
    ("fresh", "isolated"),
    [
        pytest.param(
            [*entries(5), charged(6), raw(7), raw(8), charged(9)],
            {"6-0", "9-0"},
            id="two copies of failed entries",
        ),
        pytest.param(
            [raw(1, deliveries=2), raw(2), raw(3)], {"1-0"}, id="one delivered for the third time"
        ),
    ],
)
def test_an_entry_that_failed_before_runs_in_isolation(
    fresh: list[Any], isolated: set[str]
) -> None:
    adapter = ScriptedAdapter(fresh=fresh)
    running: set[str] = set()
    beside: dict[str, set[str]] = {}

    async def handle(entry: Entry) -> None:
        running.add(entry.id)
        for one in running:
            beside.setdefault(one, set()).update(running)
        await asyncio.sleep(0.5)
        running.discard(entry.id)

    serve(adapter, handle, lambda: len(adapter.acked) == len(beside) == len(fresh))
    assert isolated <= {one for one, others in beside.items() if others == {one}}
    assert max(len(others) for others in beside.values()) > 1
    for raw_id in (one.encode() for one in isolated):
        recorded = [_started(one) for one in adapter.said if raw_id in _started(one)]
        assert recorded and all(ids == {raw_id} for ids in recorded)


def test_nothing_is_read_while_an_entry_runs_in_isolation() -> None:
    """If it ends the process, what was read meanwhile would get stuck with it, time after time."""
    adapter = ScriptedAdapter(fresh=[raw(1, deliveries=2)])
    while_it_ran: list[bytes] = []

    async def handle(entry: Entry) -> None:
        if entry.id != "1-0":
            return
        adapter.fresh += [raw(n, deliveries=2) for n in (2, 3)] + [raw(4)]
        await asyncio.sleep(5)
        while_it_ran.extend(adapter.pending)

    serve(adapter, handle, lambda: len(adapter.acked) == 4)
    assert while_it_ran == [b"1-0"]


def test_an_entry_that_ended_a_former_process_stays_recorded() -> None:
    adapter = ScriptedAdapter(fresh=entries(2), history=[raw(7), raw(8)], left=frozenset({b"7-0"}))
    serve(adapter, nothing, lambda: len(adapter.acked) == 3)
    assert sorted(adapter.acked) == [b"1-0", b"2-0", b"8-0"]
    assert all(b"7-0" in _started(one) for one in adapter.said if one.started_ids is not None)


def test_a_skipped_entry_is_handled_when_it_is_delivered_again() -> None:
    adapter = ScriptedAdapter(
        fresh=[raw(7, deliveries=1)], left=frozenset({b"7-0"}), source=DeliverySource.HANDED_OVER
    )
    serve(adapter, nothing, lambda: adapter.acked == [b"7-0"])
    assert b"7-0" not in _started(adapter.said[-1])


# Acknowledgements.


def test_acknowledgements_travel_together() -> None:
    adapter = ScriptedAdapter(fresh=entries(1000))
    serve(adapter, nothing, lambda: len(adapter.acked) == 1000)
    assert len(adapter.said) < 50


def test_an_acknowledgement_whose_answer_was_lost_is_sent_again() -> None:
    adapter = ScriptedAdapter(
        fresh=entries(1), errors=[None, OutcomeUnknown("cut"), OutcomeUnknown("")]
    )
    runs: list[str] = []
    serve(adapter, lambda entry: runs.append(entry.id), lambda: adapter.acked)
    assert (runs, adapter.acked) == (["1-0"], [b"1-0"])


def test_an_entry_that_comes_again_while_it_is_held_runs_once() -> None:
    adapter = ScriptedAdapter(fresh=entries(1))
    runs = []

    async def handle(entry: Entry) -> None:
        runs.append(entry.id)
        adapter.history = [raw(1, deliveries=1)]
        adapter.epoch += 1  # a connection was lost
        await asyncio.sleep(5)

    serve(adapter, handle, lambda: adapter.acked)
    assert runs == ["1-0"]


def test_after_a_long_stop_an_acknowledgement_checks_the_owner() -> None:
    adapter = ScriptedAdapter(fresh=entries(1))
    stopped_s = [0.0]

    async def handle(entry: Entry) -> None:
        stopped_s[0] = 100  # SIGSTOP, SIGCONT
        adapter.lost = {entry.raw_id}

    serve(
        adapter,
        handle,
        lambda: len(adapter.said) > 1,
        processing_timeout_ms=30_000,
        clock=lambda: loop_time() + stopped_s[0],
    )
    assert adapter.acked == []
    assert not any(one.acks for one in adapter.said)
    assert any(one.checked_acks for one in adapter.said)


def test_after_a_group_was_lost_acknowledgements_check_the_owner() -> None:
    adapter = ScriptedAdapter(fresh=entries(1), errors=[None, NoSuchGroup("gone")])
    serve(adapter, nothing, lambda: adapter.acked)
    sent = [one for one in adapter.said if one.acks or one.checked_acks]
    assert [bool(one.checked_acks) for one in sent] == [False, True]


# Heartbeats.


def test_every_held_entry_is_refreshed_within_half_of_its_timeout() -> None:
    """Entries that run, entries that wait for a slot, and entries that wait for their backoff."""
    adapter = ScriptedAdapter(fresh=entries(4))
    refreshed: dict[bytes, list[float]] = {}

    def note(outgoing: Outgoing) -> None:
        for one in outgoing.keeps.get(STREAM, ()):
            refreshed.setdefault(one, []).append(loop_time())

    async def handle(entry: Entry) -> None:
        if entry.id == "1-0" and entry.attempt == 1:
            raise Retry(after=100)
        await asyncio.sleep(100)

    adapter.on_exchange = note
    timing = {"processing_timeout_ms": 30_000, "grace_s": 0}
    serve(adapter, handle, lambda: loop_time() > 90, concurrency=2, **timing)
    assert set(refreshed) == {b"1-0", b"2-0", b"3-0"}  # the fourth was never asked for
    for times in refreshed.values():
        gaps = [later - sooner for sooner, later in pairwise(times)]
        assert min(gaps) > 9 and max(gaps) < 15


@pytest.mark.parametrize(
    "processing_timeout_ms",
    [30_000, 7_001, 900, *(pytest.param(ms, marks=pytest.mark.full) for ms in (1_500, 333))],
)
def test_nothing_is_said_before_a_heartbeat_is_due(processing_timeout_ms: int) -> None:
    adapter = ScriptedAdapter(fresh=entries(1))

    async def hang(entry: Entry) -> None:
        await asyncio.sleep(10_000)

    timing = {"processing_timeout_ms": processing_timeout_ms, "grace_s": 0}
    serve(adapter, hang, lambda: loop_time() > 100, **timing)
    assert sum(bool(said.keeps) for said in adapter.said) > 100_000 / processing_timeout_ms
    assert [said for said in adapter.said[:-1] if said == Outgoing()] == []


def test_a_handler_is_cancelled_when_its_entry_belongs_to_another_worker() -> None:
    adapter = ScriptedAdapter(fresh=entries(2), lost={b"1-0"})
    ends = []

    async def handle(entry: Entry) -> None:
        try:
            await asyncio.sleep(12)
        except asyncio.CancelledError:
            ends.append((entry.id, entry.is_disowned))
            raise

    serve(adapter, handle, lambda: ends and adapter.acked, processing_timeout_ms=30_000)
    assert ends == [("1-0", True)]
    assert adapter.acked == [b"2-0"]


@pytest.mark.parametrize("rejects", [False, True], ids=["ends well", "rejects the entry"])
def test_a_disowned_entry_is_neither_acknowledged_nor_dead_lettered(rejects: bool) -> None:
    adapter = ScriptedAdapter(fresh=entries(1), lost={b"1-0"})
    ends = []

    async def handle(entry: Entry) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0 if rejects else 12)
        ends.append(entry.id)
        if rejects:
            raise Reject

    done_at_s = 5 if rejects else 0
    serve(adapter, handle, lambda: ends and loop_time() > done_at_s, processing_timeout_ms=30_000)
    assert adapter.acked == [] and adapter.rejected == []


# Work while the server works.


class BusyAdapter(ScriptedAdapter):
    """Knows whether it works on an exchange."""

    is_busy = False

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        self.is_busy = True
        try:
            return await super().exchange(outgoing)
        finally:
            self.is_busy = False


def test_entries_are_received_and_reported_while_the_server_works() -> None:
    adapter = BusyAdapter(fresh=entries(1000))
    busy: list[bool] = []

    class Watching(Observer):
        def received(self, entries: int, reclaimed: int) -> None:
            busy.extend([adapter.is_busy] * entries)

        def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
            busy.extend([adapter.is_busy] * len(entries))

    serve(adapter, nothing, lambda: len(adapter.acked) == 1000, observer=Watching())
    assert len(busy) == 2000
    assert sum(busy) > 1500  # what the first and last exchanges brought had nothing to wait for


@pytest.mark.parametrize("exchanges", range(1, 9))
def test_a_stopped_worker_releases_its_entries_and_reports_the_finished(exchanges: int) -> None:
    adapter = ScriptedAdapter(fresh=entries(5000))
    reported: list[Entry] = []

    class Watching(Observer):
        def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
            reported.extend(entries)

    async def main() -> None:
        worker = build_worker(adapter, observer=Watching())
        worker.handler(nothing)
        adapter.on_exchange = lambda _: worker.stop() if len(adapter.said) == exchanges else None
        await work(worker, lambda: False)

    run_virtually(main)
    assert adapter.fresh and adapter.calls[-2:] == ["leave", "close"]
    assert set(adapter.released) == adapter.pending
    assert sorted(entry.raw_id for entry in reported) == sorted(adapter.acked)


def test_a_read_requests_no_more_entries_than_there_is_room_for() -> None:
    adapter = ScriptedAdapter(fresh=entries(2000))
    most = 0

    def look(outgoing: Outgoing) -> None:
        nonlocal most
        said = sum(len(ids) for ids in outgoing.acks.values())
        most = max(most, len(adapter.pending) - said + outgoing.read)

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(0.0001)

    adapter.on_exchange = look
    serve(adapter, handle, lambda: len(adapter.acked) == 2000, concurrency=10, prefetch=50)
    assert most <= 60


def test_an_observer_that_raises_ends_the_worker() -> None:
    adapter = ScriptedAdapter(fresh=entries(1000))

    class Broken(Observer):
        def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
            raise LookupError("it broke")

    with pytest.raises(LookupError, match="it broke"):
        serve(adapter, nothing, observer=Broken())
    assert adapter.calls[-1] == "close"
