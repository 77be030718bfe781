"""View `pending`: one row for each entry that was delivered and not acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pelops.redis_core.entry_id import parse_entry_id
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.link import Argument
from pyspark_redis_streams.views.group_replies import read_groups, text
from pyspark_redis_streams.views.rows import Row, RowsReader


class PendingReader(RowsReader):
    """The pending entries of one group, page by page: each row is of its page's moment.

    An entry that is acknowledged or delivered meanwhile may be missing or there, but never twice.
    """

    def _streams_of_a_task(self) -> int:
        return 1

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        for _ in read_groups(connections, stream, self._options):
            for page in self._pages(connections, stream):
                yield from (self._row(stream, pending) for pending in page)

    def _pages(self, connections: ServerConnections, stream: str) -> Iterator[list[list[Any]]]:
        options = self._options
        group = options.group or ""
        only: tuple[Argument, ...] = () if options.consumer is None else (options.consumer,)
        start = "-"
        while True:
            page = connections.ask(
                stream, "XPENDING", stream, group, "IDLE", options.min_idle_ms,
                start, "+", options.page_size, *only,
            )  # fmt: skip
            yield page
            if len(page) < options.page_size:
                return
            start = f"({page[-1][0].decode()}"

    def _row(self, stream: str, pending: list[Any]) -> Row:
        entry_id = parse_entry_id(pending[0])
        return {
            "stream": stream,
            "group": self._options.group,
            "id": str(entry_id),
            "ms": entry_id.ms,
            "seq": entry_id.seq,
            "consumer": text(pending[1]),
            "idle_ms": pending[2],
            "delivery_count": pending[3],
        }
