"""A Spark driver with Delta Lake, and deltalake without Spark, that write to one table in turn.

python -m tests.pipeline.delta_driver TABLE: what it finds is a line of JSON. With
PELOPS_AUDIT_S3_ENDPOINT the table may be in the bucket of that server.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

AT_ONCE = 4
_SCHEMA = pa.schema([("day", pa.int64()), ("number", pa.int64())])


def session_options(endpoint: str | None) -> dict[str, str]:
    """What a session with Delta Lake is made with."""
    options = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    if endpoint:
        options |= {
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    return options


def storage_options(endpoint: str | None) -> dict[str, str]:
    """What deltalake needs for the same store; the keys are in the environment."""
    if not endpoint:
        return {}
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def rows(day: int, numbers: range) -> pa.Table:
    return pa.table({"day": [day] * len(numbers), "number": list(numbers)}, schema=_SCHEMA)


def append(table: str, day: int, options: dict[str, str]) -> None:
    """Add ten rows, without Spark."""
    write_deltalake(
        table, rows(day, range(10)), mode="append", partition_by=["day"], storage_options=options
    )


def overwrite_again(table: str, options: dict[str, str], version: int) -> str:
    """What deltalake says to who writes in place of what another has changed meanwhile."""
    stale = DeltaTable(table, version=version, storage_options=options)
    try:
        write_deltalake(stale, rows(1, range(5)), mode="overwrite", predicate="day = 1")
    except CommitFailedError as error:
        return type(error).__name__
    return "no error"


def main(path: str) -> None:
    endpoint = os.environ.get("PELOPS_AUDIT_S3_ENDPOINT")
    options = storage_options(endpoint)
    table = path.replace("s3a://", "s3://")
    builder = SparkSession.builder.master("local[2]")
    for name, value in session_options(endpoint).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    found: dict[str, Any] = {}
    try:
        ids = "id % 2 AS day", "id AS number"
        spark.range(20).selectExpr(*ids).write.format("delta").partitionBy("day").save(path)
        found["written"] = DeltaTable(table, storage_options=options).to_pyarrow_table().num_rows
        append(table, 2, options)
        found["appended"] = spark.read.format("delta").load(path).count()
        one = spark.range(3).selectExpr("1L AS day", "id AS number").write.format("delta")
        one.mode("overwrite").option("replaceWhere", "day = 1").save(path)
        before = DeltaTable(table, storage_options=options)
        found["replaced"] = sorted(before.to_pyarrow_table()["day"].to_pylist())
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda day: append(table, day, options), range(10, 10 + AT_ONCE)))
        found["at once"] = spark.read.format("delta").load(path).count()
        one.mode("overwrite").option("replaceWhere", "day = 1").save(path)
        found["conflict"] = overwrite_again(table, options, before.version())
        found["version"] = DeltaTable(table, storage_options=options).version()
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
