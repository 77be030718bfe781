"""A Spark driver of its own, for tests that kill it: `python -m tests.spark.driver KIND JSON`."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.query import finish

SCHEMA = "id STRING, number BIGINT, tenant STRING"


def build_session() -> SparkSession:
    """A small local Spark; a task may fail twice, and what is retried must come out the same."""
    session = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.driver.memory", "1g")
        # Short lives: what the second compiler saves costs more than it brings.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.constraintPropagation.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def run_batch(
    spark: SparkSession, options: dict[str, str], target: str, *, source: str = "redis_streams"
) -> None:
    """Copy the range that the options name, in place of what an earlier run has left."""
    frame = spark.read.format(source).options(**options).schema(SCHEMA).load()
    frame.write.mode("overwrite").parquet(target)


def run_stream(
    spark: SparkSession, options: dict[str, str], target: str, *, source: str = "redis_streams"
) -> None:
    """Copy what there is, micro-batch by micro-batch, from where an earlier run has come to."""
    frame = spark.readStream.format(source).options(**options).schema(SCHEMA).load()
    writing = frame.writeStream.format("parquet").option("path", target)
    writing = writing.option("checkpointLocation", f"{target}-checkpoint")
    finish(writing.trigger(availableNow=True).start)


def main(arguments: list[str]) -> None:
    kind, text = arguments
    given: dict[str, Any] = json.loads(text)
    run = run_batch if kind == "batch" else run_stream
    run(build_session(), given["options"], given["target"])


if __name__ == "__main__":
    main(sys.argv[1:])
