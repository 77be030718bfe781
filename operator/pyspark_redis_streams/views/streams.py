"""View `streams`: one row for each stream, as XINFO STREAM tells it at one moment."""

from __future__ import annotations

from collections.abc import Iterator

from pelops.redis_core.entry_id import EntryId
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.stream_state import ABSENT, observe_stream
from pyspark_redis_streams.views.rows import Row, RowsReader


class StreamsReader(RowsReader):
    """A stream that does not exist has no row, if it may be missing."""

    def rows(self, connections: ServerConnections, stream: str) -> Iterator[Row]:
        state = observe_stream(connections, stream, allow_missing=self._options.allow_missing)
        if state is ABSENT:
            return
        yield {
            "stream": stream,
            "length": state.length,
            "entries_added": state.added,
            "last_generated_id": str(state.last_generated),
            "max_deleted_entry_id": str(state.max_deleted),
            "first_id": _text(state.first),
            "last_id": _text(state.last),
            "groups": state.groups,
        }


def _text(entry_id: EntryId | None) -> str | None:
    return None if entry_id is None else str(entry_id)
