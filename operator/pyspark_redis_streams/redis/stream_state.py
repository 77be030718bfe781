"""What XINFO STREAM tells about a stream, read in one command and thus at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pelops.redis_core.entry_id import EntryId, parse_entry_id
from pyspark_redis_streams.errors import ServerError, StreamMissing
from pyspark_redis_streams.redis.connections import ServerConnections


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A stream as of one moment; a stream that does not exist is empty with all IDs 0-0."""

    length: int = 0
    added: int = 0  # entries ever added: neither trimming nor deleting lowers it
    last_generated: EntryId = EntryId.MIN
    max_deleted: EntryId = EntryId.MIN  # moved by XDEL, not by trimming
    first: EntryId | None = None  # of the entries that are there
    last: EntryId | None = None
    groups: int = 0

    @property
    def removed(self) -> int:
        """How many entries were trimmed or deleted."""
        return self.added - self.length


ABSENT = StreamState()


def observe_stream(
    connections: ServerConnections, stream: str, *, allow_missing: bool
) -> StreamState:
    """The stream now. Raises StreamMissing unless `allow_missing`, and every other ServerError."""
    try:
        return parse_stream_state(connections.ask(stream, "XINFO", "STREAM", stream))
    except StreamMissing as error:
        if allow_missing:
            return ABSENT
        raise StreamMissing(
            f"stream '{stream}' does not exist ({error}); check the options 'stream' and 'db', or"
            " set option 'missingStream' to 'empty'"
        ) from error


def parse_stream_state(reply: list[Any]) -> StreamState:
    """The reply of XINFO STREAM."""
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    if b"entries-added" not in found:
        raise ServerError(
            "XINFO STREAM does not tell 'entries-added': Redis 7.0 or later is needed"
        )
    return StreamState(
        length=found[b"length"],
        added=found[b"entries-added"],
        last_generated=parse_entry_id(found[b"last-generated-id"]),
        max_deleted=parse_entry_id(found[b"max-deleted-entry-id"]),
        first=_id_of(found[b"first-entry"]),
        last=_id_of(found[b"last-entry"]),
        groups=found[b"groups"],
    )


def _id_of(entry: list[Any] | None) -> EntryId | None:
    return parse_entry_id(entry[0]) if entry else None
