"""The Spark session of a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import pyspark_redis_streams
from pelops.pipeline.settings import Settings, TableFormat

_LOOPBACK: Final = "127.0.0.1"
# Of a task that dies, as when a Python worker is killed for its memory, two more tries are made.
_MASTER: Final = "local[*, 3]"
_SHARE_OF_JVM: Final = 0.75  # of the memory limit
_PARTITIONS: Final = 8  # of a shuffle: what is shuffled is small


def open_session(settings: Settings) -> SparkSession:
    """A session on the chosen master; one that exists, as under spark-submit, is used as it is."""
    _let_workers_import()
    options = session_options(settings)
    if "spark.driver.bindAddress" in options:
        # Or the JVM looks for an address that others reach, and warns when it finds none.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    builder = SparkSession.builder.appName("pelops-audit")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def session_options(settings: Settings) -> dict[str, str]:
    """What the session is made with; what spark-submit was told wins where it concerns the JVM."""
    options = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(_PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Most queries are small: see `write_part`.
        "spark.sql.codegen.wholeStage": "false",
        # Order within a file is what makes IDs small: rows are never moved about to balance tasks.
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    if settings.master or not _is_submitted():
        options["spark.master"] = settings.master or _MASTER
    if settings.memory_mib:
        options["spark.driver.memory"] = f"{max(512, int(settings.memory_mib * _SHARE_OF_JVM))}m"
    if options.get("spark.master", "").startswith("local"):
        options |= {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
    if os.environ.get("TMPDIR"):
        options["spark.driver.extraJavaOptions"] = f"-Djava.io.tmpdir={os.environ['TMPDIR']}"
    return options | _s3_options(settings) | _table_options(settings)


def _table_options(settings: Settings) -> dict[str, str]:
    """What Delta Lake asks of a session; the catalogs of Iceberg are the user's to name."""
    table = settings.status_table
    if table is None or table.format is not TableFormat.DELTA:
        return {}
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _s3_options(settings: Settings) -> dict[str, str]:
    # What is on its way to a store waits in a file, and /tmp may be no place for files.
    options = {"spark.hadoop.hadoop.tmp.dir": "${java.io.tmpdir}/hadoop-${user.name}"}
    if settings.s3_endpoint:
        options["spark.hadoop.fs.s3a.endpoint"] = settings.s3_endpoint
        options["spark.hadoop.fs.s3a.path.style.access"] = "true"
        # What a store of one's own calls its region unless told; s3a would take another.
        options["spark.hadoop.fs.s3a.endpoint.region"] = "us-east-1"
    if settings.s3_region:
        options["spark.hadoop.fs.s3a.endpoint.region"] = settings.s3_region
    return options


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _let_workers_import() -> None:
    """Python workers find the packages where the driver found them."""
    root = str(Path(pyspark_redis_streams.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    if root not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *([known] if known else [])])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
