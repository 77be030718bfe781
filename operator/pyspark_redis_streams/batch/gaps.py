"""Why an entry that was there at planning is not there now: deleted on purpose, or lost."""

from __future__ import annotations

from pelops.redis_core.entry_id import EntryId
from pyspark_redis_streams.errors import DataLoss
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.stream_state import StreamState, observe_stream

ADVICE = "Set option 'failOnDataLoss' to false to read what is left"


def refuse_gap(connections: ServerConnections, stream: str, missing: EntryId) -> None:
    """Raise DataLoss unless the entry was deleted by XDEL, which is its owner's decision."""
    state = observe_stream(connections, stream, allow_missing=True)
    lost = explain_gap(stream, missing, state)
    if lost is not None:
        raise DataLoss(f"{lost}. {ADVICE}")


def explain_gap(stream: str, missing: EntryId, state: StreamState) -> str | None:
    """What happened to entries at and behind `missing`; None when it was merely deleted."""
    if state.added == 0 and state.length == 0:
        return f"stream '{stream}' is gone: it was deleted or flushed while it was being read"
    if state.last_generated < missing:
        return (
            f"stream '{stream}' went back to {state.last_generated}, before {missing}: it was made"
            " anew, or a failover lost its newest entries"
        )
    if state.first is None or state.first > missing:
        return (
            f"stream '{stream}' lost entries from {missing} on before they were read: it was"
            f" trimmed, or emptied by XDEL, up to {state.first or state.last_generated}"
        )
    if state.max_deleted >= missing:
        return None
    return (
        f"entry {missing} of stream '{stream}' is gone though it was neither trimmed nor deleted:"
        " a failover lost it"
    )
