"""When a worker sends heartbeats for the entries that it holds."""

from __future__ import annotations

import asyncio

import pytest

from pelops.worker.engine.in_flight import InFlight
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.server.adapter import DeliverySource, Outgoing
from pelops.worker.settings import WorkerSettings
from pelops.worker.worker import Worker
from tests.unit.scripted_adapter import (
    STREAM,
    ScriptedAdapter,
    loop_time,
    raw,
    run_virtually,
    work,
)


async def _hang(entry: Entry) -> None:
    await asyncio.sleep(10_000)


@pytest.mark.parametrize(
    "processing_timeout_ms",
    [30_000, 7_001, 900, *(pytest.param(ms, marks=pytest.mark.full) for ms in (1_500, 333))],
)
def test_nothing_is_said_before_a_heartbeat_is_due(processing_timeout_ms: int) -> None:
    adapter = ScriptedAdapter(fresh=[raw(1)])

    async def main() -> None:
        settings = WorkerSettings(processing_timeout_ms=processing_timeout_ms, grace_s=0)
        worker = Worker(lambda: adapter, settings, clock=asyncio.get_running_loop().time)
        worker.handler(_hang)
        await work(worker, lambda: loop_time() > 100)

    run_virtually(main)
    assert sum(bool(said.keeps) for said in adapter.said) > 100_000 / processing_timeout_ms
    assert [said for said in adapter.said[:-1] if said == Outgoing()] == []


def test_a_heartbeat_is_due_at_its_time_and_not_only_after_it() -> None:
    in_flight = InFlight(1)
    arrival = Arrival(STREAM, DeliverySource.NEW, 10.0, Terms(lambda: 0.0, 30.0))
    in_flight.accept(Entry(arrival, raw(1)))
    assert len(in_flight.due_for_refresh(10.0, 100)) == 1
    assert in_flight.due_for_refresh(9.999, 100) == []
