"""The columns of each view, and the source of each column of a given schema."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from pyspark_redis_streams.errors import OptionError, SchemaError
from pyspark_redis_streams.options.option import View
from pyspark_redis_streams.options.parsed import ReadOptions

_BASE = "`stream` STRING, `id` STRING, `ms` BIGINT, `seq` BIGINT, `ts` TIMESTAMP"
_COMPUTED = {"hash": "`hash` BIGINT", "bytes": "`bytes` BIGINT"}

_VIEWS = {
    View.PENDING: (
        "`stream` STRING, `group` STRING, `id` STRING, `ms` BIGINT, `seq` BIGINT,"
        " `consumer` STRING, `idle_ms` BIGINT, `delivery_count` BIGINT"
    ),
    View.GROUPS: (
        "`stream` STRING, `group` STRING, `consumers` BIGINT, `pending` BIGINT,"
        " `last_delivered_id` STRING, `entries_read` BIGINT, `lag` BIGINT"
    ),
    View.CONSUMERS: (
        "`stream` STRING, `group` STRING, `consumer` STRING, `pending` BIGINT,"
        " `idle_ms` BIGINT, `inactive_ms` BIGINT"
    ),
    View.STREAMS: (
        "`stream` STRING, `length` BIGINT, `entries_added` BIGINT, `last_generated_id` STRING,"
        " `max_deleted_entry_id` STRING, `first_id` STRING, `last_id` STRING, `groups` BIGINT"
    ),
}

_TYPES: Final = (
    "STRING", "BINARY", "BOOLEAN", "BYTE", "TINYINT", "SHORT", "SMALLINT", "INT", "INTEGER", "LONG",
    "BIGINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "DEC", "NUMERIC", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRUCT", "ARRAY", "MAP",
)  # fmt: skip
# Types that Spark has and that cannot be read; `entry_columns` raises the error.
_OTHER_TYPES: Final = (
    "CHAR", "CHARACTER", "VARCHAR", "INTERVAL", "VARIANT", "VOID", "NULL", "TIME", "OBJECT",
    "GEOMETRY", "GEOGRAPHY",
)  # fmt: skip
_COLUMN: Final = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<bare>\w+))\s*:?\s*(?P<type>\w*)")


class ColumnSource(Enum):
    """The source of a column of view `entries`."""

    STREAM = auto()
    ID = auto()
    MS = auto()
    SEQ = auto()
    TS = auto()
    HASH = auto()
    BYTES = auto()
    FIELDS = auto()
    CORRUPT = auto()
    FIELD = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesColumn:
    """One column of a read of entries."""

    name: str
    type: DataType
    source: ColumnSource
    field: bytes = b""  # the name in Redis, of source FIELD


def default_schema(options: ReadOptions) -> str:
    """The schema of a read without a given one, as DDL. Raises OptionError."""
    if options.view is not View.ENTRIES:
        return _VIEWS[options.view]
    if options.columns is not None:
        base = (*_BASE_SOURCES, *options.computed)
        _check_declared(options.declaring, options.columns, base)
    value = "BINARY" if options.binary else "STRING"
    raw = f"`fields` MAP<STRING, {value}>"
    if options.duplicate_fields == "keep":
        raw = f"`fields` ARRAY<STRUCT<`name`: STRING, `value`: {value}>>"
    computed = [_COMPUTED[name] for name in options.computed]
    # Without payloads if only computed columns are requested.
    fields = options.columns or (None if computed else raw)
    return ", ".join(part for part in (_BASE, fields, *computed) if part)


def columns_of_view(view: View) -> list[str]:
    """The names of the columns of a view other than `entries`."""
    return re.findall(r"`(\w+)`", _VIEWS[view])


def entry_columns(schema: StructType, options: ReadOptions) -> tuple[EntriesColumn, ...]:
    """Each column of an entries schema with its source. Raises SchemaError."""
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(
                f"column '{name}' is declared twice; of a field that is named as a base column,"
                " declare '<prefix><name>' and set option 'fieldPrefix'"
            )
    if options.declaring and names[: len(_BASE_SOURCES)] != list(_BASE_SOURCES):
        raise SchemaError(
            f"option '{options.declaring}' is given, and a schema as well: give one of them"
        )
    return tuple(_entry_column(field, options) for field in schema.fields)


def names_of_entries(options: ReadOptions) -> set[str]:
    """The names of columns that do not hold a field: base columns, computed, corrupt record."""
    return {*_BASE_SOURCES, *options.computed, options.corrupt_column}


def _check_declared(option: str | None, text: str, base: tuple[str, ...]) -> None:
    """Raise OptionError for a column without a type, with an unknown one, or declared twice.

    Spark parses the columns together with the base columns, so its errors name positions in a text
    that the user did not write. So common mistakes are refused here, by the option's name.
    """
    seen = {name: "a base column" for name in base}
    for part in _parts(text):
        name, kind = _read_declared(part)
        if kind.upper() not in _TYPES + _OTHER_TYPES:
            raise OptionError(
                f"option 'columns' declares '{part.strip()}', but there is no type '{kind}'"
                f"{_nearest_type(kind)}"
            )
        if name in seen:
            raise OptionError(
                f"option '{option}' declares '{name}', which is {seen[name]} already; to read a"
                " field that is named as a base column, set option 'fieldPrefix'"
            )
        seen[name] = "declared"


def _read_declared(part: str) -> tuple[str, str]:
    found = _COLUMN.match(part)
    if found is None or not found["type"]:
        raise OptionError(
            f"option 'columns' has '{part.strip()}': write each column as `name TYPE`, such as"
            " 'order_id STRING, amount DECIMAL(10, 2)'"
        )
    quoted = found["quoted"]
    return (quoted.replace("``", "`") if quoted else found["bare"]), found["type"]


def _nearest_type(kind: str) -> str:
    alike = difflib.get_close_matches(kind.upper(), _TYPES, n=1, cutoff=0.6)
    return f": did you mean '{alike[0]}'?" if alike else f"; there are {', '.join(_TYPES)}"


def _parts(text: str) -> Iterator[str]:
    """The text between commas, except commas in brackets and quotation marks."""
    depth, start, quote = 0, 0, ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        elif sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _entry_column(field: StructField, options: ReadOptions) -> EntriesColumn:
    name, wanted = field.name, field.dataType
    if not field.nullable and name not in _NEVER_NULL:
        raise SchemaError(
            f"column '{name}' is declared as NOT NULL, but any field of an entry may be"
            " missing: remove NOT NULL"
        )
    if isinstance(wanted, CharType | VarcharType):
        raise SchemaError(
            f"column '{name}' is declared as {wanted.simpleString()}, which has a longest length:"
            " declare it as string"
        )
    source = _reserved(name, options)
    if source is None and not (name == "fields" and _is_raw(wanted)):
        return EntriesColumn(
            name=name, type=wanted, source=ColumnSource.FIELD, field=_field_of(name, options)
        )
    source = source or ColumnSource.FIELDS
    allowed = _ALLOWED.get(source)
    if allowed is not None and wanted not in allowed:
        names = " or ".join(kind.simpleString() for kind in allowed)
        raise SchemaError(
            f"column '{name}' is declared as {wanted.simpleString()}, but it is the entry's own and"
            f" must be {names}; to read a field named '{name}', set option 'fieldPrefix'"
        )
    return EntriesColumn(name=name, type=wanted, source=source)


def _reserved(name: str, options: ReadOptions) -> ColumnSource | None:
    if name in options.computed:
        return _COMPUTED_SOURCES[name]
    if name == options.corrupt_column:
        return ColumnSource.CORRUPT
    return _BASE_SOURCES.get(name)


def _field_of(name: str, options: ReadOptions) -> bytes:
    return name.removeprefix(options.field_prefix or "").encode()


def _is_raw(wanted: DataType) -> bool:
    if isinstance(wanted, MapType):
        return _is_text(wanted.keyType) and _is_text(wanted.valueType)
    if not isinstance(wanted, ArrayType) or not isinstance(wanted.elementType, StructType):
        return False
    pair = wanted.elementType
    return pair.fieldNames() == ["name", "value"] and all(_is_text(f.dataType) for f in pair.fields)


def _is_text(wanted: DataType) -> bool:
    return isinstance(wanted, StringType | BinaryType)


_BASE_SOURCES = {
    "stream": ColumnSource.STREAM,
    "id": ColumnSource.ID,
    "ms": ColumnSource.MS,
    "seq": ColumnSource.SEQ,
    "ts": ColumnSource.TS,
}
_NEVER_NULL = ("stream", "id", "ms", "seq")
_COMPUTED_SOURCES = {"hash": ColumnSource.HASH, "bytes": ColumnSource.BYTES}
_NUMBER: tuple[DataType, ...] = (LongType(), DecimalType(20, 0))
_ALLOWED: dict[ColumnSource, tuple[DataType, ...]] = {
    ColumnSource.STREAM: (StringType(),),
    ColumnSource.ID: (StringType(),),
    ColumnSource.MS: _NUMBER,
    ColumnSource.SEQ: _NUMBER,
    ColumnSource.TS: (TimestampType(),),
    ColumnSource.HASH: (LongType(),),
    ColumnSource.BYTES: (LongType(),),
    ColumnSource.CORRUPT: (StringType(),),
}
