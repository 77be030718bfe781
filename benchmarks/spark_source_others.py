"""Other ways to read a stream in Spark, as data sources, and a worker that dies while it reads.

Python workers of Spark import this: it needs only PySpark, redis-py and Pelops' data source.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import redis
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_redis_streams import DefaultSource

FIRST_MS: Final = 1_700_000_000_000
IN_A_MS: Final = 10  # entries
PAGE: Final = 2000
GROUP: Final = "spark-source"
TASKS: Final = 2

Row = tuple[str, str, int, float, str]


class Part(InputPartition):
    """The entries with these numbers, the last one excluded."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(None)
        self.first = first
        self.end = end


def entry_id(number: int) -> str:
    """Of the entry with this number, from 0 on."""
    return f"{FIRST_MS + number // IN_A_MS}-{number % IN_A_MS}"


class RowsReader(DataSourceReader):
    """A data source as Spark's documentation describes it: a client, XRANGE, and tuples."""

    def __init__(self, options: Any) -> None:
        self.port = int(options["port"])
        self.stream = options["path"]
        self.entries = int(options["entries"])
        self.dies_after = int(options.get("diesAfter", 0))
        self.marker = Path(options.get("marker", os.devnull))

    def partitions(self) -> list[InputPartition]:
        """As many as there are processors."""
        edges = [self.entries * number // TASKS for number in range(TASKS + 1)]
        return [Part(edges[i], edges[i + 1]) for i in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The rows of one task."""
        assert isinstance(partition, Part)
        start, last = entry_id(partition.first), entry_id(partition.end - 1)
        with redis.Redis(port=self.port) as client:
            while True:
                page: Any = client.xrange(self.stream, start, last, count=PAGE)
                yield from map(_row, page)
                if len(page) < PAGE:
                    return
                start = f"({page[-1][0].decode()}"


class GroupReader(RowsReader):
    """How spark-redis reads: the group's cursor is set, and moved by reading without pending.

    A task that is run again begins where the first attempt was cut off.
    """

    def partitions(self) -> list[InputPartition]:
        """Tasks share the cursor of one group, which is set to the start when they are planned."""
        with redis.Redis(port=self.port) as client:
            client.xgroup_setid(self.stream, GROUP, "0")
        return super().partitions()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """What comes, until the end of the whole range has been seen."""
        read = 0
        with redis.Redis(port=self.port) as client:
            consumer = f"spark-{os.getpid()}"
            while True:
                reply: Any = client.xreadgroup(
                    GROUP, consumer, {self.stream: ">"}, count=PAGE, noack=True
                )
                if not reply:
                    return
                page = reply[0][1]
                yield from map(_row, page)
                read += len(page)
                if self.dies_after and read >= self.dies_after:
                    die_once(self.marker)


class RowsSource(DataSource):
    """`redis_py_rows`."""

    @classmethod
    def name(cls) -> str:
        return "redis_py_rows"

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowsReader(self.options)


class GroupSource(DataSource):
    """`redis_group_rows`."""

    @classmethod
    def name(cls) -> str:
        return "redis_group_rows"

    def reader(self, schema: StructType) -> DataSourceReader:
        return GroupReader(self.options)


class DyingSource(DefaultSource):
    """`dying_redis_streams`: Pelops' data source, one of whose workers is killed once."""

    @classmethod
    def name(cls) -> str:
        return "dying_redis_streams"

    def reader(self, schema: StructType) -> DataSourceReader:
        # Pelops' data source refuses an option that it does not have.
        others = {k: v for k, v in self.options.items() if k.lower() not in ("diesafter", "marker")}
        reader = DefaultSource(others).reader(schema)
        return DyingReader(reader, int(self.options["diesAfter"]), Path(self.options["marker"]))


class DyingReader(DataSourceReader):
    """Another reader, whose worker is killed once, after so many rows of a task."""

    def __init__(self, inner: DataSourceReader, dies_after: int, marker: Path) -> None:
        self._inner = inner
        self._dies_after = dies_after
        self._marker = marker

    def partitions(self) -> Any:
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        read = 0
        for batch in self._inner.read(partition):
            yield batch
            read += len(batch)
            if read >= self._dies_after:
                die_once(self._marker)


def die_once(marker: Path) -> None:
    """As by the kernel for want of memory, or with a node: one worker of a query."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _row(entry: tuple[bytes, dict[bytes, bytes]]) -> Row:
    fields = entry[1]
    return (
        fields[b"tenant"].decode(),
        fields[b"order_id"].decode(),
        int(fields[b"qty"]),
        float(fields[b"amount"]),
        fields[b"payload"].decode(),
    )
