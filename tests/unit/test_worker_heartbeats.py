"""When a worker says that it still has what it has."""

from __future__ import annotations

import asyncio

import pytest

from pelops.worker.engine.in_flight import Holding
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.server.adapter import Outgoing, Source
from pelops.worker.settings import Settings
from pelops.worker.worker import Worker
from tests.unit.scripted_door import (
    STREAM,
    ScriptedDoor,
    loop_time,
    raw,
    run_virtually,
    work,
)


async def _hang(entry: Entry) -> None:
    await asyncio.sleep(10_000)


@pytest.mark.parametrize("idle_limit_ms", [30_000, 7_001, 1_500, 900, 333])
def test_nothing_is_said_before_a_heartbeat_is_due(idle_limit_ms: int) -> None:
    door = ScriptedDoor(fresh=[raw(1)])

    async def main() -> None:
        settings = Settings(idle_limit_ms=idle_limit_ms, grace_s=0)
        worker = Worker(lambda: door, settings, clock=asyncio.get_running_loop().time)
        worker.handler(_hang)
        await work(worker, lambda: loop_time() > 100)

    run_virtually(main)
    assert sum(bool(said.keeps) for said in door.said) > 100_000 / idle_limit_ms
    assert [said for said in door.said[:-1] if said == Outgoing()] == []


def test_a_heartbeat_is_due_at_its_time_and_not_only_after_it() -> None:
    holding = Holding(1)
    arrival = Arrival(STREAM, Source.NEW, 10.0, Terms(lambda: 0.0, 30.0))
    holding.accept(Entry(arrival, raw(1)))
    assert len(holding.due_for_refresh(10.0, 100)) == 1
    assert holding.due_for_refresh(9.999, 100) == []
