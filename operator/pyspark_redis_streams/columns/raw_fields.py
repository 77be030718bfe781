"""All fields of an entry in one column, for streams whose fields are not known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType

from pyspark_redis_streams.columns.layout import Flat, common_layout, joined_flats, pairs_of


def raw_pairs(flats: Sequence[Flat], wanted: DataType, duplicates: str) -> pa.Array:
    """The fields of a page as lists of name and value, both binary still."""
    if not isinstance(wanted, ArrayType):
        flats = _without_repetitions(flats, keeps_first=duplicates == "first")
    joined = joined_flats(flats)
    lengths = [len(flat) // 2 for flat in flats]
    pairs = pa.StructArray.from_arrays(
        [pa.array(joined[::2], pa.binary()), pa.array(joined[1::2], pa.binary())],
        names=["name", "value"],
    )
    return pa.ListArray.from_arrays(pa.array(accumulate(lengths, initial=0), pa.int32()), pairs)


def _without_repetitions(flats: Sequence[Flat], *, keeps_first: bool) -> Sequence[Flat]:
    """A map has each key once, and Spark does not look."""
    width = len(flats[0])
    if common_layout(flats, width) is not None and len(set(flats[0][::2])) == width // 2:
        return flats
    return [_once(flat, keeps_first=keeps_first) for flat in flats]


def _once(flat: Flat, *, keeps_first: bool) -> Flat:
    if len(set(flat[::2])) == len(flat) // 2:
        return flat
    return list(chain.from_iterable(pairs_of(flat, keeps_first=keeps_first).items()))


def raw_converter(arrow: pa.DataType) -> Callable[[pa.Array], tuple[pa.Array, list[int]]]:
    """Turns lists of pairs into the map or array that the schema wants."""

    def convert(raw: pa.Array) -> tuple[pa.Array, list[int]]:
        try:
            return _build(raw, arrow), []
        except pa.ArrowInvalid:
            return _repair(raw, arrow)

    return convert


def shown_texts(raw: pa.Array) -> tuple[pa.Array, list[int]]:
    """Texts, with escapes where they are not UTF-8."""
    try:
        return raw.cast(pa.string()), []
    except pa.ArrowInvalid:
        shown = [
            None if text is None else text.decode("utf-8", "backslashreplace")
            for text in raw.to_pylist()
        ]
        return pa.array(shown, pa.string()), []


def _repair(raw: pa.Array, arrow: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Row by row: a name that is not UTF-8 is shown with escapes, such a value is null and bad."""
    is_map = pa.types.is_map(arrow)
    pair_type = pa.struct([arrow.key_field, arrow.item_field]) if is_map else arrow.value_type
    name_type, value_type = pair_type.field(0).type, pair_type.field(1)
    rows: list[Any] = []
    bad: list[int] = []
    for row, pairs in enumerate(raw.to_pylist()):
        names: list[Any] = [pair["name"] for pair in pairs]
        values: list[Any] = [pair["value"] for pair in pairs]
        if pa.types.is_string(name_type):
            names = _shown_names(names)
        if pa.types.is_string(value_type.type):
            values = [_text(value) for value in values]
        if None in values:
            bad.append(row)
        if None in values and not value_type.nullable:
            rows.append(None)
        elif is_map:
            rows.append(list(zip(names, values, strict=True)))
        else:
            rows.append([{"name": n, "value": v} for n, v in zip(names, values, strict=True)])
    return pa.array(rows, arrow), bad


def _shown_names(names: Sequence[bytes]) -> list[str]:
    """Names as texts, different ones always differently: a map has each key once."""
    texts = {name: _text(name) for name in names}
    taken = set(texts.values())
    for name in [name for name, text in texts.items() if text is None]:
        shown = name.decode("utf-8", "backslashreplace")
        while shown in taken:
            shown = "\\" + shown
        texts[name] = shown
        taken.add(shown)
    return [texts[name] or "" for name in names]


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _build(raw: pa.Array, arrow: pa.DataType) -> pa.Array:
    pairs = raw.flatten()
    names, values = pairs.field(0), pairs.field(1)
    if pa.types.is_map(arrow):
        keys = names.cast(arrow.key_type)
        return pa.MapArray.from_arrays(raw.offsets, keys, values.cast(arrow.item_type), type=arrow)
    element = arrow.value_type
    cast = [names.cast(element.field(0).type), values.cast(element.field(1).type)]
    rows = pa.StructArray.from_arrays(cast, fields=list(element))
    return pa.ListArray.from_arrays(raw.offsets, rows, type=arrow)
