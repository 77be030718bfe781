"""Converts texts of entries to typed Arrow columns, and finds the rows whose text does not fit.

The rules of a type are those of Arrow's casts from string. They are applied to a whole column at
once; only a column with a bad value is divided to find it.

Structs, arrays and maps are JSON, parsed as `from_json` would with the given type. Unknown members
are ignored, and missing members are null. A text that is not JSON, or that has values of other
types, is a bad value.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Self

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

from pyspark_redis_streams.errors import SchemaError

Converted = tuple[pa.Array, list[int]]  # the column, with null in the bad rows; the bad rows
Converter = Callable[[pa.Array], Converted]

_NUMBERS = (
    ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, BooleanType, DecimalType,
    DateType,
)  # fmt: skip
_JSON = (StructType, ArrayType, MapType)


def converter_for(name: str, wanted: DataType, arrow: pa.DataType, unit: str) -> Converter:
    """The converter for one column. Raises SchemaError for a type that is not supported."""
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
    """The cast column, and the rows of values that cannot be cast; option `mode` handles these."""
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
    """Halve the column until each bad value is isolated: few bad values cost few casts."""
    try:
        return [cast(raw.slice(start, end - start))]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if end - start == 1:
            bad.append(start)
            return [cast(pa.nulls(1, pa.binary()))]
    middle = (start + end) // 2
    return _good_pieces(raw, start, middle, cast, bad) + _good_pieces(raw, middle, end, cast, bad)


def _numbers(raw: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Numbers as Spark's CAST accepts them. Unlike in Arrow, "+5" is valid and "0x10" is not."""
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
    """A search of all bytes at once, whose cost is negligible compared with the cast."""
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
    """Whole numbers count `unit` since 1970; others are ISO 8601, in UTC if they name no zone."""
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


Read = Callable[[Any], Any]  # from a non-null JSON value to one for Arrow; raises ValueError

_BITS: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def json_converter(
    wanted: DataType, arrow: pa.DataType, unit: str
) -> Callable[[pa.Array], tuple[pa.Array, list[int]]]:
    """A converter for a column of JSON texts; see `converter_for`."""
    read = _nullable(reader_for(wanted, unit))

    def convert(raw: pa.Array) -> tuple[pa.Array, list[int]]:
        values: list[Any] = []
        bad: list[int] = []
        for row, text in enumerate(raw.to_pylist()):
            try:
                values.append(None if text is None else read(_parse(text)))
            except (ValueError, RecursionError):
                values.append(None)
                bad.append(row)
        return pa.array(values, arrow), bad

    return convert


def _parse(text: bytes) -> Any:
    # `_Number`, because a float would round values of decimal columns.
    return json.loads(text, parse_float=_Number, parse_constant=_refuse_constant)


class _Number(float):
    """A JSON number with a fraction or exponent, which keeps its text."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def reader_for(wanted: DataType, unit: str) -> Read:
    """A function from a JSON value to a value of this type. Raises SchemaError."""
    if isinstance(wanted, StructType):
        return _read_struct(wanted, unit)
    if isinstance(wanted, ArrayType):
        return _read_array(_nullable(reader_for(wanted.elementType, unit)))
    if isinstance(wanted, MapType) and isinstance(wanted.keyType, StringType):
        return _read_map(_nullable(reader_for(wanted.valueType, unit)))
    if isinstance(wanted, TimestampType | TimestampNTZType):
        return lambda value: _timestamp(value, unit)
    if type(wanted) in _BITS:
        return lambda value: _whole(value, _BITS[type(wanted)])
    if isinstance(wanted, DecimalType):
        return lambda value: _decimal(value, wanted)
    read = _SIMPLE.get(type(wanted))
    if read is None:
        raise SchemaError(f"type {wanted.simpleString()} cannot be read from JSON")
    return read


def _nullable(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _read_struct(wanted: StructType, unit: str) -> Read:
    members = [(f.name, _nullable(reader_for(f.dataType, unit))) for f in wanted.fields]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return {name: member(value.get(name)) for name, member in members}

    return read


def _read_array(element: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError("not an array")
        return [element(item) for item in value]

    return read


def _read_map(item: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return [(key, item(member)) for key, member in value.items()]

    return read


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, _Number):
        return value.text
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("not a whole number")
    if not -(2**bits) <= value < 2**bits:
        raise ValueError("too large")
    return value


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | _Number):
        raise ValueError("not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError("too large") from error


def _decimal(value: Any, wanted: DecimalType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | _Number):
        raise ValueError("not a number")
    try:
        exact = Decimal(value.text if isinstance(value, _Number) else value)
        fitted = exact.quantize(Decimal(1).scaleb(-wanted.scale))
    except InvalidOperation as error:
        raise ValueError("not a number that fits") from error
    if fitted != exact or len(fitted.as_tuple().digits) > wanted.precision:
        raise ValueError("has too many digits")
    return fitted


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("not a text")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError("not Base64") from error


def _timestamp(value: Any, unit: str) -> datetime:
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value * _UNITS[unit])
        except OverflowError as error:
            raise ValueError("too far away") from error
    if not isinstance(value, str):
        raise ValueError("no time")
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    if not isinstance(value, str):
        raise ValueError("no date")
    return date.fromisoformat(value)


_SIMPLE: dict[type[DataType], Read] = {
    StringType: _text,
    FloatType: _real,
    DoubleType: _real,
    BooleanType: _flag,
    BinaryType: _bytes,
    DateType: _date,
}
