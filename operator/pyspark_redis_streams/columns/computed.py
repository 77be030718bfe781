"""Columns computed from all fields of an entry, for reads that do not want the payload itself."""

from __future__ import annotations

import marshal
from collections.abc import Collection, Sequence
from hashlib import blake2b

import pyarrow as pa

from pyspark_redis_streams.columns.layout import Flat
from pyspark_redis_streams.columns.schemas import ColumnSource

ORIGINAL_ID = b"_original_id"
RETRY_COUNT = b"_retry_count"
COMPUTED = frozenset((ColumnSource.HASH, ColumnSource.BYTES, ColumnSource.ROOT))

# What `marshal` writes beside the bytes of a text: of a list, and of each part of it.
_FRAME_OF_LIST = 5
_FRAME_OF_PART = 5

# A copy of it costs less than to make one with another size than the usual.
_EMPTY_DIGEST = blake2b(digest_size=8)


def compute(
    flats: Sequence[Flat], wanted: Collection[ColumnSource]
) -> dict[ColumnSource, pa.Array]:
    """Those of the computed columns that are wanted: the entries are put into one text once.

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
    if ColumnSource.ROOT in wanted:
        made[ColumnSource.ROOT] = _roots(flats)
    return made


def _hashes(texts: Sequence[bytes]) -> pa.Array:
    """A 64-bit hash of names and values in their order: equal for equal entries, everywhere.

    It is BLAKE2b with 8 bytes, read as a signed little-endian number, of this text: "[", the number
    of names and values (4 bytes, little-endian), and for each of them "s", its length (4 bytes,
    little-endian) and its bytes. That is what `marshal` writes in version 2.
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


def _roots(flats: Sequence[Flat]) -> pa.Array:
    """The ID of the entry that a copy goes back to; null for an entry that is no copy.

    A copy made by a recovery ends with the pairs `_original_id` and `_retry_count`.
    """
    # An entry has a field at least. Most pages have no copies, which one look shows.
    if RETRY_COUNT not in [flat[-2] for flat in flats]:
        return pa.nulls(len(flats), pa.binary())
    return pa.array(
        [
            flat[-3]
            if len(flat) >= 4 and flat[-4] == ORIGINAL_ID and flat[-2] == RETRY_COUNT
            else None
            for flat in flats
        ],
        pa.binary(),
    )
