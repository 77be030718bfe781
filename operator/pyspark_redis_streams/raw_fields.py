"""All fields of an entry in one column, for streams whose fields are not known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType

from pyspark_redis_streams.layout import Flat, common_layout, joined_flats, pairs_of


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


def _repair(raw: pa.Array, arrow: pa.DataType) -> tuple[pa.Array, list[int]]:
    pieces, bad = [], []
    for row in range(len(raw)):
        try:
            pieces.append(_build(raw.slice(row, 1), arrow))
        except pa.ArrowInvalid:
            pieces.append(pa.nulls(1, arrow))
            bad.append(row)
    return pa.concat_arrays(pieces), bad


def _build(raw: pa.Array, arrow: pa.DataType) -> pa.Array:
    pairs = raw.flatten()
    start = raw.offsets[0].as_py()
    offsets = raw.offsets if start == 0 else pa.array([o.as_py() - start for o in raw.offsets])
    offsets = offsets.cast(pa.int32())
    names, values = pairs.field(0), pairs.field(1)
    if pa.types.is_map(arrow):
        keys = names.cast(arrow.key_type)
        return pa.MapArray.from_arrays(offsets, keys, values.cast(arrow.item_type), type=arrow)
    element = arrow.value_type
    cast = [names.cast(element.field(0).type), values.cast(element.field(1).type)]
    rows = pa.StructArray.from_arrays(cast, fields=list(element))
    return pa.ListArray.from_arrays(offsets, rows, type=arrow)
