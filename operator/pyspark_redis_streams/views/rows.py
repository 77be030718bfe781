"""Views `streams`, `groups`, `consumers` and `pending`: replies of XINFO and XPENDING as rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pelops.redis_core import EntryId, bound_deliveries, parse_entry_id
from pyspark_redis_streams.columns.schemas import columns_of_view
from pyspark_redis_streams.errors import (
    BadValue,
    GroupMissing,
    SchemaError,
    ServerError,
    plain_errors,
    plain_rows,
)
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.node_connection import Argument
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.redis.streams import ABSENT, find_streams, observe_stream
from pyspark_redis_streams.spark_versions import arrow_schema

Row = dict[str, Any]

_STREAMS_OF_A_TASK = 1000


class StreamsPartition(InputPartition):
    """Streams that one task reads."""

    def __init__(self, streams: tuple[str, ...]) -> None:
        super().__init__(None)
        self.streams = streams


class RowsReader(DataSourceReader):
    """A batch read of a small view; a schema given by the program may omit columns."""

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
            return iter(())  # Spark's own partition, for a read without partitions
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
            # The parts of an ID can be up to 2^64 - 1; the column 'id' has the exact value.
            return pa.array([v if v is None or v < 2**63 else None for v in values], field.type)
        raise BadValue(
            f"column '{field.name}' ({field.type}) cannot hold what Redis returned for stream"
            f" '{rows[0].get('stream')}': {error}; IDs whose parts are 2^63 or more need"
            " DECIMAL(20, 0), or the column 'id'"
        ) from error


Reply = dict[str, Any]

RAW_NAME = "raw name"  # key for the bytes of a group's name in Redis


def read_groups(connections: ServerConnections, stream: str, options: ReadOptions) -> list[Reply]:
    """The groups of a stream, or the one that option `group` names.

    Raises GroupMissing when that does not exist, unless streams are selected by a pattern.
    """
    if observe_stream(connections, stream, allow_missing=options.allow_missing) is ABSENT:
        return []
    replies = connections.execute(stream, "XINFO", "GROUPS", stream)
    groups = [named(reply) | {RAW_NAME: reply[reply.index(b"name") + 1]} for reply in replies]
    if options.group is None:
        return groups
    wanted = [group for group in groups if group["name"] == options.group]
    if not wanted and options.stream_pattern is None:
        raise GroupMissing(
            f"option 'group' is '{options.group}', but stream '{stream}' has no such group; it has"
            f" {', '.join(str(group['name']) for group in groups) or 'none'}"
        )
    return wanted


def named(reply: list[Any]) -> Reply:
    """A flat reply of names and values as a dictionary with decoded texts."""
    return {name.decode(): text(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def text(value: Any) -> Any:
    """The value, with bytes decoded; bytes that are not UTF-8 are shown as escapes."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


class StreamsReader(RowsReader):
    """View `streams`. A stream that does not exist has no row, if it may be missing."""

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        state = observe_stream(connections, stream, allow_missing=self._options.allow_missing)
        if state is ABSENT:
            return
        yield {
            "stream": stream,
            "length": state.length,
            "entries_added": state.added,
            "last_generated_id": str(state.last_generated),
            "max_deleted_entry_id": str(state.max_deleted),
            "first_id": _id_text(state.first),
            "last_id": _id_text(state.last),
            "groups": state.groups,
        }


def _id_text(entry_id: EntryId | None) -> str | None:
    return None if entry_id is None else str(entry_id)


class GroupsReader(RowsReader):
    """View `groups`. `entries_read` and `lag` are null if Redis does not know them."""

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        for group in read_groups(connections, stream, self._options):
            yield {
                "stream": stream,
                "group": group["name"],
                "consumers": group["consumers"],
                "pending": group["pending"],
                "last_delivered_id": group["last-delivered-id"],
                "entries_read": group.get("entries-read"),
                "lag": group.get("lag"),
            }


class ConsumersReader(RowsReader):
    """View `consumers`. `inactive_ms` is null before Redis 7.2."""

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        for group in read_groups(connections, stream, self._options):
            for consumer in self._consumers(connections, stream, group[RAW_NAME]):
                yield {
                    "stream": stream,
                    "group": group["name"],
                    "consumer": consumer["name"],
                    "pending": consumer["pending"],
                    "idle_ms": consumer["idle"],
                    "inactive_ms": consumer.get("inactive"),
                }

    def _consumers(self, connections: ServerConnections, stream: str, group: bytes) -> list[Reply]:
        try:
            return [
                named(reply)
                for reply in connections.execute(stream, "XINFO", "CONSUMERS", stream, group)
            ]
        except GroupMissing:
            if self._options.group is not None:
                raise
            return []  # it was deleted after it was listed, and the read does not name it


class PendingReader(RowsReader):
    """View `pending`: the pending entries of one group, page by page.

    An entry that is acknowledged or delivered during the read may be missing, but is never twice in
    the rows.
    """

    def _streams_of_a_task(self) -> int:
        return 1

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        for _ in read_groups(connections, stream, self._options):
            for page in self._pages(connections, stream):
                yield from (self._row(stream, pending) for pending in page)

    def _pages(self, connections: ServerConnections, stream: str) -> Iterator[list[list[Any]]]:
        options = self._options
        group = options.group or ""
        only: tuple[Argument, ...] = () if options.consumer is None else (options.consumer,)
        start = "-"
        while True:
            page = connections.execute(
                stream, "XPENDING", stream, group, "IDLE", options.min_idle_ms,
                start, "+", options.page_size, *only,
            )  # fmt: skip
            yield page
            if len(page) < options.page_size:
                return
            if start != "-" and parse_entry_id(page[-1][0]) <= parse_entry_id(start[1:]):
                raise ServerError(f"XPENDING {stream} returned entries that were not requested")
            start = f"({page[-1][0].decode()}"

    def _row(self, stream: str, pending: list[Any]) -> Row:
        entry_id = parse_entry_id(pending[0])
        return {
            "stream": stream,
            "group": self._options.group,
            "id": str(entry_id),
            "ms": entry_id.ms,
            "seq": entry_id.seq,
            "consumer": text(pending[1]),
            "idle_ms": pending[2],
            "delivery_count": bound_deliveries(pending[3]),
        }
