"""The workers that are measured do all that they were given, and the numbers are of all of it."""

import sys
from pathlib import Path

import pytest

from benchmarks.raw_redis import RawRedis
from benchmarks.worker import MAX_IMPORT_CPU_S, judge_cpu, judge_rate
from benchmarks.worker_contestants import CONTESTANTS
from benchmarks.worker_import import measure_import
from benchmarks.worker_meter import CONCURRENCY, Kind
from benchmarks.worker_run import (
    AROUND_FEW,
    KEYS,
    Outcome,
    owed,
    run_once,
)
from local_cluster.redis_servers import StandaloneServers

pytestmark = pytest.mark.full

OWN = [name for name, one in CONTESTANTS.items() if not one.is_peer]
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


def test_what_was_not_measured_is_not_met() -> None:
    found = {"ours": [an_outcome()], "batched": [an_outcome()]}
    assert judge_rate("sleep", found).met
    cpu = judge_cpu({"noop": found | {"faststream_batch": [an_outcome()]}, "sleep": found})
    assert cpu.value is None
    assert not cpu.met


def test_importing_the_worker_takes_no_more_processor_time_than_is_promised() -> None:
    assert 0 < measure_import() < MAX_IMPORT_CPU_S
