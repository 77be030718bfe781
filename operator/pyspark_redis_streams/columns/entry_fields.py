"""Fields of entries: the values of single fields, all fields in one column, or computed columns.

Most entries have the same fields in the same order, so a page is transposed by slicing one flat
list. A page with an entry that differs is transposed entry by entry.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType

from pyspark_redis_streams.columns.schemas import ColumnSource

Flat = list[bytes]  # name, value, name, value, ...
Values = Sequence[bytes | None]


def values_by_field(
    flats: Sequence[Flat], fields: Sequence[bytes], *, keeps_first: bool
) -> list[Values]:
    """For each field its value in each entry; None if an entry does not have it.

    Of a repeated field the last value counts, or the first with `keeps_first`.
    """
    width = len(flats[0])
    joined = common_layout(flats, width)
    if joined is None:
        return _one_by_one(flats, fields, keeps_first=keeps_first)
    names = joined[0:width:2]
    if keeps_first:
        at = {name: 2 * i + 1 for i, name in reversed(list(enumerate(names)))}
    else:
        at = {name: 2 * i + 1 for i, name in enumerate(names)}
    absent: Values = [None] * len(flats)
    return [joined[at[field] :: width] if field in at else absent for field in fields]


def trailing_values(flats: Sequence[Flat], names: list[bytes], field: bytes) -> Values:
    """The value of a field in each entry that ends with exactly the fields of these names."""
    # An entry has at least one field. Most pages have no such entry, which this check detects.
    if names[-1] not in [flat[-2] for flat in flats]:
        return [None] * len(flats)
    width = 2 * len(names)
    at = 2 * names.index(field) + 1 - width
    return [flat[at] if flat[-width::2] == names else None for flat in flats]


def common_layout(flats: Sequence[Flat], width: int) -> Flat | None:
    """All entries in one flat list if they have the same field names in the same order."""
    number = len(flats)
    if list(map(len, flats)).count(width) != number:
        return None
    joined = joined_flats(flats)
    # One comparison of two long lists costs half of a comparison for each name.
    return joined if joined[::2] == joined[0:width:2] * number else None


def joined_flats(flats: Sequence[Flat]) -> Flat:
    """Names and values of all entries in one list."""
    joined: Flat = []
    for flat in flats:
        joined += flat
    return joined


def _one_by_one(
    flats: Sequence[Flat], fields: Sequence[bytes], *, keeps_first: bool
) -> list[Values]:
    entries = [pairs_of(flat, keeps_first=keeps_first) for flat in flats]
    return [[entry.get(field) for entry in entries] for field in fields]


def pairs_of(flat: Flat, *, keeps_first: bool) -> dict[bytes, bytes]:
    """The fields of one entry; a repeated field has its last value, or its first."""
    if keeps_first:
        return dict(zip(flat[-2::-2], flat[::-2], strict=True))
    return dict(zip(flat[::2], flat[1::2], strict=True))


def raw_pairs(flats: Sequence[Flat], wanted: DataType, duplicates: str) -> pa.Array:
    """The fields of a page as lists of name and value, both still binary."""
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
    """Entries with each field once: a map must not repeat a key, and Spark does not check that."""
    width = len(flats[0])
    if common_layout(flats, width) is not None and len(set(flats[0][::2])) == width // 2:
        return flats
    return [_once(flat, keeps_first=keeps_first) for flat in flats]


def _once(flat: Flat, *, keeps_first: bool) -> Flat:
    if len(set(flat[::2])) == len(flat) // 2:
        return flat
    return list(chain.from_iterable(pairs_of(flat, keeps_first=keeps_first).items()))


def raw_converter(arrow: pa.DataType) -> Callable[[pa.Array], tuple[pa.Array, list[int]]]:
    """A converter from lists of pairs to the map or array of the schema."""

    def convert(raw: pa.Array) -> tuple[pa.Array, list[int]]:
        try:
            return _build(raw, arrow), []
        except pa.ArrowInvalid:
            return _repair(raw, arrow)

    return convert


def _repair(raw: pa.Array, arrow: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Convert row by row, with bytes that are not UTF-8.

    Such names get escapes. Such values get U+FFFD, and their rows are bad.
    """
    is_map = pa.types.is_map(arrow)
    pair_type = pa.struct([arrow.key_field, arrow.item_field]) if is_map else arrow.value_type
    name_type, value_type = pair_type.field(0).type, pair_type.field(1).type
    rows: list[Any] = []
    bad: list[int] = []
    for row, pairs in enumerate(raw.to_pylist()):
        names: list[Any] = [pair["name"] for pair in pairs]
        values: list[Any] = [pair["value"] for pair in pairs]
        if pa.types.is_string(name_type):
            names = _shown_names(names)
        if pa.types.is_string(value_type):
            if None in map(_text, values):
                bad.append(row)
            values = [value.decode("utf-8", "replace") for value in values]
        if is_map:
            rows.append(list(zip(names, values, strict=True)))
        else:
            rows.append([{"name": n, "value": v} for n, v in zip(names, values, strict=True)])
    return pa.array(rows, arrow), bad


def _shown_names(names: Sequence[bytes]) -> list[str]:
    """Names as texts; different names give different texts, because a map must not repeat a key."""
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


COMPUTED = frozenset((ColumnSource.HASH, ColumnSource.BYTES))

# Bytes that `marshal` adds to a list, and to each element of it.
_FRAME_OF_LIST = 5
_FRAME_OF_PART = 5

# Copying it is faster than creating a digest of this size.
_EMPTY_DIGEST = blake2b(digest_size=8)


def compute(
    flats: Sequence[Flat], wanted: Collection[ColumnSource]
) -> dict[ColumnSource, pa.Array]:
    """The computed columns that are wanted; each entry is serialized only once for both.

    `bytes` is the size of names and values together.
    """
    made: dict[ColumnSource, pa.Array] = {}
    if ColumnSource.HASH in wanted:
        texts = [marshal.dumps(flat, 2) for flat in flats]
        made[ColumnSource.HASH] = _hashes(texts)
        if ColumnSource.BYTES in wanted:
            made[ColumnSource.BYTES] = _sizes_of_texts(texts, flats)
    elif ColumnSource.BYTES in wanted:
        made[ColumnSource.BYTES] = pa.array([len(b"".join(flat)) for flat in flats], pa.int64())
    return made


def _hashes(texts: Sequence[bytes]) -> pa.Array:
    """A 64-bit hash of names and values in their order, the same on every machine.

    It is BLAKE2b with 8 bytes, as a signed little-endian number. Its input is "[" and the number of
    names and values (4 bytes, little-endian), then for each of them "s", its length (4 bytes,
    little-endian) and its bytes. This is the format of `marshal` version 2.
    """
    digests = []
    for text in texts:
        digest = _EMPTY_DIGEST.copy()
        digest.update(text)
        digests.append(digest.digest())
    return pa.Array.from_buffers(pa.int64(), len(digests), [None, pa.py_buffer(b"".join(digests))])


def _sizes_of_texts(texts: Sequence[bytes], flats: Sequence[Flat]) -> pa.Array:
    return pa.array(
        [
            len(text) - _FRAME_OF_LIST - _FRAME_OF_PART * len(flat)
            for text, flat in zip(texts, flats, strict=True)
        ],
        pa.int64(),
    )
