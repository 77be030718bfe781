"""View `groups`: one row for each consumer group, as XINFO GROUPS tells it."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.views.group_replies import read_groups
from pyspark_redis_streams.views.rows import Row, RowsReader


class GroupsReader(RowsReader):
    """`entries_read` and `lag` are null where Redis cannot tell them."""

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        for group in read_groups(connections, stream, self._options):
            yield {
                "stream": stream,
                "group": group["name"],
                "consumers": group["consumers"],
                "pending": group["pending"],
                "last_delivered_id": group["last-delivered-id"],
                "entries_read": group.get("entries-read"),
                "lag": group.get("lag"),
            }
