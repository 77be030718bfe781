"""A worker as a process, with a real server: signals, exit codes, a loop that stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from local_cluster.redis_servers import StandaloneServers

ROOT = Path(__file__).resolve().parents[2]
GROUP = "order-processing"
BEGINNING = """
import asyncio, os, sys, threading, time
from pelops.worker import Retry, Reject, Worker
worker = Worker.from_env()
def say(*words):
    sys.stdout.write(" ".join(words) + "\\n")
    sys.stdout.flush()
"""
QUICK = """
@worker.handler
async def handle(entry):
    say("handled", entry.id)
worker.run()
"""


class Workers:
    """Worker processes on one stream of one server."""

    def __init__(self, url: str, stream: str, directory: Path) -> None:
        self.server: Any = redis.Redis.from_url(url, decode_responses=True)
        self.stream = stream
        self._url = url
        self._directory = directory
        self._stack = ExitStack()
        self.server.xgroup_create(stream, GROUP, "0", mkstream=True)

    def start(self, name: str, script: str, **variables: str) -> subprocess.Popen[bytes]:
        environment = {
            **{key: value for key, value in os.environ.items() if "PELOPS" not in key},
            "PYTHONPATH": f"{ROOT / 'operator'}",
            "PELOPS_REDIS_URL": self._url,
            "PELOPS_STREAM": self.stream,
            "PELOPS_GROUP": GROUP,
            "PELOPS_CONSUMER": name,
            "PELOPS_IDLE_LIMIT_MS": "1500",
            **variables,
        }
        output = self._stack.enter_context(self._path(name).open("ab"))
        process = subprocess.Popen(
            [sys.executable, "-c", BEGINNING + script],
            env={key: value for key, value in environment.items() if value},
            stdout=output,
            stderr=output,
        )
        self._stack.callback(_end, process)
        return process

    def said(self, name: str) -> list[str]:
        return self._path(name).read_text().splitlines()

    def handled(self, name: str) -> list[str]:
        lines = [line for line in self.said(name) if line.startswith("handled ")]
        return [line.split()[1] for line in lines]

    def add(self, count: int = 1) -> list[str]:
        return [self.server.xadd(self.stream, {"n": str(n)}) for n in range(count)]

    def pending(self) -> dict[str, str]:
        """IDs and their owners."""
        found = self.server.xpending_range(self.stream, GROUP, "-", "+", 10_000)
        return {one["message_id"]: one["consumer"] for one in found}

    def close(self) -> None:
        self._stack.close()
        self.server.close()

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.log"


@pytest.fixture
def workers(empty_redis: StandaloneServers, key_prefix: str, tmp_path: Path) -> Iterator[Workers]:
    started = Workers(empty_redis.url, f"{key_prefix}orders", tmp_path)
    yield started
    started.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()


def _await(condition: Callable[[], Any], seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.02)


def test_sigterm_lets_handlers_finish_and_leaves_nothing_behind(workers: Workers) -> None:
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
    )
    workers.add(3)
    _await(lambda: sum("begun" in line for line in workers.said("one")) == 3)
    process.terminate()
    assert process.wait(20) == 0
    assert len(workers.handled("one")) == 3
    assert workers.pending() == {}
    assert workers.server.xinfo_consumers(workers.stream, GROUP) == []


def test_what_a_killed_worker_held_is_worked_by_another_without_an_operator(
    workers: Workers,
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
    _await(lambda: sum("begun" in line for line in workers.said("one")) == 20)
    process.kill()
    workers.start("two", QUICK)
    _await(lambda: workers.pending() == {})
    assert sorted(workers.handled("two")) == sorted(ids)


def test_a_worker_that_was_stopped_for_long_neither_acknowledges_nor_rejects(
    workers: Workers,
) -> None:
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
    )
    _await(lambda: workers.server.xinfo_consumers(workers.stream, GROUP))
    ids = workers.add(2)
    _await(lambda: any("begun" in line for line in workers.said("one")))
    first.send_signal(signal.SIGSTOP)
    workers.start(
        "two",
        """
@worker.handler
async def handle(entry):
    await asyncio.sleep(4)
    say("handled", entry.id)
worker.run()
""",
    )
    _await(lambda: set(workers.pending().values()) == {"two"} and len(workers.pending()) == 2)
    first.send_signal(signal.SIGCONT)
    _await(lambda: any("another worker" in line for line in workers.said("one")))
    assert set(workers.pending().values()) == {"two"}
    _await(lambda: workers.pending() == {})
    assert sorted(workers.handled("two")) == sorted(ids)
    assert not [key for key in workers.server.keys("*dlq*") if workers.server.xlen(key)]


def test_a_handler_that_blocks_the_loop_keeps_its_entries_for_a_bounded_time(
    workers: Workers,
) -> None:
    workers.start(
        "one",
        """
worker.settings = __import__("dataclasses").replace(worker.settings, blocked_s=5)
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    time.sleep(4 if entry["n"] == b"0" else 60)
    say("handled", entry.id)
worker.run()
""",
    )
    _await(lambda: workers.server.xinfo_consumers(workers.stream, GROUP))
    first = workers.add(1)
    _await(lambda: any("begun" in line for line in workers.said("one")))
    workers.start("two", QUICK)
    _await(lambda: workers.pending() == {})
    assert workers.handled("one") == first  # far longer than the idle limit, and not robbed
    assert workers.handled("two") == []


@pytest.mark.parametrize("missing", ["PELOPS_REDIS_URL", "PELOPS_STREAM", "PELOPS_GROUP"])
def test_a_missing_variable_is_named_and_ends_the_process(workers: Workers, missing: str) -> None:
    process = workers.start("one", QUICK, **{missing: ""})
    assert process.wait(20) != 0
    assert any(missing in line for line in workers.said("one"))


def test_what_handlers_leave_behind_does_not_keep_the_process(workers: Workers) -> None:
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
    _await(lambda: len(workers.handled("one")) == 3 and workers.pending() == {})
    process.terminate()
    assert process.wait(20) == 0


def test_handlers_that_are_not_async_run_beside_each_other(workers: Workers) -> None:
    process = workers.start(
        "one",
        """
barrier = threading.Barrier(5)
@worker.handler
def handle(entry):
    say("begun", entry.id)
    barrier.wait(20)
    say("handled", entry.id)
worker.run()
""",
        PELOPS_CONCURRENCY="5",
        PELOPS_IDLE_LIMIT_MS="30000",
    )
    workers.add(5)
    _await(lambda: len(workers.handled("one")) == 5 and workers.pending() == {})
    process.terminate()
    assert process.wait(20) == 0


def test_a_group_that_is_destroyed_and_made_again_is_worked_on(workers: Workers) -> None:
    workers.start("one", QUICK)
    workers.add(1)
    _await(lambda: len(workers.handled("one")) == 1)
    workers.server.xgroup_destroy(workers.stream, GROUP)
    _await(lambda: any("NoSuchGroup" in line for line in workers.said("one")))
    workers.server.xgroup_create(workers.stream, GROUP, "0")
    workers.add(1)
    _await(lambda: len(workers.handled("one")) == 3 and workers.pending() == {})


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
