"""All entries and none twice, whatever dies while they are read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.driver import run_batch, run_stream
from tests.spark.dying import dying_source
from tests.spark.streams import Streams

REPOSITORY = Path(__file__).parents[2]


def assert_whole(frame: DataFrame, number: int) -> None:
    """Exactly the entries numbered from 0 to `number`."""
    [row] = frame.selectExpr(
        "count(*) AS rows", "count(DISTINCT number) AS numbers", "count(DISTINCT id) AS ids",
        "min(number) AS least", "max(number) AS most",
    ).collect()  # fmt: skip
    assert row.asDict() == {
        "rows": number, "numbers": number, "ids": number, "least": 0, "most": number - 1,
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("kind", ["batch", pytest.param("stream", marks=pytest.mark.full)])
def test_a_task_that_dies_is_repeated_exactly(
    spark: SparkSession, streams: Streams, tmp_path: Path, kind: str
) -> None:
    streams.fill(100_000)
    marker, target = tmp_path / "died", tmp_path / "out"
    spark.dataSource.register(dying_source(marker))
    options = streams.options | {
        "stream": streams.name(), "startingId": "earliest", "minPartitions": "3",
        "batchRows": "1000",
    }  # fmt: skip
    run = run_batch if kind == "batch" else run_stream
    run(spark, options, str(target), source="dying_redis_streams")
    assert_whole(spark.read.parquet(str(target)), 100_000)
    assert marker.exists()


class Killed:
    """A driver in a process of its own, killed in mid-work and started again."""

    def __init__(self, kind: str, options: dict[str, Any], target: Path) -> None:
        self._arguments = [kind, json.dumps({"options": options, "target": str(target)})]
        self.log = target.parent / "driver.log"

    def kill_when(self, is_amid: Callable[[], bool]) -> None:
        """Start it, and end it with all its processes once the condition holds."""
        process = self._start()
        try:
            deadline = time.monotonic() + 120
            while not is_amid():
                assert process.poll() is None, self.log.read_text()[-3000:]
                assert time.monotonic() < deadline, "the driver never came so far"
                time.sleep(0.02)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(REPOSITORY / "operator"), str(REPOSITORY)])
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver", *self._arguments],
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def numbers_in(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.glob("*") if file.name.isdigit())


# How many entries, and after which micro-batches, or with how many parts, the driver is killed.
def kills(few: tuple[int, ...], many: tuple[int, ...]) -> pytest.MarkDecorator:
    marks = [pytest.mark.full, pytest.mark.timeout(1200)]
    cases = [(100_000, few), pytest.param(1_000_000, many, marks=marks)]
    return pytest.mark.parametrize(("entries", "killed_at"), cases, ids=["once", "three times"])


@pytest.mark.full
@kills(few=(3,), many=(1, 3, 5))
def test_a_streaming_query_that_is_killed_copies_each_entry_once(
    spark: SparkSession,
    streams: Streams,
    tmp_path: Path,
    entries: int,
    killed_at: tuple[int, ...],
) -> None:
    streams.fill(entries)
    target, checkpoint = tmp_path / "out", tmp_path / "out-checkpoint"
    options = streams.options | {
        "stream": streams.name(), "startingId": "earliest",
        "maxEntriesPerTrigger": str(entries // 10), "minPartitions": "4",
    }  # fmt: skip
    driver = Killed("stream", options, target)
    for after in killed_at:

        def amid_a_batch(after: int = after) -> bool:
            planned = numbers_in(checkpoint / "offsets")
            committed = numbers_in(checkpoint / "commits")
            return len(committed) >= after and len(planned) > len(committed)

        driver.kill_when(amid_a_batch)
    run_stream(spark, options, str(target))
    assert_whole(spark.read.parquet(str(target)), entries)


@pytest.mark.full
@kills(few=(2,), many=(1, 2, 3))
def test_a_batch_read_that_is_killed_copies_each_entry_once(
    spark: SparkSession,
    streams: Streams,
    tmp_path: Path,
    entries: int,
    killed_at: tuple[int, ...],
) -> None:
    streams.fill(entries)
    target = tmp_path / "out"
    options = streams.options | {"stream": streams.name(), "minPartitions": "8"}
    driver = Killed("batch", options, target)
    for parts in killed_at:

        def has_parts(parts: int = parts) -> bool:
            return len(list(target.glob("_temporary/0/task_*"))) >= parts

        driver.kill_when(has_parts)
    run_batch(spark, options, str(target))
    assert_whole(spark.read.parquet(str(target)), entries)
