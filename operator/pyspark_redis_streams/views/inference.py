"""Infers the columns of a read without declared ones, from a sample of entries.

The sample has the first and the last entries of each stream. A type is inferred if the converter
for declared columns accepts every value of the sample.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, StructType, TimestampType

from pyspark_redis_streams.batch.pages import BYTES_OF_A_PAGE
from pyspark_redis_streams.columns.conversion import converter_for
from pyspark_redis_streams.columns.entry_fields import Flat
from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.redis.streams import find_streams, observe_stream
from pyspark_redis_streams.spark_versions import arrow_schema

_MOST_STREAMS: Final = 100
_ENTRIES_OF_AN_END: Final = 100  # and at most about `BYTES_OF_A_PAGE`
_ENTRIES_OF_A_CALL: Final = 10

# Excludes values that a converter accepts, but ambiguously: integers that a double would round, and
# times without a zone.
_ANY: Final = re.compile(rb"(?s).*")
_NARROW: Final = re.compile(rb"(?![+-]?[0-9]{19,}$).*")
_WITH_ZONE: Final = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)")
_TYPES: Final[tuple[tuple[DataType, re.Pattern[bytes]], ...]] = (
    (LongType(), _ANY),
    (DoubleType(), _NARROW),
    (BooleanType(), _ANY),
    (TimestampType(), _WITH_ZONE),
)


def infer_columns(options: ReadOptions) -> str:
    """The columns of the streams' first and last entries, as a text for option `columns`.

    Raises OptionError if there is no entry, and ServerError.
    """
    values: dict[bytes, list[bytes]] = {}
    with ServerConnections(options.server) as connections:
        for stream in find_streams(connections, options)[:_MOST_STREAMS]:
            observe_stream(connections, stream, allow_missing=options.allow_missing)
            for flat in _sample(connections, stream):
                for name, value in zip(flat[::2], flat[1::2], strict=True):
                    values.setdefault(name, []).append(value)
    columns = [
        f"`{column.replace('`', '``')}` {_type_of(values[name], options.timestamp_unit)}"
        for name in values
        if (column := _column(name, options))
    ]
    if not columns:
        raise OptionError(
            "option 'inferSchema' is true, and there is no entry to infer columns from: declare"
            " them by option 'columns' or by .schema(...)"
        )
    return ", ".join(columns)


def _sample(connections: ServerConnections, stream: str) -> list[Flat]:
    first = _read_end(connections, stream, "XRANGE", "-", "+")
    return first + _read_end(connections, stream, "XREVRANGE", "+", "-")[::-1]


def _read_end(
    connections: ServerConnections, stream: str, command: str, start: str | bytes, end: str
) -> list[Flat]:
    flats: list[Flat] = []
    size = 0
    while len(flats) < _ENTRIES_OF_AN_END and size < BYTES_OF_A_PAGE:
        page = connections.execute(stream, command, stream, start, end, "COUNT", _ENTRIES_OF_A_CALL)
        flats += [flat for _, flat in page]
        size += sum(len(part) for _, flat in page for part in flat)
        if len(page) < _ENTRIES_OF_A_CALL:
            break
        start = b"(" + page[-1][0]
    return flats


def _column(field: bytes, options: ReadOptions) -> str | None:
    """The column that reads a field; None if its name is empty or not UTF-8."""
    try:
        return (options.field_prefix or "") + field.decode() if field else None
    except UnicodeDecodeError:
        return None


def _type_of(values: list[bytes], unit: str) -> str:
    raw = pa.array(values, pa.binary())
    for kind, pattern in _TYPES:
        if all(map(pattern.fullmatch, values)):
            arrow = arrow_schema(StructType().add("value", kind)).field(0).type
            _, bad = converter_for("value", kind, arrow, unit)(raw)
            if not bad:
                return kind.simpleString().upper()
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        return "BINARY"
    return "STRING"
