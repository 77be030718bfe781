"""A Structured Streaming query that consumes a stream: `python -m tests.e2e.spark_query JSON`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet

import pyspark_redis_streams
from local_cluster.processes import Process, start_process
from tests.spark.driver import build_session

ROOT = Path(__file__).parents[2]
PACKAGES = Path(pyspark_redis_streams.__file__).parent.parent


def main(text: str) -> None:
    """Copy the stream to Parquet, micro-batch by micro-batch, until killed."""
    given = json.loads(text)
    frame = build_session().readStream.format("redis_streams").options(**given["options"])
    writing = frame.schema("id STRING").load().writeStream.format("parquet")
    writing = writing.option("path", given["target"])
    writing = writing.option("checkpointLocation", f"{given['target']}-checkpoint")
    writing.trigger(processingTime="1 second").start().awaitTermination()


def start_query(directory: Path, options: dict[str, str]) -> Process:
    """Start the query, or start it again from its checkpoint."""
    given = json.dumps({"options": options, "target": str(directory / "orders")})
    return start_process(
        "query",
        [sys.executable, "-m", "tests.e2e.spark_query", given],
        log=directory / "query.log",
        env=os.environ
        | {
            # As an installed one is found: by Spark's own look at what Python may import.
            "PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
        },
        cwd=ROOT,
    )


def read_copied(directory: Path) -> list[str]:
    """The IDs that the query has written, as its own log of files has them."""
    target = directory / "orders"
    files = {line for log in (target / "_spark_metadata").glob("[0-9]*") for line in _files(log)}
    tables = [pyarrow.parquet.read_table(target / name) for name in files]
    return sorted(entry_id for table in tables for entry_id in table.column("id").to_pylist())


def _files(log: Path) -> Iterator[str]:
    for line in log.read_text().splitlines():
        if line.startswith("{"):
            yield Path(json.loads(line)["path"]).name


if __name__ == "__main__":
    main(sys.argv[1])
