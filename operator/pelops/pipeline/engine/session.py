"""The Spark session of a run."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.settings import PipelineSettings, TableFormat

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_LOOPBACK: Final = "127.0.0.1"
# Of a task that dies, as when a Python worker is killed for its memory, two more tries are made.
_MASTER: Final = "local[*, 3]"
_SHARE_OF_JVM: Final = 0.75  # of the memory limit
_PARTITIONS: Final = 8  # of a shuffle: what is shuffled is small
LONG_RUN: Final = 2_000_000  # entries; to look at more of them takes more than a minute
# For a JVM of a minute: the second compiler and more than one collector cost more than they save.
_SHORT_RUN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class LazySession:
    """A Spark session that is opened for the first who needs it, and for nobody else.

    To start Java takes some seconds and some hundred MiB.
    """

    def __init__(
        self, settings: PipelineSettings | None = None, given: SparkSession | None = None
    ) -> None:
        self._settings = settings
        self._found = given
        self._opening = Lock()
        self.interrupted = Event()  # what works without Spark is to end, and to tidy up

    def get(self, entries: int = LONG_RUN + 1) -> SparkSession:
        """The session; `entries`: about as many are looked at in it, when it is opened for them."""
        with self._opening:
            if self._found is None:
                assert self._settings is not None
                self._found = open_session(self._settings, entries)
            return self._found

    @property
    def context(self) -> SparkContext | None:
        """Where its jobs run; None as long as it is not open."""
        return None if self._found is None else self._found.sparkContext

    def stop(self) -> None:
        """Stop it, if it was opened."""
        if self._found is not None:
            self._found.stop()


def as_lazy(session: SparkSession | LazySession) -> LazySession:
    """A session that is open already, as one that would be opened."""
    return session if isinstance(session, LazySession) else LazySession(given=session)


def open_session(settings: PipelineSettings, entries: int = LONG_RUN + 1) -> SparkSession:
    """A session on the chosen master; one that exists, as under spark-submit, is used as it is."""
    from pyspark.sql import SparkSession

    _let_workers_import()
    options = session_options(settings, entries)
    if "spark.driver.bindAddress" in options:
        # Or the JVM looks for an address that others reach, and warns when it finds none.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    builder = SparkSession.builder.appName("pelops-audit")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def session_options(settings: PipelineSettings, entries: int = LONG_RUN + 1) -> dict[str, str]:
    """What the session is made with; what spark-submit was given wins where it concerns the JVM.

    `entries`: about as many are looked at in it.
    """
    options = {
        "spark.api.mode": "classic",  # whatever SPARK_API_MODE says
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
    is_reported = _is_submitted() or "PYSPARK_SUBMIT_ARGS" in os.environ
    of_java = [_SHORT_RUN] if entries <= LONG_RUN and not is_reported else []
    if os.environ.get("TMPDIR"):
        of_java.append(f"-Djava.io.tmpdir={os.environ['TMPDIR']}")
    if of_java:
        options["spark.driver.extraJavaOptions"] = " ".join(of_java)
    return options | _s3_options(settings) | _table_options(settings)


def _table_options(settings: PipelineSettings) -> dict[str, str]:
    """What Delta Lake asks of a session; the catalogs of Iceberg are the user's to name."""
    table = settings.status_table
    if table is None or table.format is not TableFormat.DELTA:
        return {}
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Each commit reads the table's log, which is short: not in fifty tasks.
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def _s3_options(settings: PipelineSettings) -> dict[str, str]:
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


def refuse_connect(settings: PipelineSettings) -> None:
    """Raise WrongSettings where a session would be one of Spark Connect."""

    server = os.environ.get("SPARK_REMOTE")
    if settings.master and settings.master.startswith("sc://"):
        problem = f"--master {settings.master} names a server of Spark Connect"
    elif server:
        problem = f"SPARK_REMOTE names a server of Spark Connect, {server}"
    elif "SPARK_CONNECT_MODE_ENABLED" in os.environ:  # as PySpark itself asks
        problem = "this program has a session of Spark Connect"
    else:
        return
    raise WrongPipelineSettings(
        f"{problem}, but the pipeline needs a classic session: it moves files and orders their"
        " rows through Java. Unset SPARK_REMOTE, and give the URL of a cluster by --master, use"
        " spark-submit, or leave --master out to run on this machine"
    )


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _let_workers_import() -> None:
    """Python workers find the packages where the driver found them."""
    found = find_spec("pyspark_redis_streams")
    assert found is not None and found.origin is not None
    root = str(Path(found.origin).parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    if root not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *([known] if known else [])])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
