"""View `consumers`: one row for each consumer of a group, as XINFO CONSUMERS tells it."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_redis_streams.errors import GroupMissing
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.views.group_replies import RAW_NAME, Reply, named, read_groups
from pyspark_redis_streams.views.rows import Row, RowsReader


class ConsumersReader(RowsReader):
    """`inactive_ms` is null before Redis 7.2, and `idle_ms` there means what it means now."""

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        for group in read_groups(connections, stream, self._options):
            for consumer in self._consumers(connections, stream, group[RAW_NAME]):
                yield {
                    "stream": stream,
                    "group": group["name"],
                    "consumer": consumer["name"],
                    "pending": consumer["pending"],
                    "idle_ms": consumer["idle"],
                    "inactive_ms": consumer.get("inactive"),
                }

    def _consumers(self, connections: ServerConnections, stream: str, group: bytes) -> list[Reply]:
        try:
            return [
                named(reply)
                for reply in connections.ask(stream, "XINFO", "CONSUMERS", stream, group)
            ]
        except GroupMissing:
            if self._options.group is not None:
                raise
            return []  # it was there a moment ago, and nobody asked for it by name
