"""A stream of orders, a Spark beside it, and the ways in which that reads this."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import pyspark_redis_streams
from benchmarks.pending import require
from benchmarks.raw_redis import RawRedis, pack
from benchmarks.spark_source_others import (
    GROUP,
    TASKS,
    DyingSource,
    GroupSource,
    RowsSource,
    entry_id,
)

STREAM: Final = "orders"
COLUMNS: Final = "tenant STRING, order_id STRING, qty INT, amount DOUBLE, payload STRING"
COMPUTED: Final = "ms BIGINT, seq BIGINT, hash BIGINT, bytes BIGINT, _original_id STRING"
COMPUTED_OPTIONS: Final = {
    "computed": "hash,bytes", "trailingFields": "_original_id,_retry_count",
}  # fmt: skip
TOGETHER: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to read all of the stream."""

    how: str  # for the report
    source: str
    schema: str = COLUMNS
    options: Mapping[str, str] | None = None
    to_parquet: bool = False


WAYS: Final[Mapping[str, Way]] = {
    "ours": Way(how="this source, five declared columns", source="redis_streams"),
    "rows": Way(how="a data source of 20 lines: redis-py, XRANGE, tuples", source="redis_py_rows"),
    "group": Way(
        how="as spark-redis reads (emulated): XGROUP SETID, XREADGROUP NOACK, tuples",
        source="redis_group_rows",
    ),
    "computed": Way(
        how="this source, ID, hash, size and a trailing field in place of the fields",
        source="redis_streams",
        schema=COMPUTED,
        options=COMPUTED_OPTIONS,
    ),
    "archive": Way(
        how="the same to Parquet (zstd)",
        source="redis_streams",
        schema=COMPUTED,
        options=COMPUTED_OPTIONS,
        to_parquet=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where the ways are measured."""

    spark: SparkSession
    port: int
    entries: int
    directory: Path

    def read(self, way: Way) -> None:
        """All of the stream, once."""
        frame = self.load(way.source, way.schema, way.options or {})
        if way.to_parquet:
            frame.write.mode("overwrite").parquet(str(self.directory / "archive"))
        else:
            frame.write.format("noop").mode("overwrite").save()

    def missed_after_death(self, source: str) -> int:
        """How many entries a query does not see, one of whose workers is killed on its way."""
        marker = self.directory / f"{source}-died"
        options = {"diesAfter": str(self.entries // 4), "marker": str(marker)}
        frame = self.load(source, COLUMNS, options)
        seen = frame.agg(F.count_distinct("order_id")).collect()[0][0]
        require(int(marker.exists()), 1, f"workers of {source} that died")
        return self.entries - int(seen)

    def load(self, source: str, schema: str, options: Mapping[str, str]) -> DataFrame:
        """What this source reads; the others need the number of entries."""
        given = {"port": str(self.port), **options}
        if source in ("redis_py_rows", "redis_group_rows"):
            given["entries"] = str(self.entries)
        else:
            given["minPartitions"] = str(TASKS)
        return self.spark.read.format(source).options(**given).schema(schema).load(STREAM)


@contextmanager
def open_scene(port: int, entries: int) -> Iterator[Scene]:
    """A stream on this server and a session; both tasks may be run again."""
    fill(port, entries)
    with tempfile.TemporaryDirectory(prefix="spark-source-") as directory:
        spark = _open_session(Path(directory))
        try:
            for source in (RowsSource, GroupSource, DyingSource):
                spark.dataSource.register(source)
            yield Scene(spark=spark, port=port, entries=entries, directory=Path(directory))
        finally:
            spark.stop()


def fill(port: int, entries: int) -> None:
    """Make a new stream, ten entries in each millisecond, and a group at its start."""
    with RawRedis(port) as raw:
        raw.call("FLUSHALL")
        for start in range(0, entries, TOGETHER):
            some = range(start, min(entries, start + TOGETHER))
            raw.send_quietly([b"".join(pack(*_command(number)) for number in some)])
        raw.call("XGROUP", "CREATE", STREAM, GROUP, "0")
        require(raw.call("XLEN", STREAM), entries, "entries at first")


def _command(number: int) -> tuple[str, ...]:
    return (
        *("XADD", STREAM, entry_id(number)),
        *("tenant", f"t{number % 97}", "order_id", f"{number:010d}", "qty", str(number % 100)),
        *("amount", f"{number % 1000}.25", "payload", "x" * 100),
    )


def _open_session(directory: Path) -> SparkSession:
    packages = [
        str(Path(pyspark_redis_streams.__file__).parents[1]),
        str(Path(__file__).parents[1]),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join([*packages, os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(f"local[{TASKS},3]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory))
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session
