"""What the small views share: their rows are read stream by stream and given as dictionaries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_redis_streams.columns.schemas import columns_of_view
from pyspark_redis_streams.errors import BadValue, SchemaError
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.plain_errors import plain_errors, plain_rows
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.streams import find_streams
from pyspark_redis_streams.spark_versions import arrow_schema

Row = dict[str, Any]

_STREAMS_OF_A_TASK = 1000


class StreamsPartition(InputPartition):
    """Streams that one task looks at."""

    def __init__(self, streams: tuple[str, ...]) -> None:
        super().__init__(None)
        self.streams = streams


class RowsReader(DataSourceReader):
    """A batch read of a small view; a schema given by the program may leave columns out."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        known = columns_of_view(options.view)
        unknown = [name for name in schema.fieldNames() if name not in known]
        if unknown:
            raise SchemaError(
                f"column '{unknown[0]}' is not one of view '{options.view}', which has"
                f" {', '.join(sorted(known))}"
            )

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        with ServerConnections(self._options.server) as connections:
            streams = find_streams(connections, self._options)
        return [
            StreamsPartition(streams[start : start + self._streams_of_a_task()])
            for start in range(0, len(streams), self._streams_of_a_task())
        ]

    def _streams_of_a_task(self) -> int:
        return _STREAMS_OF_A_TASK

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StreamsPartition):
            return iter(())  # Spark makes a partition of its own when there is nothing to read
        return plain_rows(self._batches(partition.streams))

    def _batches(self, streams: Iterable[str]) -> Iterator[pa.RecordBatch]:
        arrow = arrow_schema(self._schema)
        with ServerConnections(self._options.server) as connections:
            rows = (row for stream in streams for row in self.rows(connections, stream))
            while some := list(islice(rows, self._options.batch_rows)):
                yield pa.RecordBatch.from_arrays(
                    [_column(some, field) for field in arrow], schema=arrow
                )

    @abstractmethod
    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        """The view's rows of one stream. Raises ServerError."""


def _column(rows: list[Row], field: pa.Field) -> pa.Array:
    values = [row[field.name] for row in rows]
    try:
        return pa.array(values, field.type)
    except (OverflowError, pa.ArrowInvalid) as error:
        if field.nullable and pa.types.is_int64(field.type):
            # The parts of an ID go up to 2^64 - 1; the column 'id' has them exactly.
            return pa.array([v if v is None or v < 2**63 else None for v in values], field.type)
        raise BadValue(
            f"column '{field.name}' ({field.type}) does not hold what Redis told of stream"
            f" '{rows[0].get('stream')}': {error}; IDs whose parts are 2^63 or more need"
            " DECIMAL(20, 0), or the column 'id'"
        ) from error
