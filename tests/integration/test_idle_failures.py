"""Entries beyond the timeout while their workers live: dead-lettered, or separated and done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import pytest

from pelops.controller.recovery.pod_evidence import ConsumerLiveness
from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import LivenessReason, OwnerMatch, no_cutoff
from pelops.redis_core.server import Server
from tests.integration.recovering import KEYS, add_many, bodies, pending, read_new
from tests.integration.redis_adapter import provision
from tests.integration.stream_scanning import a_run, scan
from tests.redis_fixtures import on_newest_unless_full

ENTRIES: Final = 80
WORKERS: Final = ("w0", "w1", "w2")
ALIVE: Final = ConsumerLiveness(
    cutoff=no_cutoff(LivenessReason.ALIVE, "its pod is alive"), match=OwnerMatch(vanished_uid="uid")
)
TIMEOUT_S: Final = 1
RETRIES: Final = 3
LONGEST_S: Final = 50 * TIMEOUT_S  # one after the other they would take eighty and more
A_WHILE_S: Final = 0.005


@dataclass(slots=True)
class Fleet:
    """Plain workers that live all the time, each of which reads ten entries at once."""

    server: Server
    poisons: set[bytes]  # what no handler finishes, by its number
    hangs: bool = False  # at a poison entry its worker blocks; else it ignores the error
    loses_reads: bool = False  # with a poison in it, the answer to a read cannot be parsed
    done: set[bytes] = field(default_factory=set)
    is_over: bool = False  # a cancellation may meet the answer of a call, and be lost

    async def work(self, name: str) -> None:
        while not self.is_over:
            ids = await read_new(self.server, KEYS, 10, name)
            if not ids:
                await asyncio.sleep(A_WHILE_S)
                continue
            numbers = [await self._number(one) for one in ids]
            if self.loses_reads and self.poisons.intersection(numbers):
                continue
            for entry_id, number in zip(ids, numbers, strict=True):
                if number not in self.poisons:
                    await self.server.execute(
                        "XACK", KEYS.stream, KEYS.group, str(entry_id), key=KEYS.stream
                    )
                    self.done.add(number)
                elif self.hangs:
                    return

    async def _number(self, entry_id: EntryId) -> bytes:
        found = await bodies(self.server, KEYS.stream, str(entry_id))
        return found[entry_id][1]


@contextmanager
def working(fleet: Fleet, names: tuple[str, ...]) -> Iterator[None]:
    tasks = [asyncio.create_task(fleet.work(name)) for name in names]
    try:
        yield
    finally:
        fleet.is_over = True
        for task in tasks:
            task.cancel()


async def recover(server: Server, names: tuple[str, ...], **recovery: Any) -> None:
    """Scan until nothing is pending and nothing waits."""
    reported: dict[str, Any] = {
        "processing_timeout_seconds": TIMEOUT_S,
        "max_retries": RETRIES,
        **recovery,
    }
    liveness = dict.fromkeys(names, ALIVE)
    end = monotonic() + LONGEST_S
    while True:
        run = await a_run(server, **reported)
        if not run.stream.pending and (
            run.stream.last_delivered_id == run.stream.last_generated_id
        ):
            return
        await scan(run, liveness)
        letters = len(await bodies(server, KEYS.dead_letter))
        assert monotonic() < end, f"{letters} given up, {len(await pending(server))} pending"
        await asyncio.sleep(0.05)


async def letters_of(server: Server) -> list[tuple[bytes, int]]:
    """Number and failures of each dead letter."""
    found = (await bodies(server, KEYS.dead_letter)).values()
    maps = [dict(zip(one[::2], one[1::2], strict=True)) for one in found]
    return [(one[b"n"], int(one[b"_retry_count"])) for one in maps]


@on_newest_unless_full
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.full), 3])
async def test_what_live_workers_swallow_is_given_up_within_some_limits_however_many(
    server: Server, workers: int
) -> None:
    """Not one after the other: 80 entries at a limit of 1 s are done in a few seconds."""
    await provision(server, KEYS)
    await add_many(server, KEYS, ENTRIES)
    fleet = Fleet(server, poisons={b"%d" % number for number in range(1, ENTRIES + 1)})
    with working(fleet, WORKERS[:workers]):
        await recover(server, WORKERS[:workers])
    letters = await letters_of(server)
    assert {number for number, _ in letters} == fleet.poisons
    assert len(letters) == ENTRIES
    assert max(failures for _, failures in letters) <= RETRIES + 3


@on_newest_unless_full
@pytest.mark.parametrize("how", ["hangs", "loses_reads"])
async def test_invariant_11_neighbours_of_a_poison_entry_are_processed(
    server: Server, how: str
) -> None:
    """Its worker blocks until the end with the whole read, or never receives any of it."""
    names = tuple(f"w{number}" for number in range(12))
    await provision(server, KEYS)
    await add_many(server, KEYS, ENTRIES)
    fleet = Fleet(server, poisons={b"33"}, hangs=how == "hangs", loses_reads=how == "loses_reads")
    with working(fleet, names):
        await recover(server, names)
    assert [number for number, _ in await letters_of(server)] == [b"33"]
    assert len(fleet.done) == ENTRIES - 1
