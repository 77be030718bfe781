"""Two processes of one consumer name: one works and one stands by, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.worker.server.adapter import NameTaken, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.redis_adapter import endpoint_of
from tests.integration.worker_adapter import KEYS, STREAM, behind, ids_of, opened
from tests.worker_process import QUICK, WorkerProcesses, until

SLOW = """
@worker.handler
async def handle(entry):
    say("begun", entry.id, os.getpid())
    await asyncio.sleep(0.05)
    say("handled", entry.id, os.getpid())
worker.run()
"""
GATED = """
@worker.handler
async def handle(entry):
    say("begun", entry.id, os.getpid())
    while not os.path.exists(os.environ["GATE"]):
        await asyncio.sleep(0.02)
    say("handled", entry.id, os.getpid())
worker.run()
"""
STANDS_BY = "another process started as consumer one; this process waits"


def test_two_processes_with_one_name_handle_every_entry(
    workers: WorkerProcesses,
) -> None:
    ids = workers.add(200)
    variables = {"PELOPS_CONCURRENCY": "5", "PELOPS_IDLE_LIMIT_MS": "900"}
    both = [workers.start("one", SLOW, **variables)]
    until(lambda: workers.ids("one"))
    both.append(workers.start("one", SLOW, **variables))
    until(lambda: STANDS_BY in workers.said("one"))
    ids += workers.add(200)
    until(lambda: not _owed(workers), 90)
    assert set(workers.ids("one")) == set(ids)
    assert workers.letters() == []
    for process in both:
        process.terminate()
    assert [process.wait(60) for process in both] == [0, 0]
    # What had been marked to start when the other began may run twice, and no more than that.
    assert sum(Counter(workers.ids("one")).values()) - len(ids) <= 20 * _turns(workers)


def test_a_running_entry_is_finished_only_by_its_process(
    workers: WorkerProcesses, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    variables = {"PELOPS_IDLE_LIMIT_MS": "2000", "GATE": str(gate)}
    ids = workers.add(3)
    first = workers.start("one", GATED, **variables)
    until(lambda: sorted(workers.ids("one", "begun")) == ids)
    workers.start("one", GATED, **variables)
    until(lambda: STANDS_BY in workers.said("one"))
    ids += workers.add(5)
    until(lambda: sorted(workers.ids("one", "begun")) == ids)
    gate.touch()
    until(lambda: not _owed(workers))
    handled = [line.split()[1:] for line in workers.said("one").splitlines() if "handled" in line]
    assert sorted(one for one, _ in handled) == sorted(ids)
    assert {one for one, pid in handled if pid == str(first.pid)} >= set(ids[:3])


def test_a_process_that_is_started_again_does_not_wait_for_its_predecessor(
    workers: WorkerProcesses,
) -> None:
    workers.add()
    first = workers.start("one", SLOW, PELOPS_IDLE_LIMIT_MS="60000")
    until(lambda: not _owed(workers))
    first.kill()
    first.wait(60)
    ids = workers.add(3)
    workers.start("one", QUICK, PELOPS_IDLE_LIMIT_MS="60000")
    until(lambda: not _owed(workers))
    assert set(ids) <= set(workers.ids("one"))
    assert STANDS_BY not in workers.said("one")


def test_who_stands_by_works_again_when_the_other_is_gone(workers: WorkerProcesses) -> None:
    workers.start("one", SLOW)
    workers.add()
    until(lambda: not _owed(workers))
    second = workers.start("one", QUICK)
    until(lambda: STANDS_BY in workers.said("one"))
    second.kill()
    second.wait(60)
    ids = workers.add(20)
    until(lambda: not _owed(workers))
    assert set(ids) <= set(workers.ids("one"))
    assert "resuming as consumer one" in workers.said("one")


def _owed(workers: WorkerProcesses) -> int:
    (group,) = workers.server.xinfo_groups(workers.stream)
    undelivered = workers.server.xrange(workers.stream, f"({group['last-delivered-id']}", count=1)
    return len(undelivered) + int(group["pending"])


def _turns(workers: WorkerProcesses) -> int:
    said = workers.said("one")
    return said.count(STANDS_BY) + said.count("resuming as consumer")


# The adapter.


async def test_an_adapter_whose_name_is_taken_only_finishes_running_entries(
    empty_redis: StandaloneServers,
) -> None:
    endpoint = endpoint_of(empty_redis)
    async with behind(empty_redis) as seen:
        await seen.create()
        first, second = await seen.add(2)
        async with opened(endpoint, processing_timeout_ms=1000) as one, opened(endpoint) as other:
            await one.begin()
            await one.read(10, 1000)
            assert (await one.exchange(Outgoing(started_ids=first))).problem is None
            assert (await other.begin()).left == {first}
            found = await one.exchange(
                Outgoing(acks={STREAM: [first]}, started_ids=second, read=10)
            )
            assert isinstance(found.problem, NameTaken)
            assert found.acked == {STREAM: 1}
            with pytest.raises(NameTaken):
                await one.read(10, 1)
            with pytest.raises(NameTaken):
                await one.read_history({}, 10)
            assert await one.release({STREAM: [second]}) == 0
            assert not await one.leave()
            assert ids_of(await other.read_history({}, 10)) == [second]
            assert (await other.exchange(Outgoing(started_ids=second))).problem is None
            before = one.epoch
            await _read_in_turn(one)
            assert one.epoch > before
            assert await one.read_history({}, 10) == []  # the other one had started it
            assert isinstance((await other.exchange(Outgoing(started_ids=b""))).problem, NameTaken)


async def _read_in_turn(adapter: RedisAdapter) -> None:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(NameTaken):
                await adapter.read(10, 1)
                return


async def test_processes_started_at_the_same_time_have_distinct_boot_records(
    empty_redis: StandaloneServers,
) -> None:
    endpoint = endpoint_of(empty_redis)
    async with opened(endpoint) as one, opened(endpoint) as other:
        begun = await asyncio.gather(
            *(adapter.begin() for _ in range(50) for adapter in (one, other))
        )
    times = [boot.now_ms for boot in begun]
    assert all(one != other for one, other in pairwise(sorted(times)))


async def test_an_older_boot_record_after_a_failover_does_not_stop_the_worker(
    empty_redis: StandaloneServers,
) -> None:
    async with behind(empty_redis) as seen, opened(endpoint_of(empty_redis)) as adapter:
        await seen.create()
        boot = await adapter.begin()
        await seen.run("HSET", KEYS.worker_state, "boot:me", str(boot.now_ms - 1))
        assert (await adapter.exchange(Outgoing(started_ids=b"1-1"))).problem is None
        await seen.run("DEL", KEYS.worker_state)
        assert (await adapter.exchange(Outgoing(started_ids=b"1-2"))).problem is None
        assert await adapter.read(1, 1) == []
