"""An entry that ends every process in which it runs, without an operator to detect it."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.domain.recovery import LetterReason
from pelops.worker import Entry
from pelops.worker.outcomes import MAX_RETRIES
from pelops.worker.testing import MemoryGroup


def _run_until_it_ends_well(group: MemoryGroup, handle: Any, most: int, **options: Any) -> int:
    """Worker after worker; how many crashed before one did not."""
    for crashes in range(most):
        worker = group.worker(f"worker-{crashes}", **options)
        worker.handler(handle)
        if not group.run(worker).crashed:
            return crashes
        group.redeliver()
    pytest.fail("it goes on ending processes")


@pytest.mark.parametrize("in_batches", [False, True])
def test_only_the_entry_that_crashes_its_worker_becomes_a_dead_letter(
    in_batches: bool,
) -> None:
    group = MemoryGroup()
    ids = [group.add({"n": str(number)}) for number in range(20)]
    handled: list[str] = []

    async def handle(entry: Entry) -> None:
        if entry["n"] == b"7":
            group.crash()
        handled.append(entry.id)

    class Batches:
        async def handle_batch(self, entries: list[Entry]) -> None:
            for entry in entries:
                await handle(entry)

    handler = Batches if in_batches else handle
    crashes = _run_until_it_ends_well(group, handler, 20, max_crashes=2, prefetch=0)
    assert crashes == 4  # two among others, two alone
    (letter,) = group.dead_letters
    assert letter[b"n"] == b"7"
    assert letter[b"_reason"] == b"MaxRetriesExceeded"
    assert letter[b"_error"] == b"2 worker processes ended while they ran this entry in isolation"
    assert {*handled} == {*ids} - {ids[7]}
    assert not group.pending


def test_a_run_that_ends_in_an_error_is_no_crash() -> None:
    group = MemoryGroup()
    group.add({"n": "1"})
    ends = iter(["crash", "crash", "crash", "error", "crash", "crash", "well"])

    async def handle(entry: Entry) -> None:
        end = next(ends)
        if end == "crash":
            group.crash()
        if end == "error":
            raise ValueError

    # The error forgets the crash alone before it: two more are needed.
    assert _run_until_it_ends_well(group, handle, 10, max_crashes=2) == 5
    assert len(group.dead_letters) == 1


def test_without_the_option_it_comes_again_and_again() -> None:
    group = MemoryGroup()
    group.add({"n": "1"})

    async def handle(entry: Entry) -> None:
        group.crash()

    with pytest.raises(pytest.fail.Exception):
        _run_until_it_ends_well(group, handle, 10)
    assert not group.dead_letters


def test_the_reason_is_the_operators() -> None:
    assert LetterReason.MAX_RETRIES.value == str(MAX_RETRIES)
