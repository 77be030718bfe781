"""Streams for tests of the data source: filled, cut, and read back without it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Self

import redis

from local_cluster.redis_servers import RedisServers

FIRST_MS = 1_700_000_000_000

_AT_ONCE = 1000

Fields = Mapping[Any, Any]


class Streams:
    """A client of one server, whose keys all begin with the test's prefix."""

    def __init__(self, servers: RedisServers, prefix: str) -> None:
        self.servers = servers
        self.port = servers.master().port
        self.prefix = prefix
        self.client = redis.Redis(port=self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        keys = list(self.client.scan_iter(match=self.prefix.replace("{", "\\{") + "*"))
        if keys:
            self.client.delete(*keys)
        self.client.close()

    @property
    def options(self) -> dict[str, str]:
        """Options of a read that reach the server, quick to give up."""
        return {"port": str(self.port), "numRetries": "3", "retryIntervalMs": "50"}

    def name(self, name: str = "orders") -> str:
        return self.prefix + name

    def add(self, *entries: Fields, name: str = "orders", ids: list[str] | None = None) -> str:
        """Add these entries one by one; answers the name of the stream."""
        wished = ids or ["*"] * len(entries)
        for entry_id, fields in zip(wished, entries, strict=True):
            self.client.xadd(self.name(name), dict(fields), id=entry_id)
        return self.name(name)

    def fill(self, number: int, *, name: str = "orders", first_ms: int = FIRST_MS) -> str:
        """Add entries, ten in each millisecond, numbered by field `number` from 0 on."""
        key = self.name(name).encode()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            replies = connection.makefile("rb")
            for start in range(0, number, _AT_ONCE):
                some = range(start, min(number, start + _AT_ONCE))
                connection.sendall(b"".join(_command(key, first_ms, i) for i in some))
                for _ in some:
                    assert replies.readline().startswith(b"$"), "an entry was refused"
                    replies.readline()
        return self.name(name)

    def ids(self, name: str = "orders") -> list[str]:
        return [entry_id.decode() for entry_id, _ in self.entries(name)]

    def entries(self, name: str = "orders") -> list[tuple[bytes, dict[bytes, bytes]]]:
        found: Any = self.client.xrange(self.name(name))
        return list(found)

    def run(self, *command: str) -> Any:
        """Any command, on this client's connection."""
        execute: Any = self.client.execute_command
        return execute(*command)


def _command(key: bytes, first_ms: int, number: int) -> bytes:
    """XADD as it goes over the wire: a client would need minutes for a million."""
    words = (
        b"XADD", key, b"%d-%d" % (first_ms + number // 10, number % 10),
        b"number", b"%d" % number, b"tenant", b"tenant-%d" % (number % 7),
    )  # fmt: skip
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
