"""Fields that hold JSON, read as `from_json` with the given type would read them.

Members that the type does not name are ignored, members that are missing are null, and a text that
is no JSON, or whose values are of other types, is a bad value.
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

Read = Callable[[Any], Any]  # a parsed JSON value, not null -> a value for Arrow; raises ValueError

_BITS: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def json_converter(
    wanted: DataType, arrow: pa.DataType, unit: str
) -> Callable[[pa.Array], tuple[pa.Array, list[int]]]:
    """A converter of a column of JSON texts; see `converting.converter_for`."""
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
    # A float would round what a decimal column wants exactly.
    return json.loads(text, parse_float=_Number, parse_constant=_refuse_constant)


class _Number(float):
    """A JSON number with a fraction or exponent, which remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def reader_for(wanted: DataType, unit: str) -> Read:
    """How a JSON value becomes a value of this type. Raises SchemaError."""
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
        raise ValueError("no number that fits") from error
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
