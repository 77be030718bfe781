"""Converts rows of a DataFrame to the names and values of entries."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from pelops.redis_core import EntryId, parse_entry_id
from pyspark_redis_streams.errors import BadValue, OptionError, SchemaError
from pyspark_redis_streams.options.parsed import WriteOptions

Flat = list[bytes]  # name, value, name, value, ...

STREAM, ID, FIELDS = "stream", "id", "fields"
_OF_AN_ID = (ID, "ms", "seq", "ts")


class RowFlattener:
    """Converts Arrow batches to entries; for a null the entry does not have the field.

    A column `fields`, as a read without declared columns returns it, holds all fields of an entry.
    A column `stream` names each row's stream, unless option `stream` names one for all. A column
    `id` is the row's ID with option `keepIds`. Structs, arrays and maps are written as JSON.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        empty, stream = options.empty_columns, options.stream
        self._empty_columns = [name for name in schema.fieldNames() if name in empty]
        names = [name for name in schema.fieldNames() if name not in empty]
        if stream is None and STREAM not in names:
            raise OptionError("option 'stream' is missing, and the rows have no column 'stream'")
        self._stream = stream
        self._keeps_ids = options.keep_ids
        self._last: dict[str, EntryId] = {}  # last ID of each stream, with `keepIds`
        names = _without_ids(names, schema, options)
        self._has_fields = FIELDS in names and isinstance(
            schema[FIELDS].dataType, MapType | ArrayType
        )
        others = [name for name in names if name != FIELDS and (name != STREAM or stream)]
        if self._has_fields and others:
            raise SchemaError(
                f"columns 'fields' and '{others[0]}' are both given: 'fields' holds all the fields"
                " of an entry; leave the others out"
            )
        if stream is None and not isinstance(schema[STREAM].dataType, StringType):
            raise SchemaError("column 'stream' names each row's stream and must be a string")
        self._columns = [
            (name.removeprefix(options.field_prefix or "").encode(), _writer(schema[name].dataType))
            for name in others
        ]
        self._names = others
        fields = [field for field, _ in self._columns]
        for column, field in zip(others, fields, strict=True):
            if fields.count(field) > 1:
                raise SchemaError(
                    f"column '{column}' would write field '{field.decode()}', as another column"
                    " does: option 'fieldPrefix' takes the prefix off"
                )

    def entries(self, batch: pa.RecordBatch) -> Iterator[tuple[str, bytes, Flat]]:
        """The stream, the ID and the fields of each row; `*` requests a new ID.

        Raises BadValue for a row without fields, and for an ID that is not greater than the one
        before.
        """
        self._refuse_filled(batch)
        targets = self._targets(batch)
        rows = self._fields(batch) if self._has_fields else self._column_rows(batch)
        ids = batch.column(ID).to_pylist() if self._keeps_ids else [None] * batch.num_rows
        for stream, entry_id, flat in zip(targets, ids, rows, strict=True):
            if not flat:
                raise BadValue("a row has no value that is not null: an entry needs a field")
            if stream is None:
                raise BadValue("a row has null in column 'stream', which names its stream")
            yield stream, self._follow(stream, entry_id) if self._keeps_ids else b"*", flat

    def _follow(self, stream: str, text: str | None) -> bytes:
        if text is None:
            raise BadValue("a row has null in column 'id', and option 'keepIds' is true")
        try:
            entry_id = parse_entry_id(text)
        except ValueError as error:
            raise BadValue(f"column 'id': {error}") from error
        last = self._last.get(stream, EntryId.MIN)
        if entry_id <= last:
            raise BadValue(
                f"ID {entry_id} of stream '{stream}' does not follow {last}: entries are appended"
                " in the order of their IDs, so write"
                " frame.repartition(1).sortWithinPartitions('ms', 'seq')"
            )
        self._last[stream] = entry_id
        return str(entry_id).encode()

    def _refuse_filled(self, batch: pa.RecordBatch) -> None:
        for name in self._empty_columns:
            if batch.column(name).null_count < batch.num_rows:
                raise BadValue(
                    f"column '{name}' is no field: Redis gives each row that is inserted a new ID,"
                    " and a table is one stream; name the other columns in INSERT INTO"
                )

    def _targets(self, batch: pa.RecordBatch) -> list[str | None]:
        if self._stream is not None:
            return [self._stream] * batch.num_rows
        named: list[str | None] = batch.column(STREAM).to_pylist()
        return named

    def _column_rows(self, batch: pa.RecordBatch) -> Iterator[Flat]:
        columns = [
            write(batch.column(name))
            for name, (_, write) in zip(self._names, self._columns, strict=True)
        ]
        names = [name for name, _ in self._columns]
        for values in zip(*columns, strict=True):
            pairs = zip(names, values, strict=True)
            yield list(chain.from_iterable(pair for pair in pairs if pair[1] is not None))

    def _fields(self, batch: pa.RecordBatch) -> Iterator[Flat]:
        for fields in batch.column(FIELDS).to_pylist():
            pairs = (_pair(field) for field in fields or ())
            yield [_bytes(part) for pair in pairs if pair[1] is not None for part in pair]


def _without_ids(names: list[str], schema: StructType, options: WriteOptions) -> list[str]:
    """The columns that hold fields, and `stream` if it is needed. Raises SchemaError."""
    if not options.keep_ids:
        given = [name for name in _OF_AN_ID if name in names]
        if given:
            raise SchemaError(
                f"column '{given[0]}' comes from the ID of an entry, and a new entry gets a new ID:"
                f" leave out {', '.join(map(repr, given))}. Or set option 'keepIds' to true to"
                f" write each row under its 'id'. Or, to write a field '{given[0]}', name the"
                f" column '<prefix>{given[0]}' and set option 'fieldPrefix'"
            )
        return names
    if ID not in names or not isinstance(schema[ID].dataType, StringType):
        raise SchemaError("option 'keepIds' is true, and the rows have no column 'id' of strings")
    filled = (*_OF_AN_ID, STREAM) if options.stream else _OF_AN_ID
    return [name for name in names if name not in filled]


def _pair(field: Any) -> tuple[Any, Any]:
    return (field["name"], field["value"]) if isinstance(field, dict) else field


def _bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()


def _writer(kind: DataType) -> Callable[[pa.Array], list[bytes | None]]:
    if isinstance(kind, StructType | ArrayType | MapType):
        return lambda column: [
            None if value is None else json.dumps(_plain(value), default=_text).encode()
            for value in column.to_pylist()
        ]
    return _texts


def _plain(value: Any) -> Any:
    # Arrow returns a map as a list of pairs.
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return {str(key): _plain(item) for key, item in value}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _texts(column: pa.Array) -> list[bytes | None]:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", "UTC"))
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.string()).cast(pa.binary())
    texts: list[bytes | None] = column.to_pylist()
    return texts
