"""The Spark session of a run: it opens on demand, logs progress, and ends jobs on Ctrl-C."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from pelops.pipeline.errors import WrongPipelineSettings
from pelops.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


log: Final = logging.getLogger(__name__)
_NAME: Final = "pelops-audit"
_LOOPBACK: Final = "127.0.0.1"
_TRIES: Final = 3  # of a task that dies, for example when a Python worker is OOM-killed
_OF_DRIVER_MIB: Final = 400  # for the driver's Python process and Java's memory outside the heap
_OF_CORE_MIB: Final = 300  # for the Python workers of one core
_LEAST_HEAP_MIB: Final = 512
FEW: Final = 200_000  # entries; up to this number, compiling the query costs more than it saves
LONG_RUN: Final = 2_000_000  # entries; an audit of more takes more than a minute
_OF_A_PARTITION: Final = 500_000  # rows of a shuffle
# If the JVM runs for a minute, the C2 compiler and a parallel collector cost more than they save.
_SHORT_RUN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DELTA: Final = "io.delta:delta-spark_4.2_2.13"
# A task or commit retries requests that time out or are refused with 503 for about a minute. With
# Hadoop's defaults, it would retry for hours.
_PATIENCE: Final = {
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "10s",
    "fs.s3a.attempts.maximum": "1",
    "fs.s3a.retry.limit": "4",
    "fs.s3a.retry.throttle.limit": "6",
    "fs.s3a.retry.throttle.interval": "500ms",
}
_CPU_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a run in its session."""

    spark: str  # version of Spark
    master: str
    jobs: int
    tasks: int


class LazySession:
    """A Spark session that opens at the first use, or never.

    Starting Java takes a few seconds and a few hundred MiB.
    """

    def __init__(
        self, settings: PipelineSettings | None = None, given: SparkSession | None = None
    ) -> None:
        self._settings = settings
        self._found = given
        self._opening = Lock()
        self.interrupted = Event()  # work outside of Spark must end and clean up
        self._run = ""

    def begin_run(self) -> None:
        """Begin another run: count jobs from here on separately."""
        self._run = f"{_NAME}-{uuid4().hex}"

    def get(self, entries: int | None = None) -> SparkSession:
        """The session, tuned for about `entries` entries; None: as before.

        Jobs that the calling thread starts in it belong to the run.
        """
        with self._opening:
            if self._found is None:
                assert self._settings is not None
                self._found = open_session(
                    self._settings, LONG_RUN + 1 if entries is None else entries
                )
            if entries is not None:
                _tune(self._found, entries)
            # The session may be shared: only jobs of this group are counted, and ended on Ctrl-C.
            self._found.sparkContext.setJobGroup(self._run, _NAME, interruptOnCancel=False)
            return self._found

    @property
    def context(self) -> SparkContext | None:
        """The Spark context; None while the session is not open."""
        return None if self._found is None else self._found.sparkContext

    def count_work(self) -> Work | None:
        """Jobs and tasks of the run so far; None while the session is not open."""
        if self._found is None:
            return None
        context = self._found.sparkContext
        tracker = context.statusTracker()
        jobs = list(tracker.getJobIdsForGroup(self._run))
        infos = [tracker.getJobInfo(job) for job in jobs]
        stages = {stage for info in infos if info is not None for stage in info.stageIds}
        stage_infos = [tracker.getStageInfo(stage) for stage in stages]
        return Work(
            spark=context.version,
            master=context.master or "",
            jobs=len(jobs),
            tasks=sum(one.numTasks for one in stage_infos if one is not None),
        )

    def cancel_jobs(self) -> None:
        """Cancel the running jobs of the run."""
        if self._found is not None:
            self._found.sparkContext.cancelJobGroup(self._run)

    def is_lost(self) -> bool:
        """Whether the session was opened and its JVM no longer answers."""
        if self._found is None:
            return False
        try:
            _ = self._found.sparkContext.defaultParallelism
        except (Py4JError, OSError):
            return True
        return False

    def stop(self) -> None:
        """Stop the session if it was opened here, not if it existed before."""
        if self._found is not None and self._found.sparkContext.appName == _NAME:
            with suppress(OSError):  # its JVM has ended
                self._found.stop()


