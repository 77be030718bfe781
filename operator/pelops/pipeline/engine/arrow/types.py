"""Types: from the text of a Spark schema to Arrow, and from Arrow to what Spark notes in files."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import pyarrow as pa

MOMENT: Final = pa.timestamp("us", "UTC")
_PLAIN: Final = {
    "timestamp": MOMENT,
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
}
_TOKEN: Final = re.compile(r"`[^`]*`|[<>,:]|[^\s<>,:`]+")


@cache
def parse_type(text: str) -> pa.DataType:
    """The type that `BIGINT`, `ARRAY<STRUCT<name: BINARY>>` and the like name."""
    tokens = _TOKEN.findall(text)[::-1]
    found = _type(tokens)
    if tokens:
        raise ValueError(f"{text!r} is no type of a column")
    return found


@cache
def parse_schema(text: str) -> pa.Schema:
    """The columns that `ms BIGINT, seq BIGINT` and the like name."""
    tokens = _TOKEN.findall(text)[::-1]
    return pa.schema(_fields(tokens, end=""))


def parse_return(text: str) -> pa.DataType:
    """The type of what a function returns: a type, or the columns of a struct."""
    try:
        return parse_type(text)
    except (KeyError, ValueError):
        return pa.struct(list(parse_schema(text)))


def spark_schema(schema: pa.Schema) -> Any:
    """The same columns as Spark names them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def plain(array: Any) -> pa.Array:
    """One array without a dictionary."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else _none(array.type)
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array


def _none(kind: pa.DataType) -> pa.Array:
    return pa.array([], kind)


def _type(tokens: list[str]) -> pa.DataType:
    name = tokens.pop().lower()
    if name == "array":
        _expect(tokens, "<")
        found = pa.list_(_type(tokens))
    elif name == "map":
        _expect(tokens, "<")
        key = _type(tokens)
        _expect(tokens, ",")
        found = pa.map_(key, _type(tokens))
    elif name == "struct":
        _expect(tokens, "<")
        return pa.struct(_fields(tokens, end=">"))
    else:
        return _PLAIN[name]
    _expect(tokens, ">")
    return found


def _fields(tokens: list[str], end: str) -> list[pa.Field]:
    fields = []
    while tokens and tokens[-1] != end:
        name = tokens.pop().strip("`")
        if tokens and tokens[-1] == ":":
            # A name in backquotes may hold one itself: that is part of its token.
            tokens.pop()
        fields.append(pa.field(name, _type(tokens)))
        if tokens and tokens[-1] == ",":
            tokens.pop()
    if end:
        _expect(tokens, end)
    return fields


def _expect(tokens: list[str], wanted: str) -> None:
    found = tokens.pop() if tokens else "its end"
    if found != wanted:
        raise ValueError(f"{wanted!r} is expected in a type, and there is {found!r}")
