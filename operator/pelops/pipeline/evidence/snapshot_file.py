"""Whether an RDB file, as which a server keeps its base, holds any key.

A server that is new writes an empty one: the commands after it then tell its whole life.
"""

from __future__ import annotations

from typing import BinaryIO, Final

_HEADER: Final = 9  # REDIS0011 or VALKEY080
_AUXILIARY, _END = 0xFA, 0xFF
_LARGEST_START: Final = 65536  # bytes; auxiliary fields take some hundred
_INTEGERS: Final = {0: 1, 1: 2, 2: 4}  # bytes of a number that stands for its text


def is_empty_snapshot(file: BinaryIO) -> bool:
    """Whether nothing but auxiliary fields stands before its end; False also when in doubt."""
    file.seek(0)
    start = file.read(_LARGEST_START)
    at = _HEADER
    try:
        while start[at] == _AUXILIARY:
            at = _skip_text(start, _skip_text(start, at + 1))
        return start[at] == _END
    except (IndexError, ValueError):
        return False


def _skip_text(data: bytes, at: int) -> int:
    """Where the next item begins. Raises IndexError at the end, ValueError for another kind."""
    kind, low = data[at] >> 6, data[at] & 0x3F
    if kind == 0:
        return at + 1 + low
    if kind == 1:
        return at + 2 + (low << 8 | data[at + 1])
    if kind == 3 and low in _INTEGERS:
        return at + 1 + _INTEGERS[low]
    raise ValueError("a text of a kind that no auxiliary field has")
