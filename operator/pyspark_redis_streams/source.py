"""The data source as Spark sees it: `spark.read.format("redis_streams")` and its siblings."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_redis_streams.batch.pushdown import keeps_narrowed_reads_apart
from pyspark_redis_streams.catalog_tables import (
    is_created,
    table_schema,
    table_write_options,
    with_kept_options,
)
from pyspark_redis_streams.columns.schemas import default_schema
from pyspark_redis_streams.errors import RedisStreamsError
from pyspark_redis_streams.micro_batch.reader import RedisStreamReader, RefusedStreamReader
from pyspark_redis_streams.options.option import Use, View
from pyspark_redis_streams.options.parsed import ReadOptions, parse_read_options
from pyspark_redis_streams.plain_errors import plain_errors
from pyspark_redis_streams.sink import BatchWriter, StreamWriter
from pyspark_redis_streams.spark_versions import refuse_what_spark_lacks
from pyspark_redis_streams.views.consumers import ConsumersReader
from pyspark_redis_streams.views.entries import EntriesReader, NarrowedReader
from pyspark_redis_streams.views.groups import GroupsReader
from pyspark_redis_streams.views.pending import PendingReader
from pyspark_redis_streams.views.streams import StreamsReader

_READERS: dict[View, Callable[[StructType, ReadOptions], DataSourceReader]] = {
    View.ENTRIES: EntriesReader,
    View.PENDING: PendingReader,
    View.GROUPS: GroupsReader,
    View.CONSUMERS: ConsumersReader,
    View.STREAMS: StreamsReader,
}


class DefaultSource(DataSource):
    """Redis Streams; Spark registers it by itself under the name `redis_streams`."""

    @classmethod
    def name(cls) -> str:
        return "redis_streams"

    @plain_errors
    def schema(self) -> str:
        """The columns of a read that was given no schema, as DDL. Raises OptionError."""
        if is_created(self.options):
            return table_schema(self.options)
        return default_schema(parse_read_options(self.options, None))

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of any view. Raises OptionError and SchemaError."""
        given = with_kept_options(self.options, schema, Use.READ)
        options = parse_read_options(given, Use.READ)
        if options.pushdown and keeps_narrowed_reads_apart():
            return NarrowedReader(schema, options)
        return _READERS[options.view](schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read of entries; an OptionError or SchemaError comes when it begins."""
        try:
            given = with_kept_options(self.options, schema, Use.STREAM)
            options = parse_read_options(given, Use.STREAM)
            refuse_what_spark_lacks(options)
            return RedisStreamReader(schema, options)
        except RedisStreamsError as error:
            return RefusedStreamReader(error.with_traceback(None))

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Appends rows to streams. Raises OptionError and SchemaError."""
        return BatchWriter(schema, table_write_options(self.options, schema), overwrite=overwrite)

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Appends the rows of micro-batches. Raises OptionError and SchemaError."""
        return StreamWriter(schema, table_write_options(self.options, schema), overwrite=overwrite)
