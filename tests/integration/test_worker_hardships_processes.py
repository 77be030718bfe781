"""Worker processes that are stopped, blocked, killed, given huge entries or a wrong clock."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from local_cluster.processes import free_port
from tests.faults.skewing import NoFaketime, skewed_environment
from tests.worker_process import QUICK, WorkerProcesses, memory_mb, until

HOLDING = """
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    await asyncio.sleep(1000)
worker.run()
"""


@pytest.mark.full
def test_a_blocked_event_loop_fails_liveness_and_loses_its_entries(
    workers: WorkerProcesses, tmp_path: Path
) -> None:
    port, going_on = free_port(), tmp_path / "go-on"
    limit = {"PELOPS_IDLE_LIMIT_MS": "4000"}
    workers.start(
        "one",
        """
settings(blocked_s=8.0)
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    while not os.path.exists(os.environ["GOING_ON"]):
        time.sleep(0.01)
worker.run()
""",
        PELOPS_HEALTH_PORT=str(port),
        GOING_ON=str(going_on),
        **limit,
    )
    until(lambda: ask(port, "readyz") == 200)
    (entry_id,) = workers.add(1)
    until(lambda: workers.ids("one", "begun"))
    workers.start("two", HOLDING, **limit)
    until(lambda: "is blocked" in workers.said("one"))
    assert ask(port, "livez") == 200
    assert workers.pending() == {entry_id: "one"}
    until(lambda: ask(port, "livez") == 503)
    until(lambda: workers.pending() == {entry_id: "two"})
    going_on.touch()
    until(lambda: "now belongs to another consumer" in workers.said("one"))
    until(lambda: ask(port, "livez") == ask(port, "readyz") == 200)
    assert workers.pending() == {entry_id: "two"}


def ask(port: int, path: str) -> int:
    """The status of an answer; 0: there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
    except OSError:
        return 0


@pytest.mark.full
def test_a_clock_that_jumps_costs_a_worker_nothing(
    workers: WorkerProcesses, tmp_path: Path
) -> None:
    try:
        skewed = dict(skewed_environment(1))
    except NoFaketime as missing:
        pytest.skip(str(missing))
    clock, limit = tmp_path / "clock", {"PELOPS_IDLE_LIMIT_MS": "3000"}
    clock.write_text("+0s")
    del skewed["FAKETIME"]
    workers.start(
        "one",
        """
@worker.handler
async def handle(entry):
    began = time.time()
    say("begun", entry.id)
    for jump in (1, -1):
        while (time.time() - began) * jump < 1800:
            await asyncio.sleep(0.01)
        say("seen", entry.id, entry.age_s >= 0, entry.remaining > 0)
        await asyncio.sleep(4)  # longer than the processing timeout
    say("handled", entry.id)
worker.run()
""",
        **skewed,
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_NO_CACHE="1",
        **limit,
    )
    (entry_id,) = workers.add(1)
    until(lambda: workers.ids("one", "begun"))
    workers.start("two", QUICK, **limit)
    until(lambda: len(workers.consumers()) == 2)
    clock.write_text("+1h")
    until(lambda: len(workers.ids("one", "seen")) == 1)
    clock.write_text("-1h")
    until(lambda: workers.pending() == {})
    assert (workers.ids("one"), workers.ids("two")) == ([entry_id], [])
    assert workers.said("one").count("True True") == 2


@pytest.mark.full
def test_the_memory_of_an_entry_of_100_mb_is_freed(
    workers: WorkerProcesses,
) -> None:
    process = workers.start(
        "one",
        """
@worker.handler
async def handle(entry):
    say("handled", entry.id, len(entry["body"]))
worker.run()
""",
        PELOPS_IDLE_LIMIT_MS="30000",
    )
    workers.add(20, body="small")
    until(lambda: len(workers.ids("one")) == 20 and workers.pending() == {})
    before = memory_mb(process)["now"]
    workers.add(1, body=b"x" * 100_000_000)
    workers.add(20, body="small")
    until(lambda: len(workers.ids("one")) == 41 and workers.pending() == {})
    assert "100000000" in workers.said("one")
    assert memory_mb(process)["peak"] < before + 400
    until(lambda: memory_mb(process)["now"] < before + 50)


def test_sigterm_before_redis_answers_ends_a_worker_in_good_order(
    workers: WorkerProcesses,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        process = workers.start("one", QUICK, PELOPS_REDIS_URL=url)
        connection, _ = silent.accept()
        with connection:
            process.terminate()
            assert process.wait(60) == 0
    gone = f"redis://127.0.0.1:{free_port()}"
    process = workers.start("two", QUICK, PELOPS_REDIS_URL=gone)
    until(lambda: "cannot be reached" in workers.said("two"))
    process.terminate()
    assert process.wait(60) == 0


STUBBORN = """
settings(concurrency=2)
@worker.handler
async def handle(entry):
    say("begun", entry.id)
    try:
        await asyncio.sleep(1000)
    finally:
        say("ended", entry.id)
worker.run()
"""


@pytest.mark.parametrize(("grace_s", "signals"), [("0.2", 1), ("1000", 2)])
def test_handlers_beyond_the_grace_period_or_second_sigterm_are_canceled(
    workers: WorkerProcesses, grace_s: str, signals: int
) -> None:
    port = free_port()
    reported = {"PELOPS_GRACE_SECONDS": grace_s, "PELOPS_HEALTH_PORT": str(port)}
    one = workers.start("one", STUBBORN, **reported)
    ids = workers.add(5)
    until(lambda: len(workers.ids("one", "begun")) == 2 and ask(port, "readyz") == 200)
    for _ in range(signals):
        assert one.poll() is None
        one.terminate()
        until(lambda: ask(port, "readyz") != 200)
    assert one.wait(60) == 0
    assert sorted(workers.ids("one", "ended")) == sorted(ids[:2])
    assert "canceling 2 running handlers" in workers.said("one")
    workers.start("two", QUICK)
    until(lambda: sorted(workers.ids("two")) == sorted(ids) and workers.pending() == {})
    assert workers.letters() == []
