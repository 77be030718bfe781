"""A streaming read: the driver decides the range of a micro-batch, and tasks read it.

All state is in the checkpoint's offsets. A repeated micro-batch reads the same IDs again.

`ProgressGroup` shows the position of a query as a consumer group that no consumer uses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_redis_streams.batch.probes import plan_spans
from pyspark_redis_streams.batch.ranges import LATEST, parse_bounds
from pyspark_redis_streams.batch.tasks import EntriesPartition
from pyspark_redis_streams.columns.batches import BatchBuilder
from pyspark_redis_streams.errors import (
    GroupMissing,
    OptionError,
    RedisStreamsError,
    ServerUnavailable,
    StreamMissing,
    plain_errors,
    plain_rows,
)
from pyspark_redis_streams.micro_batch.offsets import Offsets, Position, parse_offsets
from pyspark_redis_streams.micro_batch.positions import PositionFinder
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark_redis_streams.views.entries import read_batches
from pyspark_redis_streams.views.rows import named

logger = logging.getLogger(__name__)


class RedisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Entries of one or many streams as a streaming DataFrame."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._bounds = parse_bounds(options, default_start=LATEST)
        BatchBuilder(schema, options)  # to refuse a schema before anything is read
        self._connections: ServerConnections | None = None
        self._progress: ProgressGroup | None = None
        self._target: Offsets | None = None  # where a query with trigger availableNow ends
        self._waiting_since = time.monotonic()
        self._first: dict[str, Any] | None = None  # initial offset of a new query
        self._reached: Offsets = {}  # the end of the newest micro-batch

    def __getstate__(self) -> dict[str, Any]:
        """The state for executors: without connections, which stay with the driver."""
        return self.__dict__ | {"_connections": None, "_progress": None}

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._first = _render(self._finder().first_positions(self._bounds))
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_entries_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._finder().tails({})

    @plain_errors
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself when there is nothing to read.

        Before 4.2 Spark does not pass the start; the end is then the end of the streams.
        """
        if start is None:
            return self._ends_of_streams()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = self._reached = parse_offsets(start)
        self._show_progress(begin)
        step = self._finder().next_positions(begin, self._target, most)
        if self._waits_for_more(step.available):
            return start
        moved = {
            stream: position
            for stream, position in step.ends.items()
            if stream not in begin or position.id != begin[stream].id
        }
        if not moved:
            return start  # Spark begins a micro-batch for any difference in the JSON
        unmoved = {stream: replace(position, since=None) for stream, position in begin.items()}
        is_first = start == self._first
        for stream, position in moved.items():
            if is_first or stream not in begin:
                moved[stream] = replace(position, since=step.begins[stream])
        self._reached = unmoved | moved
        return _render(self._reached)

    def _ends_of_streams(self) -> dict[str, Any]:
        known = self._reached
        ends = self._finder().tails(known)
        moved = {s: at for s, at in ends.items() if s not in known or at.id != known[s].id}
        if moved:
            unmoved = {stream: replace(at, since=None) for stream, at in known.items()}
            self._reached = unmoved | moved
        return _render(self._reached)

    def _waits_for_more(self, available: int) -> bool:
        least = self._options.min_entries_per_trigger
        if least is None or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._waiting_since) * 1000
        if available < least and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._waiting_since = time.monotonic()
        return False

    @plain_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the streams, each with its lag: entries that are not planned yet.

        Spark shows it as `latestOffset` of the source in the progress of the query, the only value
        there that a Python data source can fill.
        """
        tails = self._finder().tails(self._reached)
        shown = _render(tails)
        for stream in shown.keys() & self._reached.keys():
            shown[stream]["lag"] = max(0, tails[stream].added - self._reached[stream].added)
        return shown

    @plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._reached = parse_offsets(end)
        if start == end:
            return []  # before 4.2, Spark passes the offset of a restarted query in this way
        spans = self._finder().spans_between(parse_offsets(start), parse_offsets(end))
        return list(plan_spans(self._open(), spans, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EntriesPartition)
        return plain_rows(read_batches(partition, self._schema, self._options))

    def _show_progress(self, done: Offsets) -> None:
        """Move the progress group to the given offsets.

        Not in `commit`: Spark calls it later than `latestOffset` of the next micro-batch, and never
        for the last one.
        """
        if self._options.progress_group is None:
            return
        if self._progress is None:
            self._progress = ProgressGroup(self._open(), self._options.progress_group)
        self._progress.show(done)

    def stop(self) -> None:
        if self._connections is not None:
            self._connections.forget()

    def _open(self) -> ServerConnections:
        if self._connections is None:
            self._connections = ServerConnections(self._options.server)
        return self._connections

    def _finder(self) -> PositionFinder:
        return PositionFinder(self._open(), self._options)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Replaces a reader for invalid options: its methods raise the error.

    If the constructor raised it, Spark's Python process for the reader would fail again, and Spark
    would show that failure last.
    """

    def __init__(self, problem: RedisStreamsError) -> None:
        self._problem = problem

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._problem

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise self._problem

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        raise self._problem

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._problem

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._problem


def _render(offsets: Offsets) -> dict[str, Any]:
    return {stream: position.render() for stream, position in sorted(offsets.items())}


class ProgressGroup:
    """Moves one group on each stream of the query; creates it if it is missing."""

    def __init__(self, connections: ServerConnections, name: str) -> None:
        self._connections = connections
        self._name = name
        self._shown: dict[str, Position] = {}

    def show(self, offsets: Offsets) -> None:
        """Move the group to these positions.

        Raises OptionError when consumers use the group, and ServerError when moving it is refused.
        An unavailable server is only logged: the next micro-batch moves the group again.
        """
        for stream, position in offsets.items():
            try:
                self._show(stream, position)
            except StreamMissing:
                continue
            except ServerUnavailable as error:
                logger.warning("group '%s' was not moved: %s", self._name, error)

    def _show(self, stream: str, position: Position) -> None:
        if self._shown.get(stream) == position:
            return
        if stream not in self._shown:
            self._refuse_readers(stream)
        place = (stream, self._name, str(position.id), "ENTRIESREAD", position.added)
        try:
            self._connections.execute(stream, "XGROUP", "SETID", *place)
        except GroupMissing:
            self._connections.execute(stream, "XGROUP", "CREATE", *place)
        self._shown[stream] = position

    def _refuse_readers(self, stream: str) -> None:
        """Raise OptionError if consumers use the group: moving it would skip entries for them."""
        for group in map(named, self._connections.execute(stream, "XINFO", "GROUPS", stream)):
            if group["name"] == self._name and (group["consumers"] or group["pending"]):
                raise OptionError(
                    f"option 'progressGroup' is '{self._name}', but consumers of stream "
                    f"'{stream}' use"
                    f" this group (consumers: {group['consumers']}, pending entries:"
                    f" {group['pending']}); name a group without consumers"
                )