def _tune(session: SparkSession, entries: int) -> None:
    """Set the options that depend on the number of entries."""
    is_few = entries <= FEW
    cores = session.sparkContext.defaultParallelism
    partitions = max(1 if is_few else cores, entries // _OF_A_PARTITION)
    options = {
        "spark.sql.shuffle.partitions": str(min(partitions, 400)),
        # A broadcast is a job of its own.
        "spark.sql.autoBroadcastJoinThreshold": "-1" if is_few else "64MB",
        "spark.sql.codegen.wholeStage": str(not is_few).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if is_few else "FALLBACK",
    }
    for name, value in options.items():
        session.conf.set(name, value)


def open_session(settings: PipelineSettings, entries: int = LONG_RUN + 1) -> SparkSession:
    """Open a session on the chosen master, or use the existing one (spark-submit)."""
    from pyspark.sql import SparkSession

    _let_workers_import()
    options = session_options(settings, entries)
    if "spark.driver.bindAddress" in options:
        # Otherwise the JVM searches for an external address, and warns if there is none.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    builder = SparkSession.builder.appName(_NAME)
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    given = session.sparkContext.getConf()
    for name, value in _PATIENCE.items():
        if not given.contains(f"spark.hadoop.{name}"):
            session.conf.set(name, value)
    return session


def session_options(settings: PipelineSettings, entries: int = LONG_RUN + 1) -> dict[str, str]:
    """Options of the session. JVM options that spark-submit was given have priority.

    `entries`: approximate number of entries to audit.
    """
    cores = choose_cores(settings)
    options = {
        "spark.api.mode": "classic",  # overrides SPARK_API_MODE
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # One job per query of any size: the number of jobs does not depend on data.
        "spark.sql.adaptive.enabled": "false",
        # It compares each pair of conditions, of which this plan has many.
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        # Tables are read and written by their paths. Delta's catalog is not needed, and does not
        # support the Redis data source.
        "spark.databricks.delta.requiredSparkConfsCheck.enabled": "false",
        # Each commit reads the table's log, which is short: one task instead of fifty.
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    if settings.master or not _is_submitted():
        options["spark.master"] = settings.master or f"local[{cores}, {_TRIES}]"
    if settings.memory_mib:
        heap_mib = settings.memory_mib - _OF_DRIVER_MIB - _OF_CORE_MIB * cores
        options["spark.driver.memory"] = f"{max(_LEAST_HEAP_MIB, heap_mib)}m"
    if options.get("spark.master", "").startswith("local"):
        options |= {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
    if not _is_submitted() and not _has_delta():
        # The PyPI package does not include the jars: Spark downloads them once.
        options["spark.jars.packages"] = f"{_DELTA}:{version('delta-spark')}"
    is_reported = _is_submitted() or "PYSPARK_SUBMIT_ARGS" in os.environ
    of_java = [_SHORT_RUN] if entries <= LONG_RUN and not is_reported else []
    if os.environ.get("TMPDIR"):
        of_java.append(f"-Djava.io.tmpdir={os.environ['TMPDIR']}")
    if of_java:
        options["spark.driver.extraJavaOptions"] = " ".join(of_java)
    return options | _s3_options(settings)


def _has_delta() -> bool:
    """Whether Spark's jars include Delta Lake."""
    home = os.environ.get("SPARK_HOME")
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    spark = Path(home) if home else Path(found.origin).parent
    return any((spark / "jars").glob("*delta-spark*.jar"))


def choose_cores(settings: PipelineSettings) -> int:
    """Number of cores for a local session: up to the CPU limit, and as the memory permits."""
    cores = min(len(os.sched_getaffinity(0)), _limit_of_cpus(_CPU_LIMIT))
    if settings.memory_mib:
        room_mib = settings.memory_mib - _OF_DRIVER_MIB - _LEAST_HEAP_MIB
        cores = min(cores, room_mib // _OF_CORE_MIB)
    return max(1, cores)


def _limit_of_cpus(file: Path) -> int:
    """The CPU limit of this container, rounded up.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    try:
        quota, period = file.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # cgroup v1, or no limit
        return os.cpu_count() or 1


def _s3_options(settings: PipelineSettings) -> dict[str, str]:
    # Uploads to a store are buffered in files, and /tmp may not be writable.
    options = {"spark.hadoop.hadoop.tmp.dir": "${java.io.tmpdir}/hadoop-${user.name}"}
    if settings.s3_endpoint:
        options["spark.hadoop.fs.s3a.endpoint"] = settings.s3_endpoint
        options["spark.hadoop.fs.s3a.path.style.access"] = "true"
        # The default region of self-hosted stores, which s3a would not use.
        options["spark.hadoop.fs.s3a.endpoint.region"] = "us-east-1"
    if settings.s3_region:
        options["spark.hadoop.fs.s3a.endpoint.region"] = settings.s3_region
    return options


def refuse_connect(settings: PipelineSettings) -> None:
    """Raise WrongPipelineSettings if the session would be one of Spark Connect."""

    server = os.environ.get("SPARK_REMOTE")
    if settings.master and settings.master.startswith("sc://"):
        problem = f"--master {settings.master} names a server of Spark Connect"
    elif server:
        problem = f"SPARK_REMOTE names a server of Spark Connect, {server}"
    elif "SPARK_CONNECT_MODE_ENABLED" in os.environ:  # the check of PySpark
        problem = "this program has a session of Spark Connect"
    else:
        return
    raise WrongPipelineSettings(
        f"{problem}, but the pipeline needs a classic session: it asks Java for the progress"
        " of jobs. Unset SPARK_REMOTE, and give the URL of a cluster by --master, use"
        " spark-submit, or leave --master out to run on this machine"
    )


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _let_workers_import() -> None:
    """Let Python workers import packages from the same place as the driver."""
    spec = find_spec("pyspark_redis_streams")
    assert spec is not None and spec.origin is not None
    root = str(Path(spec.origin).parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    if root not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *([known] if known else [])])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


PROGRESS_EVERY_S: Final = 10.0


@contextmanager
def progress_reported(session: LazySession, every_s: float = PROGRESS_EVERY_S) -> Iterator[None]:
    """Log the progress of running jobs while the block lasts."""
    ended = threading.Event()
    arguments = (session, ended, every_s)
    reporter = threading.Thread(
        target=_report_progress, args=arguments, name="progress", daemon=True
    )
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join(timeout=5)


def _report_progress(session: LazySession, ended: threading.Event, every_s: float) -> None:
    while not ended.wait(every_s):
        context = session.context
        if context is None:
            continue
        try:
            progress = describe_tasks(context)
        except (Py4JError, OSError):
            return  # the JVM has ended: the run reports why
        if progress is not None:
            log.info("%s", progress)


def describe_tasks(context: SparkContext) -> str | None:
    """The number of finished tasks of the active stages; None between stages."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    running = [stage for stage in stages if stage is not None]
    if not running:
        return None
    done = sum(stage.numCompletedTasks for stage in running)
    return f"running: {done} of {sum(stage.numTasks for stage in running)} tasks of this step done"


_CHECK_EVERY_S: Final = 0.2


def run_interruptibly(session: LazySession, action: Callable[[], int]) -> int:
    """Return the result of the action. On an interrupt, end it and raise KeyboardInterrupt.

    It runs in its own thread: if an interrupt cut off a reply of Java, that would be read as the
    reply to the next request. A second interrupt does not wait for the action.
    """
    answer: Future[int] = Future()
    worker = threading.Thread(target=_work, args=(action, answer), name="work", daemon=True)
    with _plain_interrupts():
        try:
            worker.start()
            # The kernel may deliver a signal to any thread, which does not wake this one.
            while not answer.done():
                wait([answer], timeout=_CHECK_EVERY_S)
            return answer.result()
        except KeyboardInterrupt:
            log.warning("interrupted: canceling running jobs")
            _end_jobs(session, answer)
            raise


def _work(action: Callable[[], int], answer: Future[int]) -> None:
    try:
        answer.set_result(action())
    except BaseException as error:
        answer.set_exception(error)


def _end_jobs(session: LazySession, answer: Future[int]) -> None:
    session.interrupted.set()
    while not answer.done():
        # The action may be between two jobs: then cancel the next one.
        with suppress(Py4JError, OSError):
            session.cancel_jobs()
        wait([answer], timeout=_CHECK_EVERY_S)


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Replace Spark's SIGINT handler, which would call Java during another call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
