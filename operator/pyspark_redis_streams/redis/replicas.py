"""Reading from a replica, which may not have everything yet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_redis_streams.batch.pages import EntryRange
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.stream_state import observe_stream

_LONGEST_WAIT_S = 2.0
_LOOK_EVERY_S = 0.05


@contextmanager
def connections_for(
    wanted: EntryRange, master: ServerConnections, options: ReadOptions
) -> Iterator[ServerConnections]:
    """Where a range is read: at a replica that has its last entry, else at the master."""
    if not options.server.from_replica:
        yield master
        return
    with ServerConnections(options.server, from_replica=True) as replica:
        yield replica if _catches_up(replica, wanted) else master


def _catches_up(replica: ServerConnections, wanted: EntryRange) -> bool:
    until = time.monotonic() + _LONGEST_WAIT_S
    while True:
        state = observe_stream(replica, wanted.stream, allow_missing=True)
        if state.last_generated >= wanted.last:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_EVERY_S)
