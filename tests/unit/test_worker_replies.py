"""What an answer brought is seen to while the server works, and nothing of it is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pelops.worker.engine.in_flight import InFlight
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.prefetch import DeliveryReceiver, Sizes
from pelops.worker.entry import Entry, Terms
from pelops.worker.server.adapter import Delivered, DeliverySource, Exchanged, Outgoing
from pelops.worker.settings import WorkerSettings
from pelops.worker.worker import Worker
from tests.unit.scripted_adapter import (
    STREAM,
    ScriptedAdapter,
    build_worker,
    loop_time,
    raw,
    run_virtually,
    work,
)


class BusyAdapter(ScriptedAdapter):
    """Knows whether it works on an exchange."""

    is_busy = False

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        self.is_busy = True
        try:
            return await super().exchange(outgoing)
        finally:
            self.is_busy = False


def _entries(count: int) -> list[Any]:
    return [raw(number) for number in range(1, count + 1)]


async def _nothing(entry: Entry) -> None:
    """A handler that is done at once."""


def test_entries_are_received_and_reported_while_the_server_works() -> None:
    adapter = BusyAdapter(fresh=_entries(1000))
    busy: list[bool] = []

    class Watching(Observer):
        def received(self, entries: int, reclaimed: int) -> None:
            busy.extend([adapter.is_busy] * entries)

        def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
            busy.extend([adapter.is_busy] * len(entries))

    async def main() -> None:
        worker = Worker(lambda: adapter, WorkerSettings(), observer=Watching(), clock=loop_time)
        worker.handler(_nothing)
        await work(worker, lambda: len(adapter.acked) == 1000)

    run_virtually(main)
    assert len(busy) == 2000
    assert sum(busy) > 1500  # what the first and last exchanges brought had nothing to wait for


@pytest.mark.parametrize("number", range(1, 9))
def test_a_stopped_worker_releases_its_entries_and_reports_the_finished_ones(
    number: int,
) -> None:
    adapter = BusyAdapter(fresh=_entries(5000))
    reported: list[Entry] = []

    class Watching(Observer):
        def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
            reported.extend(entries)

    async def main() -> None:
        worker = Worker(lambda: adapter, WorkerSettings(), observer=Watching(), clock=loop_time)
        worker.handler(_nothing)

        def stop(outgoing: Outgoing) -> None:
            if len(adapter.said) == number:
                worker.stop()

        adapter.on_exchange = stop
        await work(worker, lambda: False)

    run_virtually(main)
    assert adapter.fresh and adapter.calls[-2:] == ["leave", "close"]
    assert set(adapter.released) == adapter.pending
    assert sorted(entry.raw_id for entry in reported) == sorted(adapter.acked)


def test_what_was_put_off_is_held_before_what_comes_later() -> None:
    in_flight = InFlight(10)
    receiving = DeliveryReceiver(in_flight, Terms(lambda: 0.0, 30.0), Sizes(), Observer())
    assert receiving.put_off([Delivered(STREAM, DeliverySource.NEW, [raw(1), raw(2)])], 0.0) == 2
    assert receiving.coming == 2 and len(in_flight) == 0
    assert receiving.accept([Delivered(STREAM, DeliverySource.NEW, [raw(3)])], 1.0) == 1
    assert receiving.coming == 0
    assert [entry.id for entry in in_flight.offer(10)] == ["1-0", "2-0", "3-0"]


def test_a_read_requests_no_more_entries_than_there_is_room_for() -> None:
    adapter = BusyAdapter(fresh=_entries(2000))
    most = 0

    def look(outgoing: Outgoing) -> None:
        nonlocal most
        said = sum(len(ids) for ids in outgoing.acks.values())
        most = max(most, len(adapter.pending) - said + outgoing.read)

    async def handle(entry: Entry) -> None:
        await asyncio.sleep(0.0001)

    async def main() -> None:
        worker = build_worker(adapter, concurrency=10, prefetch=50)
        worker.handler(handle)
        await work(worker, lambda: len(adapter.acked) == 2000)

    adapter.on_exchange = look
    run_virtually(main)
    assert most <= 60


def test_an_observer_that_raises_ends_the_worker_and_is_heard() -> None:
    adapter = BusyAdapter(fresh=_entries(1000))

    class Broken(Observer):
        def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
            raise LookupError("it broke")

    async def main() -> None:
        worker = Worker(lambda: adapter, WorkerSettings(), observer=Broken(), clock=loop_time)
        worker.handler(_nothing)
        with pytest.raises(LookupError, match="it broke"):
            await work(worker, lambda: False)

    run_virtually(main)
    assert adapter.calls[-1] == "close"
