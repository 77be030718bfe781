"""Frames as Parquet, as Spark writes it: the same columns, compression and notes of types."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from pelops.pipeline.archive.footers import SCHEMA
from pelops.pipeline.engine.arrow.frame import Frame
from pelops.pipeline.engine.arrow.types import spark_schema


def render_parquet(frame: Frame) -> bytes:
    """A file of all rows; equal rows give equal bytes."""
    table = frame.table
    for field in table.schema:
        if pa.types.is_null(field.type):
            raise TypeError(f"column {field.name!r} has no type: cast it")
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({SCHEMA: spark_schema(table.schema).json()})
    return sink.getvalue()
