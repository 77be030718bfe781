"""Values of columns and their types.

Values are arrays, or scalars that stand for the same in every row. Types are read from the text of
a Spark schema, and written as what Spark notes in Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

Value = Any  # a pyarrow.Array or a pyarrow.Scalar
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def is_scalar(value: Value) -> bool:
    return isinstance(value, pa.Scalar)


def is_all_null(value: Value) -> bool:
    """Whether there is no value in any row; False where there is no row."""
    if is_scalar(value):
        return not bool(value.is_valid)
    return bool(0 < len(value) == value.null_count)


def spread(value: Value, size: int) -> pa.Array:
    """An array of so many values."""
    if not is_scalar(value):
        return value
    if not value.is_valid:
        return pa.nulls(size, value.type)
    if pa.types.is_nested(value.type):
        return pa.array([value.as_py()] * size, value.type)
    return pa.repeat(value, size)


def align(values: Sequence[Value]) -> list[Value]:
    """The same values in a type that holds all of them. Raises TypeError where none does."""
    kinds = {value.type for value in values}
    if len(kinds) == 1:
        return list(values)
    wanted = common_type(kinds)
    return [value if value.type == wanted else cast(value, wanted) for value in values]


def common_type(kinds: set[pa.DataType]) -> pa.DataType:
    """The type that holds values of all of these types. Raises TypeError."""
    reported = {kind for kind in kinds if not pa.types.is_null(kind)}
    if len(reported) == 1:
        return reported.pop()
    if not reported:
        return pa.null()
    if all(kind in _INTEGERS for kind in reported):
        return max(reported, key=_INTEGERS.index)
    if all(kind in _INTEGERS or pa.types.is_floating(kind) for kind in reported):
        return pa.float64()
    raise TypeError(f"no type holds all of {', '.join(sorted(map(str, reported)))}")


def cast(value: Value, kind: pa.DataType) -> Value:
    """The value in another type; bytes become text as they are, as with Spark."""
    if value.type == kind:
        return value
    if pa.types.is_null(value.type):
        return pa.scalar(None, kind) if is_scalar(value) else pa.nulls(len(value), kind)
    if pa.types.is_binary(value.type) and pa.types.is_string(kind):
        if is_scalar(value):
            return pa.scalar(value.as_py().decode("utf-8", "replace"), kind)
        return pc.cast(value, options=pc.CastOptions(kind, allow_invalid_utf8=True))
    return value.cast(kind)


def choose(mask: pa.Array, one: Value, other: Value) -> pa.Array:
    """One value where the mask says so, and the other where not."""
    one, other = align([one, other])
    if not pa.types.is_nested(one.type):
        return pc.if_else(mask, one, other)
    size = len(mask)
    both = pa.concat_arrays([spread(one, size), spread(other, size)])
    here = positions(size)
    return both.take(pc.if_else(mask, here, pc.add(here, size)))


def positions(size: int) -> pa.Array:
    """0, 1, 2 and so on."""
    return pa.array(range(size), pa.int64())


def compare(name: str, one: Value, other: Value) -> Value:
    """`less`, `equal` and the like; structs by their fields in order."""
    if not (pa.types.is_struct(one.type) and pa.types.is_struct(other.type)):
        return getattr(pc, name)(*align([one, other]))
    fields = range(one.type.num_fields)
    pairs = [(field_of(one, place), field_of(other, place)) for place in fields]
    same: Value = pa.scalar(True)
    less: Value = pa.scalar(False)
    for left, right in pairs:
        less = pc.or_kleene(less, pc.and_kleene(same, compare("less", left, right)))
        same = pc.and_kleene(same, compare("equal", left, right))
    found: dict[str, Callable[[], Value]] = {
        "equal": lambda: same,
        "not_equal": lambda: pc.invert(same),
        "less": lambda: less,
        "less_equal": lambda: pc.or_kleene(less, same),
        "greater": lambda: pc.invert(pc.or_kleene(less, same)),
        "greater_equal": lambda: pc.invert(less),
    }
    return found[name]()


def field_of(value: Value, field: int | str) -> Value:
    """A field of a struct; null where the struct is."""
    if is_scalar(value):
        return value[field] if value.is_valid else pa.scalar(None, value.type.field(field).type)
    return pc.struct_field(value, field if isinstance(field, str) else [field])


def flat_keys(value: pa.Array) -> list[pa.Array]:
    """A value as what it is sorted by: a struct is sorted by its fields in order."""
    if not pa.types.is_struct(value.type):
        return [value]
    fields = range(value.type.num_fields)
    return [key for place in fields for key in flat_keys(field_of(value, place))]


def sort_positions(keys: Sequence[tuple[pa.Array, bool]], size: int) -> pa.Array:
    """Where rows stand in order of the keys, each rising or falling; null is the lowest value."""
    found = positions(size)
    for key, is_falling in reversed(keys):
        for part in reversed(flat_keys(key)):
            order = "descending" if is_falling else "ascending"
            values = part.take(found)
            table = pa.table({"known": pc.is_valid(values), "key": values})
            places = pc.sort_indices(table, sort_keys=[("known", order), ("key", order)])
            found = found.take(places)
    return found


def to_python(array: pa.Array) -> Iterator[Any]:
    """Values as a function of Python takes them: structs as rows, maps as dictionaries."""
    convert = _converter(array.type)
    values = array.to_pylist()
    return iter(values) if convert is None else map(convert, values)


def _converter(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        from pyspark.sql import Row

        names = [kind.field(place).name for place in range(kind.num_fields)]
        inner = [_converter(kind.field(place).type) for place in range(kind.num_fields)]
        make = Row(*names)

        def convert(value: Any) -> Any:
            if value is None:
                return None
            parts = zip(names, inner, strict=True)
            return make(*(value[n] if c is None else c(value[n]) for n, c in parts))

        return convert
    if pa.types.is_map(kind):
        return lambda value: None if value is None else dict(value)
    if pa.types.is_list(kind):
        item = _converter(kind.value_type)
        if item is not None:
            return lambda value: None if value is None else [item(one) for one in value]
    return None


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
        raise ValueError(f"{text!r} is not the type of a column")
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
