"""Columns computed from all fields of an entry, for reads that do not want the payload itself."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa

from pyspark_redis_streams.layout import Flat

ORIGINAL_ID = b"_original_id"
RETRY_COUNT = b"_retry_count"


def hashes(flats: Sequence[Flat]) -> pa.Array:
    """A 64-bit hash of names and values in their order: equal for equal entries, everywhere.

    It is BLAKE2b with 8 bytes, read as a signed little-endian number, of this text: "[", the number
    of names and values (4 bytes, little-endian), and for each of them "s", its length (4 bytes,
    little-endian) and its bytes. That is what `marshal` writes in version 2.
    """
    digests = b"".join([blake2b(marshal.dumps(flat, 2), digest_size=8).digest() for flat in flats])
    return pa.Array.from_buffers(pa.int64(), len(flats), [None, pa.py_buffer(digests)])


def sizes(flats: Sequence[Flat]) -> pa.Array:
    """Bytes of names and values together."""
    return pa.array([len(b"".join(flat)) for flat in flats], pa.int64())


def roots(flats: Sequence[Flat]) -> pa.Array:
    """The ID of the entry that a copy goes back to; null for an entry that is no copy.

    A copy made by a recovery ends with the pairs `_original_id` and `_retry_count`.
    """
    return pa.array(
        [
            flat[-3]
            if len(flat) >= 4 and flat[-4] == ORIGINAL_ID and flat[-2] == RETRY_COUNT
            else None
            for flat in flats
        ],
        pa.binary(),
    )
