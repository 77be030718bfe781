"""What the demo writes to Redis and reads from it: the stream, its group and the results."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from demo.counting import FileCounts, parse_counts
from demo.declaration import Declaration

CHUNK = 500  # entries per round trip


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """What a consumer group still owes."""

    pending: int
    lag: int | None  # None: Redis cannot tell


class Store:
    """The demo's part of one Redis."""

    def __init__(self, url: str, declaration: Declaration) -> None:
        # Answers are cast: the client's types speak of every protocol and of asyncio at once.
        self._server: Any = redis.Redis.from_url(url)
        self._names = declaration

    def add_entries(self, paths: Sequence[Path]) -> None:
        """Add an entry for each file, many in a round trip."""
        for first in range(0, len(paths), CHUNK):
            with self._server.pipeline(transaction=False) as pipeline:
                for path in paths[first : first + CHUNK]:
                    pipeline.xadd(self._names.stream, {"path": os.fsencode(path)})
                pipeline.execute()

    def count_entries(self) -> int:
        """The length of the stream."""
        return int(self._server.xlen(self._names.stream))

    def count_stream(self, key: str) -> int | None:
        """The length of another stream; None when the key holds none."""
        return int(self._server.xlen(key)) if self._server.type(key) == b"stream" else None

    def observe_group(self) -> Owed:
        """What the group owes; raises LookupError when there is no such group."""
        for group in self._server.xinfo_groups(self._names.stream):
            if group["name"] == self._names.group.encode():
                return Owed(pending=group["pending"], lag=group["lag"])
        raise LookupError(f"no consumer group {self._names.group} on {self._names.stream}")

    def is_drained(self) -> bool:
        """Whether every entry was delivered and acknowledged."""
        owed = self.observe_group()
        return owed.pending == 0 and owed.lag == 0

    def read_results(self) -> dict[str, FileCounts]:
        """What the workers stored, by path."""
        stored = self._server.hgetall(self._names.results_key)
        return {os.fsdecode(path): parse_counts(counts) for path, counts in stored.items()}
