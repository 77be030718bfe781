"""Texts of entries -> typed Arrow columns, and the rows whose text does not fit.

The rules of a type are those of Arrow's casts from string, whole column at once; only a column
that has a bad value is looked at value by value, by the same casts.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_redis_streams.columns.json_values import json_converter
from pyspark_redis_streams.errors import SchemaError

Converted = tuple[pa.Array, list[int]]  # the column, with null in the bad rows; the bad rows
Converter = Callable[[pa.Array], Converted]

_NUMBERS = (
    ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, BooleanType, DecimalType,
    DateType,
)  # fmt: skip
_JSON = (StructType, ArrayType, MapType)


def converter_for(name: str, wanted: DataType, arrow: pa.DataType, unit: str) -> Converter:
    """How the values of one column are read. Raises SchemaError for a type that has no reading."""
    if isinstance(wanted, BinaryType):
        return lambda raw: (raw, [])
    if isinstance(wanted, StringType):
        return lambda raw: _with_repair(raw, lambda part: part.cast(arrow))
    if isinstance(wanted, _NUMBERS):
        return lambda raw: _with_repair(raw, lambda part: _numbers(part, arrow))
    if isinstance(wanted, TimestampType | TimestampNTZType):
        return lambda raw: _with_repair(raw, lambda part: _timestamps(part, arrow, unit))
    if isinstance(wanted, _JSON):
        return json_converter(wanted, arrow, unit)
    raise SchemaError(
        f"column '{name}' is declared as {wanted.simpleString()}, which no field can be read as;"
        " declare it as string, a number, boolean, timestamp, date, binary, or struct, array or map"
        " for JSON"
    )


def _with_repair(raw: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> Converted:
    """The cast column, and the places of values that cannot be cast; `mode` decides about these."""
    try:
        return cast(raw), []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _one_by_one(raw, cast)


def _one_by_one(raw: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> Converted:
    bad: list[int] = []
    pieces = _good_pieces(raw, 0, len(raw), cast, bad)
    bad.sort()
    return pa.concat_arrays(pieces), bad


def _good_pieces(
    raw: pa.Array, start: int, end: int, cast: Callable[[pa.Array], pa.Array], bad: list[int]
) -> list[pa.Array]:
    """Halve until a bad value stands alone: few bad values cost few casts."""
    try:
        return [cast(raw.slice(start, end - start))]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if end - start == 1:
            bad.append(start)
            return [cast(pa.nulls(1, pa.binary()))]
    middle = (start + end) // 2
    return _good_pieces(raw, start, middle, cast, bad) + _good_pieces(raw, middle, end, cast, bad)


def _numbers(raw: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Numbers as Spark's CAST reads them where Arrow differs: "+5" is one, "0x10" is none."""
    text = raw.cast(pa.string())
    if pa.types.is_integer(arrow) and _may_be_hexadecimal(text):
        raise pa.ArrowInvalid("hexadecimal")
    try:
        return text.cast(arrow)
    except pa.ArrowInvalid:
        bare = pc.replace_substring_regex(text, r"^\+([0-9.])", r"\1")
        if bare.equals(text):
            raise
        return bare.cast(arrow)


def _may_be_hexadecimal(text: pa.Array) -> bool:
    """A look at all bytes at once, which costs nothing beside the cast."""
    data = text.buffers()[2]
    if data is None or not len(text):
        return False
    offsets = text.buffers()[1]
    begin, end = (
        int.from_bytes(offsets[4 * at : 4 * at + 4].to_pybytes(), "little")
        for at in (text.offset, text.offset + len(text))
    )
    bytes_ = data[begin:end].to_pybytes()
    return b"x" in bytes_ or b"X" in bytes_


def _timestamps(raw: pa.Array, arrow: pa.DataType, unit: str) -> pa.Array:
    """Whole numbers count from 1970 in `unit`; all else is ISO 8601, without a zone UTC."""
    try:
        whole = _numbers(raw, pa.int64())
        return whole.cast(pa.timestamp(unit)).cast(pa.timestamp("us")).cast(arrow)
    except pa.ArrowInvalid:
        text = raw.cast(pa.string())
    if arrow.tz is not None and not _has_zone(text):
        return text.cast(pa.timestamp("us")).cast(pa.int64()).cast(arrow)
    return text.cast(arrow)


def _has_zone(text: pa.Array) -> bool:
    found = pc.any(
        pc.match_substring_regex(text, r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"), min_count=0
    )
    return bool(found.as_py())
