"""A worker as a process, with a real server: signals, exit codes, a blocked event loop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.redis_servers import StandaloneServers
from tests.worker_process import GROUP, QUICK, ROOT, WorkerProcesses, until

PROCESSING_TIMEOUT_MS = 1500  # long enough for a busy machine


@pytest.fixture
def workers(
    program_redis: StandaloneServers, key_prefix: str, tmp_path: Path
) -> Iterator[WorkerProcesses]:
    started = WorkerProcesses(
        program_redis.url,
        f"{key_prefix}orders",
        tmp_path,
        processing_timeout_ms=PROCESSING_TIMEOUT_MS,
    )
    yield started
    started.close()


def test_sigterm_lets_handlers_finish_and_leaves_nothing_behind(workers: WorkerProcesses) -> None:
    process = workers.start(
        "one",
        """
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    await asyncio.sleep(1)
    say("handled", entry.id)
worker.run()
""",
        PELOPS_CONCURRENCY="3",
        PELOPS_IDLE_LIMIT_MS="30000",
    )
    workers.add(3)
    until(lambda: sum("begun" in line for line in workers.said("one").splitlines()) == 3)
    process.terminate()
    assert process.wait(60) == 0
    assert len(workers.ids("one")) == 3
    assert workers.pending() == {}
    assert workers.server.xinfo_consumers(workers.stream, GROUP) == []


def test_what_a_killed_worker_held_is_worked_by_another_without_an_operator(
    workers: WorkerProcesses,
) -> None:
    process = workers.start(
        "one",
        """
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    await asyncio.sleep(1000)
worker.run()
""",
    )
    ids = workers.add(20)
    until(lambda: sum("begun" in line for line in workers.said("one").splitlines()) == 20)
    process.kill()
    workers.start("two", QUICK)
    until(lambda: workers.pending() == {})
    assert sorted(workers.ids("two")) == sorted(ids)


def test_a_worker_that_was_stopped_for_long_neither_acknowledges_nor_rejects(
    workers: WorkerProcesses, tmp_path: Path
) -> None:
    # Longer than a busy machine keeps the second one from its heartbeats.
    gate, limit = tmp_path / "gate", {"PELOPS_IDLE_LIMIT_MS": "5000"}
    first = workers.start(
        "one",
        """
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    time.sleep(0.5)  # within which the process is stopped
    if entry["n"] == b"1":
        raise Reject("Never")
worker.run()
""",
        **limit,
    )
    until(lambda: workers.server.xinfo_consumers(workers.stream, GROUP))
    ids = workers.add(2)
    until(lambda: any("begun" in line for line in workers.said("one").splitlines()))
    first.send_signal(signal.SIGSTOP)
    workers.start(
        "two",
        """
@worker.handler
async def handle(entry):
    while not os.path.exists(os.environ["GATE"]):
        await asyncio.sleep(0.02)
    say("handled", entry.id)
worker.run()
""",
        **limit,
        GATE=str(gate),
    )
    until(lambda: set(workers.pending().values()) == {"two"} and len(workers.pending()) == 2)
    first.send_signal(signal.SIGCONT)
    until(lambda: any("another consumer" in line for line in workers.said("one").splitlines()))
    assert set(workers.pending().values()) == {"two"}
    gate.touch()
    until(lambda: workers.pending() == {})
    assert sorted(workers.ids("two")) == sorted(ids)
    assert not [key for key in workers.server.keys("*dlq*") if workers.server.xlen(key)]


def test_a_blocking_handler_keeps_its_entry_beyond_the_processing_timeout(
    workers: WorkerProcesses,
) -> None:
    limit = {"PELOPS_IDLE_LIMIT_MS": "3000"}
    workers.start(
        "one",
        """
worker.settings = __import__("dataclasses").replace(worker.settings, blocked_s=30)
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    time.sleep(8 if entry["n"] == b"0" else 60)
    say("handled", entry.id)
worker.run()
""",
        **limit,
    )
    until(lambda: workers.server.xinfo_consumers(workers.stream, GROUP))
    first = workers.add(1)
    until(lambda: any("begun" in line for line in workers.said("one").splitlines()))
    workers.start("two", QUICK, **limit)
    until(lambda: workers.pending() == {})
    assert (
        workers.ids("one") == first
    )  # far longer than the processing timeout, and not recovered prematurely
    assert workers.ids("two") == []


def test_what_handlers_leave_behind_does_not_keep_the_process(workers: WorkerProcesses) -> None:
    process = workers.start(
        "one",
        """
async def stubborn():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
left = []
@worker.handler
async def handle(entry):
    left.append(asyncio.create_task(stubborn()))
    threading.Thread(target=time.sleep, args=(1000,)).start()
    say("handled", entry.id)
worker.run()
""",
    )
    workers.add(3)
    until(lambda: len(workers.ids("one")) == 3 and workers.pending() == {})
    process.terminate()
    assert process.wait(60) == 0


def test_handlers_that_are_not_async_run_beside_each_other(workers: WorkerProcesses) -> None:
    process = workers.start(
        "one",
        """
barrier = threading.Barrier(5)
@worker.handler
def handle(entry):
    say("begun", entry.id)
    barrier.wait(60)
    say("handled", entry.id)
worker.run()
""",
        PELOPS_CONCURRENCY="5",
        PELOPS_IDLE_LIMIT_MS="30000",
    )
    workers.add(5)
    until(lambda: len(workers.ids("one")) == 5 and workers.pending() == {})
    process.terminate()
    assert process.wait(60) == 0


def test_importing_the_worker_loads_nothing_heavy() -> None:
    script = (
        "import sys, time; import pelops.worker; used = time.process_time();"
        "heavy = {'kopf', 'kubernetes', 'pyspark', 'pydantic', 'prometheus_client', 'redis'};"
        "print(sorted(heavy & set(sys.modules)), used)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith("[]"), done.stdout
