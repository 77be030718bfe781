"""The workers that are measured do all that they were given, and the numbers are of all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.raw_redis import RawRedis
from benchmarks.worker import MAX_IMPORT_CPU_S, judge_cpu, judge_rate
from benchmarks.worker_contestants import CONTESTANTS
from benchmarks.worker_import import measure_import
from benchmarks.worker_memory import watch_memory
from benchmarks.worker_meter import CONCURRENCY, Kind
from benchmarks.worker_peers import installed_peers
from benchmarks.worker_run import (
    AROUND_FEW,
    KEYS,
    Contestant,
    Outcome,
    WorkerFailed,
    owed,
    run_once,
    separate,
)
from local_cluster.redis_servers import StandaloneServers

pytestmark = pytest.mark.full

OWN = [name for name, one in CONTESTANTS.items() if not one.is_peer]
PEERS = [name for name, one in CONTESTANTS.items() if one.is_peer]
FEW = 500


def an_outcome(*, per_s: float = 1.0, cpu_s: float = 1.0) -> Outcome:
    return Outcome(
        per_s=per_s,
        cpu_s_per_100k=cpu_s,
        redis_cpu_s_per_100k=0.2,
        most_at_once=0,
        peak_rss_mib=30.0,
    )


def check_run(servers: StandaloneServers, name: str, python: Path, kind: Kind) -> None:
    port = servers.server.port
    outcome = run_once(CONTESTANTS[name], python, port, kind=kind, count=FEW)
    assert outcome.per_s > 0
    assert outcome.cpu_s_per_100k > 0
    assert 5 < outcome.peak_rss_mib < 500
    least = 2 if kind == "sleep" and name != "one_by_one" else 0
    assert least <= outcome.most_at_once <= CONCURRENCY
    with RawRedis(port) as raw:
        assert owed(raw) == 0
        assert raw.call("XLEN", KEYS.stream) == FEW + 2 * AROUND_FEW


@pytest.mark.parametrize("kind", ["noop", "sleep"])
@pytest.mark.parametrize("name", OWN)
def test_each_of_our_loops_works_everything(
    empty_redis_86: StandaloneServers, name: str, kind: Kind
) -> None:
    check_run(empty_redis_86, name, Path(sys.executable), kind)


@pytest.mark.parametrize("name", PEERS)
def test_other_libraries_work_everything_where_they_are_installed(
    empty_redis_86: StandaloneServers, name: str
) -> None:
    python = installed_peers()
    if python is None:
        pytest.skip("python -m benchmarks.worker has not installed the other libraries here")
    check_run(empty_redis_86, name, python, "sleep")


def test_a_failed_worker_is_an_error_with_its_output(
    empty_redis_86: StandaloneServers,
) -> None:
    broken = Contestant(argv=("benchmarks.worker_loops", "no-such-loop"), how="it fails")
    with pytest.raises(WorkerFailed, match="no-such-loop"):
        run_once(broken, Path(sys.executable), empty_redis_86.server.port, kind="noop", count=FEW)


def test_memory_is_measured_until_all_entries_are_acknowledged(
    empty_redis_86: StandaloneServers,
) -> None:
    port = empty_redis_86.server.port
    assert len(watch_memory(port, entries=6000, at_once=2000)) == 4
    with RawRedis(port) as raw:
        assert owed(raw) == 0


def test_a_target_is_the_median_of_the_ratios() -> None:
    found = {
        "ours": [an_outcome(per_s=rate) for rate in (90.0, 10.0, 100.0)],
        "batched": [an_outcome(per_s=rate) for rate in (100.0, 10.0, 10.0)],
    }
    rate = judge_rate("noop", found)
    assert rate.value == 1.0
    assert rate.met


def test_what_was_not_measured_is_not_met() -> None:
    found = {"ours": [an_outcome()], "batched": [an_outcome()]}
    assert judge_rate("sleep", found).met
    cpu = judge_cpu({"noop": found | {"faststream_batch": [an_outcome()]}, "sleep": found})
    assert cpu.value is None
    assert not cpu.met


def test_the_worse_share_of_the_cpu_counts() -> None:
    def using(cpu_s: float) -> dict[str, list[Outcome]]:
        return {"ours": [an_outcome(cpu_s=1.0)], "faststream_batch": [an_outcome(cpu_s=cpu_s)]}

    assert judge_cpu({"noop": using(4.0), "sleep": using(2.0)}).met
    assert not judge_cpu({"noop": using(4.0), "sleep": using(1.9)}).met


def test_importing_the_worker_takes_no_more_processor_time_than_is_promised() -> None:
    assert 0 < measure_import() < MAX_IMPORT_CPU_S


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_no_worker_may_run_where_the_server_does() -> None:
    argv = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(argv, stdin=subprocess.PIPE) as server,
        subprocess.Popen(argv, stdin=subprocess.PIPE) as worker,
    ):
        assert separate(server.pid, is_server=True)
        assert separate(worker.pid, is_server=False)
        used = os.sched_getaffinity(server.pid)
        assert used and not used & os.sched_getaffinity(worker.pid)
        for process in (server, worker):
            process.kill()
