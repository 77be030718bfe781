"""The data source that Spark calls: `spark.read.format("redis_streams")` and other methods.

Also for catalog tables: `CREATE TABLE orders USING redis_streams OPTIONS (stream 'orders')`.
When a table is created, Spark passes its options among all its properties. When it is read or
written, Spark passes its columns, and only the options of the statement. So the options of the
table are stored in the comment of its first column, which the catalog keeps.

Options of a statement, `SELECT ... FROM orders WITH (startingId = '5-0')`, are refused: Spark
resolves a table once for each statement, and may apply the options to other uses of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, urlencode

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_redis_streams.columns.schemas import default_schema, names_of_entries
from pyspark_redis_streams.errors import OptionError, RedisStreamsError, plain_errors
from pyspark_redis_streams.micro_batch.reader import RedisStreamReader, RefusedStreamReader
from pyspark_redis_streams.options.option import OF_SPARK, Use, View
from pyspark_redis_streams.options.parsed import (
    OPTIONS,
    ReadOptions,
    WriteOptions,
    parse_read_options,
    parse_write_options,
)
from pyspark_redis_streams.sink import BatchWriter, StreamWriter
from pyspark_redis_streams.spark_versions import refuse_what_spark_lacks
from pyspark_redis_streams.views.entries import EntriesReader
from pyspark_redis_streams.views.inference import infer_columns
from pyspark_redis_streams.views.rows import (
    ConsumersReader,
    GroupsReader,
    PendingReader,
    StreamsReader,
)

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
        """The columns of a read without a given schema, as DDL.

        With option `inferSchema` it reads entries. Raises OptionError and ServerError.
        """
        if is_created(self.options):
            return table_schema(self.options)
        return _columns_of(parse_read_options(self.options, None))

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of any view. Raises OptionError and SchemaError."""
        options = parse_read_options(_options_of_table(self.options, schema, Use.READ), Use.READ)
        return _READERS[options.view](schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read of entries; an OptionError or SchemaError is raised when it begins."""
        try:
            options = parse_read_options(
                _options_of_table(self.options, schema, Use.STREAM), Use.STREAM
            )
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


_FIRST: Final = "`stream` STRING"  # the first column of every view
_COMMENT: Final = "The key. Options of the table: "
_EMPTY: Final = "the columns that Redis fills ('stream', 'id', 'ms', 'seq', 'ts') are left out"
_OPTION: Final = "option."  # Spark's prefix for options among the properties


def is_created(given: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table that is being created."""
    return "provider" in {name.lower() for name in given}


def table_schema(given: Mapping[str, str]) -> str:
    """The columns of a table that is being created, as DDL that keeps its options.

    Raises OptionError.
    """
    options = {
        name.lower().removeprefix(_OPTION): value
        for name, value in given.items()
        if name.lower().startswith(_OPTION)
    }
    _refuse_unfit(options)
    read = parse_read_options(OPTIONS.given_for(options, Use.STREAM, Use.READ), None)
    parse_write_options(OPTIONS.given_for(options, Use.WRITE))
    columns = _columns_of(read)
    kept = f"{_FIRST} COMMENT '{_COMMENT}{urlencode(sorted(options.items()))}'"
    return columns.replace(_FIRST, kept, 1)


def _columns_of(options: ReadOptions) -> str:
    if options.infer_schema:
        options = replace(options, columns=infer_columns(options))
    return default_schema(options)


def _options_of_table(given: Mapping[str, str], schema: StructType, use: Use) -> Mapping[str, str]:
    """The options of a read or write: those given, or those stored in the table's schema.

    Raises OptionError.
    """
    kept = _kept_options(schema)
    if kept is None:
        return given
    own = sorted(name for name in given if name.lower() not in OF_SPARK)
    if own:
        raise OptionError(
            f"option '{own[0]}' is given to a table of Spark's catalog, whose options are"
            f" {_shown(kept)}. Spark may apply the options of a statement to another use of the"
            " table, or to none. Create a table with this option, or use format('redis_streams')"
            " with all options. If a frame's columns come from the table, remove the comment of the"
            " first column"
        )
    return OPTIONS.given_for(kept, use)


def table_write_options(given: Mapping[str, str], schema: StructType) -> WriteOptions:
    """The options of a write, which may be to a table. Raises OptionError.

    Columns that a query takes from another table keep that table's comment. So a row for a table
    must have null in all columns that do not hold fields.
    """
    kept = _kept_options(schema)
    if kept is None:
        if not given:
            raise OptionError(
                "no option names the stream of the rows. Spark passes the options of a table to"
                f" INSERT INTO alone, and only if {_EMPTY}: name the columns in INSERT INTO, or"
                " write with format('redis_streams') and options"
            )
        return parse_write_options(given)
    read = parse_read_options(OPTIONS.given_for(kept, Use.READ), None)
    if read.view is not View.ENTRIES or len(read.streams) != 1:
        raise OptionError(
            f"the table is not a single stream ({_shown(kept)}): write with format('redis_streams')"
            " and option 'stream'"
        )
    options = parse_write_options(_options_of_table(given, schema, Use.WRITE))
    if options.keep_ids:
        raise OptionError(
            "option 'keepIds' is true, and INSERT INTO gives each row a new ID: write with"
            " format('redis_streams') and options"
        )
    names = names_of_entries(read) & set(schema.fieldNames())
    return replace(options, stream=read.streams[0], empty_columns=frozenset(names))


def _kept_options(schema: StructType) -> dict[str, str] | None:
    for field in schema.fields:
        comment = str((field.metadata or {}).get("comment", ""))
        if comment.startswith(_COMMENT):
            return dict(parse_qsl(comment.removeprefix(_COMMENT), keep_blank_values=True))
    return None


def _shown(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name} '{value}'" for name, value in sorted(options.items()))


def _refuse_unfit(options: Mapping[str, str]) -> None:
    url = options.get("url", "")
    if "password" in options or ("@" in url and ":" in url.partition("@")[0].partition("//")[2]):
        raise OptionError(
            "a table keeps its options in Spark's catalog, where everybody reads them: give the"
            " password by option 'passwordFile' or 'passwordEnv', and no password in 'url'"
        )
