"""Which locks of workers exist, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pelops.errors import PelopsError
from pelops.redis_core.replies.shapes import LATEST_MS
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Command

_ABSENT: Final = -2  # PTTL of a key that does not exist


async def read_lifetimes(server: Server, keys: Sequence[str]) -> list[timedelta]:
    """The remaining lifetimes of those keys that have one. Raises PelopsError."""
    return [
        timedelta(milliseconds=min(left_ms, LATEST_MS))
        for left_ms in await _read_ttls(server, keys)
        if left_ms > 0
    ]


async def find_existing(server: Server, keys: Sequence[str]) -> list[str]:
    """Those of the keys that exist. Raises PelopsError."""
    ttls = await _read_ttls(server, keys)
    return [key for key, left_ms in zip(keys, ttls, strict=True) if left_ms != _ABSENT]


async def _read_ttls(server: Server, keys: Sequence[str]) -> list[int]:
    """One PTTL for each key, in one round trip."""
    ttls = []
    for reply in await server.execute_many([Command(parts=("PTTL", key), key=key) for key in keys]):
        if isinstance(reply, PelopsError):
            raise reply
        ttls.append(reply)
    return ttls
