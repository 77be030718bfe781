"""Frames as Parquet, as Spark writes it: the same columns, compression and notes of types."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pelops.pipeline.archive.footers import SCHEMA
from pelops.pipeline.engine.arrow.frame import Frame
from pelops.pipeline.engine.arrow.values import Value, is_scalar, spark_schema, spread

_COMPRESSION: Final = "zstd"


def render_parquet(frame: Frame) -> bytes:
    """A file of all rows; equal rows give equal bytes."""
    table = frame.table
    for field in table.schema:
        if pa.types.is_null(field.type):
            raise TypeError(f"column {field.name!r} has no type: cast it")
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, table.schema, compression=_COMPRESSION, store_schema=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({SCHEMA: spark_schema(table.schema).json()})
    return sink.getvalue()


class FileOfFrames:
    """A local file that grows by frames, each a group of rows; equal frames give equal bytes.

    It is there with the first frame that has rows, and complete when the block ends.
    """

    def __init__(self, path: Path, like: pa.Schema, different: Collection[str] = ()) -> None:
        """`like`: the schema of another file of the table, with Spark's note of it.

        `different`: columns with another value in nearly every row. A dictionary of them would be
        work for nothing.
        """
        self._path = path
        self._like = like
        self._different = different
        self._schema: pa.Schema | None = None
        self._writer: Any = None
        self._constants: dict[str, tuple[Value, pa.Array]] = {}

    def write(self, frame: Frame) -> None:
        """Raises OSError; TypeError for a frame that has other columns."""
        size = frame.count()
        if not size:
            return
        schema = self._schema or self._open(frame.values)
        columns = [self._column(field, frame.values[field.name], size) for field in schema]
        self._writer.write_table(pa.table(columns, schema=schema), row_group_size=size)

    def _open(self, values: Mapping[str, Value]) -> pa.Schema:
        if list(values) != self._like.names:
            raise TypeError(f"{list(values)} are not the columns {self._like.names}")
        fields = [
            # A text that is the same in each row is written by its place in a dictionary of one.
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if is_scalar(values[field.name]) and pa.types.is_string(field.type)
            else field
            for field in self._like
        ]
        self._schema = pa.schema(fields)
        self._writer = pq.ParquetWriter(
            self._path,
            self._schema,
            compression=_COMPRESSION,
            store_schema=False,
            use_dictionary=[name for name in values if name not in self._different],
        )
        return self._schema

    def _column(self, field: pa.Field, value: Value, size: int) -> pa.Array:
        if not is_scalar(value):
            return value if value.type == field.type else value.dictionary_encode()
        known, array = self._constants.get(field.name, (None, None))
        if known is None or len(array) < size or not known.equals(value):
            array = _repeat(value, size, field.type)
            self._constants[field.name] = value, array
        return array.slice(0, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is None:
            return
        if error is None:
            self._writer.add_key_value_metadata({SCHEMA: self._like.metadata[SCHEMA.encode()]})
            self._writer.close()
            return
        with suppress(OSError):  # of a disk that is full already
            self._writer.close()


def _repeat(value: pa.Scalar, size: int, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return spread(value, size)
    if not value.is_valid:
        return spread(value, size).dictionary_encode()
    only = pa.array([value.as_py()], kind.value_type)
    return pa.DictionaryArray.from_arrays(spread(pa.scalar(0, pa.int32()), size), only)
