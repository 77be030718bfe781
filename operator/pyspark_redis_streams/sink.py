"""Appends rows to streams, each once for its query and micro-batch, however often a task runs.

A task sends its rows in chunks. One script appends a chunk and records its token beside the stream.
A repeated task finds the tokens of the chunks that an earlier attempt has appended. It must send
the same rows in the same order, which the digest stored with the token verifies.

A server may lose confirmed writes in a failover, or when it restarts without its data. Token and
entries are then lost together. So each call checks the token of the task's previous call, and the
end of the write checks the last token of each task and stream. A repeated write appends the missing
rows.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pelops.redis_core.hash_slots import hash_tag, own_hash_tag
from pyspark_redis_streams.columns.written_rows import Flat, RowFlattener
from pyspark_redis_streams.errors import (
    BadValue,
    DataLoss,
    OptionError,
    RedisStreamsError,
    plain_errors,
)
from pyspark_redis_streams.options.parsed import WriteOptions
from pyspark_redis_streams.redis.node_connection import Argument
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.spark_versions import DataSourceStreamArrowWriter

MOST_PARTS = 7000  # names and values of one entry: a call in Lua has at most 8000 arguments
_BYTES_OF_A_CALL = 1_000_000


class RowsChanged(RedisStreamsError):
    """A repeated task sent other rows than its first run."""


@dataclass(frozen=True)
class Appended(WriterCommitMessage):
    """The result of one task."""

    entries: int
    repeated: int  # of these, appended by an earlier attempt
    write: str
    tokens: tuple[tuple[str, str], ...]  # each stream with its last token
    until: float  # when tokens may expire, in seconds since 1970 on this machine's clock


class BatchWriter(DataSourceArrowWriter):
    """A batch write: exactly once under task retries, and with `writeId` if repeated as a whole."""

    def __init__(self, schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
        _refuse_overwriting(overwrite)
        RowFlattener(schema, options)  # to refuse a schema before anything is written
        self._schema = schema
        self._options = options
        self._write = options.write_id or uuid.uuid4().hex

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Appended:
        return append_all(iterator, self._schema, self._options, self._write)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check that all entries are still stored. Raises DataLoss."""
        check_kept(messages, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: exactly once for each micro-batch of a query, also when it is repeated."""

    def __init__(self, schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
        _refuse_overwriting(overwrite)
        if options.write_id is not None:
            raise OptionError("option 'writeId' is for batch writes: a query has a name of its own")
        RowFlattener(schema, options)
        self._schema = schema
        self._options = options

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Appended:
        return append_all(iterator, self._schema, self._options, _micro_batch())

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Check that all entries are still stored. Raises DataLoss; Spark repeats the batch."""
        check_kept(messages, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing: the repeated micro-batch finds the tokens of appended chunks."""


def _refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise OptionError(
            "a stream is appended to: use mode 'append', and outputMode 'append' or 'update'"
        )


def _micro_batch() -> str:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    query = task.getLocalProperty("sql.streaming.queryId")
    return f"{query}:{task.getLocalProperty('streaming.sql.batchId')}"


def append_all(
    batches: Iterator[pa.RecordBatch], schema: StructType, options: WriteOptions, write: str
) -> Appended:
    """Append the rows of one task. Raises RowsChanged, BadValue and ServerError."""
    task = TaskContext.get()
    flattener = RowFlattener(schema, options)
    with ServerConnections(options.server) as connections:
        appender = Appender(connections, options, write, task.partitionId() if task else 0)
        for batch in batches:
            for stream, entry_id, flat in flattener.entries(batch):
                appender.add(stream, entry_id, flat)
        return appender.finish()


def check_kept(messages: Iterable[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Raise DataLoss when a server has lost entries that it confirmed to one of these tasks."""
    with ServerConnections(options.server) as connections:
        for message in messages:
            if isinstance(message, Appended) and time.time() < message.until:
                for stream, token in message.tokens:
                    key = _tokens_key(stream, message.write)
                    if connections.execute(stream, "HGET", key, token) is None:
                        raise DataLoss(_forgotten(stream))


def _forgotten(stream: str) -> str:
    return (
        f"stream '{stream}' has lost entries that this write had appended: it was flushed, its"
        " server restarted without its data, or a failover came before a replica had them; run the"
        " write again, with the same 'writeId' if it is a batch, and it appends what is missing"
    )


class Appender:
    """Collects the rows of one task by stream and sends them in chunks."""

    def __init__(
        self, connections: ServerConnections, options: WriteOptions, write: str, partition: int
    ) -> None:
        self._connections = connections
        self._options = options
        self._write = write
        self._partition = partition
        self._rows: dict[str, list[list[bytes]]] = defaultdict(list)
        self._sizes: dict[str, int] = defaultdict(int)
        self._chunks: dict[str, int] = defaultdict(int)
        self._sent: dict[str, float] = {}
        self._entries = 0
        self._repeated = 0
        self._script = files("pyspark_redis_streams").joinpath("lua/append.lua").read_text()
        self._began = time.monotonic()

    def add(self, stream: str, entry_id: bytes, flat: Flat) -> None:
        """Add one entry. Raises BadValue for one with more fields than a script can append."""
        if len(flat) > MOST_PARTS:
            raise BadValue(
                f"a row for stream '{stream}' has {len(flat) // 2} fields, and an entry that is"
                f" appended exactly once can have {MOST_PARTS // 2}: write some of them as JSON"
            )
        rows = self._rows[stream]
        rows.append([entry_id, *flat])
        self._sizes[stream] += sum(map(len, flat))
        is_large = self._sizes[stream] >= _BYTES_OF_A_CALL
        if is_large or len(rows) == self._options.entries_per_call:
            self._send(stream)

    def finish(self) -> Appended:
        """Send the remaining rows, and return the result of the task."""
        for stream in [stream for stream, rows in self._rows.items() if rows]:
            self._send(stream)
        return Appended(
            entries=self._entries,
            repeated=self._repeated,
            write=self._write,
            tokens=tuple((stream, self._token(stream, -1)) for stream in self._sent),
            until=time.time() + self._forgets_in_s(),
        )

    def _send(self, stream: str) -> None:
        rows = self._rows[stream]
        self._rows[stream], self._sizes[stream] = [], 0
        body: list[Argument] = []
        for row in rows:
            body += (len(row) - 1, *row)
        verdict = self._connections.execute(
            stream, "EVAL", self._script, 2, stream, _tokens_key(stream, self._write),
            self._token(stream), _digest(rows), self._before(stream), self._options.token_ttl_s,
            *self._trimming(), *body,
        )  # fmt: skip
        if verdict == b"changed":
            raise RowsChanged(
                f"a repeated task wrote other rows to stream '{stream}' than its first run, so they"
                " cannot be appended exactly once. The query must return the same rows in the same"
                " order: for example, sort within partitions"
            )
        if verdict == b"forgotten":
            raise DataLoss(_forgotten(stream))
        self._chunks[stream] += 1
        self._sent[stream] = time.monotonic()
        self._entries += len(rows)
        self._repeated += len(rows) if verdict == b"repeated" else 0
        self._keep_pace()

    def _token(self, stream: str, step: int = 0) -> str:
        return f"{self._partition}:{self._chunks[stream] + step}"

    def _before(self, stream: str) -> str:
        """The previous token, or "" when it may have expired."""
        sent = self._sent.get(stream)
        if sent is None or time.monotonic() - sent > self._options.token_ttl_s / 2:
            return ""
        return self._token(stream, -1)

    def _forgets_in_s(self) -> float:
        """Seconds for which no token expires: half of the TTL, counted from the earliest one."""
        first = min(self._sent.values(), default=time.monotonic())
        return self._options.token_ttl_s / 2 - (time.monotonic() - first)

    def _trimming(self) -> tuple[Argument, Argument]:
        if self._options.max_len is not None:
            return "MAXLEN", self._options.max_len
        return ("MINID", self._options.min_id) if self._options.min_id else ("", "")

    def _keep_pace(self) -> None:
        if self._options.max_entries_per_second is not None:
            due_s = self._entries / self._options.max_entries_per_second
            time.sleep(max(0.0, due_s - (time.monotonic() - self._began)))


def _tokens_key(stream: str, write: str) -> str:
    return f"{_tagged(stream)}:appended:{write}"


@lru_cache(maxsize=10_000)
def _tagged(stream: str) -> str:
    """The prefix of a key in the stream's hash slot."""
    if own_hash_tag(stream):
        return stream
    tag = hash_tag(stream)
    return f"{{{tag}}}" if tag == stream else f"{{{tag}}}:{stream}"


def _digest(rows: list[list[bytes]]) -> str:
    digest = blake2b(digest_size=8)
    for row in rows:
        for part in (b"%d" % len(row), *row):
            digest.update(b"%d:" % len(part))
            digest.update(part)
    return digest.hexdigest()
