"""Spark and deltalake write to one Delta table, on a local disk and in an object store."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from local_cluster.processes import Process, start_process
from tests.pipeline.s3_store import BUCKET, REPOSITORY, S3Store

RUN_S = 240.0
PROGRAM = ["-m", "tests.pipeline.delta_driver"]
FOUND = {
    "written": 20,
    "appended": 30,
    "replaced": [0] * 10 + [1] * 3 + [2] * 10,
    "at once": 63,
    # Each reader and writer sees the other's commits: none is lost, and none is written over.
    "conflict": "CommitFailedError",
    "version": 7,
}


def found_by(process: Process) -> object:
    try:
        assert process.ends_within(RUN_S), process.tail(40)
    finally:
        process.kill()
    said = process.log.read_text()
    assert process.exit_code == 0, said[-3000:]
    return json.loads(said.splitlines()[-1])


@pytest.mark.full
def test_spark_and_deltalake_share_a_table_on_a_local_disk(
    spark_jars: None, tmp_path: Path
) -> None:
    process = start_process(
        "driver",
        [sys.executable, *PROGRAM, str(tmp_path / "table")],
        log=tmp_path / "log",
        cwd=REPOSITORY,
    )
    assert found_by(process) == FOUND


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_spark_and_deltalake_share_a_table_in_an_object_store(
    store: S3Store, tmp_path: Path
) -> None:
    table = f"s3a://{BUCKET}/{tmp_path.name}/table"
    assert found_by(store.run([*PROGRAM, table], tmp_path / "log")) == FOUND
