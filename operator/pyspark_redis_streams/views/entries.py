"""View `entries`: one row for each entry of a range of IDs."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_redis_streams.batch.pages import Entry, EntryRange, PageLimits, PageReader
from pyspark_redis_streams.batch.probes import plan_spans
from pyspark_redis_streams.batch.ranges import batch_spans, parse_bounds
from pyspark_redis_streams.batch.tasks import EntriesPartition
from pyspark_redis_streams.columns.batches import BatchBuilder
from pyspark_redis_streams.errors import plain_errors, plain_rows
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.redis.streams import observe_stream

# Arrow arrays are limited to 2 GB, and Spark holds several batches at a time.
_BYTES_OF_A_BATCH = 16_000_000


class EntriesReader(DataSourceReader):
    """A batch read of entries: tasks must find the entries that existed at planning."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._bounds = parse_bounds(options)
        BatchBuilder(schema, options)  # to refuse a schema before anything is read

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        with ServerConnections(self._options.server) as connections:
            spans = batch_spans(connections, self._bounds, self._options)
            return list(plan_spans(connections, spans, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, EntriesPartition):
            return iter(())  # Spark's own partition, for a read without partitions
        return plain_rows(read_batches(partition, self._schema, self._options))


def read_batches(
    partition: EntriesPartition, schema: StructType, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The entries of one task. Raises DataLoss, BadValue and ServerError."""
    builder = BatchBuilder(schema, options)
    # A batch may hold pages of several streams, but never more rows than requested.
    page_size = min(options.page_size, options.batch_rows)
    with collector_at_rest():
        for stream, page in _pages(partition, page_size, options):
            builder.add(stream, page)
            if builder.rows + page_size > options.batch_rows or builder.bytes > _BYTES_OF_A_BATCH:
                yield builder.finish()
        if builder.rows:
            yield builder.finish()


def _pages(
    partition: EntriesPartition, page_size: int, options: ReadOptions
) -> Iterator[tuple[str, list[Entry]]]:
    pace = PageLimits(
        page_size=page_size,
        entries_per_second=options.max_entries_per_second,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    with ServerConnections(options.server) as master:
        for wanted in partition.ranges:
            with connections_for(wanted, master, options) as connections:
                for page in PageReader(connections, wanted, pace).pages():
                    yield wanted.stream, page


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Without cyclic garbage collection: pages are millions of lists, none of them in a cycle."""
    was_at_work = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_at_work:
            gc.enable()


_LONGEST_WAIT_S = 2.0
_LOOK_EVERY_S = 0.05


@contextmanager
def connections_for(
    wanted: EntryRange, master: ServerConnections, options: ReadOptions
) -> Iterator[ServerConnections]:
    """Connections to read a range: to a replica that has its last entry, else to the master."""
    if not options.server.from_replica:
        yield master
        return
    with ServerConnections(options.server, from_replica=True) as replica:
        yield replica if _catches_up(replica, wanted) else master


def _catches_up(replica: ServerConnections, wanted: EntryRange) -> bool:
    until = time.monotonic() + _LONGEST_WAIT_S
    while True:
        state = observe_stream(replica, wanted.stream, allow_missing=True)
        if state.last_generated >= wanted.last:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_EVERY_S)
