"""The other ways to read a stream in Spark read it as they are said to, and CPU is not lost."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from benchmarks.spark_source_cpu import CpuSeconds, SparkMeter
from benchmarks.spark_source_others import PAGE, GroupReader, RowsReader
from benchmarks.spark_source_scene import STREAM, fill
from local_cluster.redis_servers import StandaloneServers, start_standalone

pytestmark = pytest.mark.full

ENTRIES = 5000


@pytest.fixture(scope="module")
def servers() -> Iterator[StandaloneServers]:
    with start_standalone("8.6") as running:
        fill(running.server.port, ENTRIES)
        yield running


@pytest.fixture
def options(servers: StandaloneServers) -> dict[str, str]:
    return {"port": str(servers.server.port), "path": STREAM, "entries": str(ENTRIES)}


def orders(reader: RowsReader, partition: InputPartition) -> list[int]:
    return [int(row[1]) for row in reader.read(partition)]


def test_rows_are_each_entry_once(options: dict[str, str]) -> None:
    reader = RowsReader(options)
    found = [number for part in reader.partitions() for number in orders(reader, part)]
    assert found == list(range(ENTRIES))


def test_a_repeated_task_of_the_group_misses_entries(
    options: dict[str, str],
) -> None:
    reader = GroupReader(options)
    part, other = reader.partitions()
    cut_off = reader.read(part)
    assert next(cut_off)[1] == "0000000000"
    assert orders(reader, part) == list(range(PAGE, ENTRIES))
    assert orders(reader, other) == []


# A parent that does not wait for its children, as Spark's daemon does not.
SPARK_OF_SORTS = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        while time.process_time() < 0.5:
            pass
        time.sleep(0.1)
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        print(flush=True)
"""


def test_what_a_worker_has_used_still_counts_when_it_has_ended(
    servers: StandaloneServers, tmp_path: Path
) -> None:
    java = tmp_path / "java"  # the meter knows a JVM by its name
    java.symlink_to("/bin/sh")
    process = servers.server.process
    assert process is not None
    command = [str(java), "-c", f'"{sys.executable}" -c "$0"; :', SPARK_OF_SORTS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as spark:
        assert spark.stdin is not None
        assert spark.stdout is not None
        stdin, stdout = spark.stdin, spark.stdout

        def work() -> None:
            stdin.write("\n")
            stdin.flush()
            stdout.readline()

        with SparkMeter(process.pid) as meter:
            work()
            used = meter.measure(work, entries=1_000_000)
        stdin.close()
    assert 0.4 < used.python < 1.5


def test_cpu_is_reported_for_a_million_entries() -> None:
    before = CpuSeconds(redis=1.0, jvm=2.0, python=3.0)
    after = CpuSeconds(redis=1.5, jvm=2.5, python=4.0)
    used = after.since(before, entries=500_000)
    assert (used.redis, used.jvm, used.python, used.total) == (1.0, 1.0, 2.0, 4.0)
