"""The streams of a read, and the state of each.

The state is the reply of one XINFO STREAM, so all of it is from one moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pelops.redis_core import EntryId, parse_entry_id
from pyspark_redis_streams.errors import ServerError, StreamMissing
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.node_connection import NodeConnection
from pyspark_redis_streams.redis.server_connections import ServerConnections

_SCAN_COUNT = 1000
MOST_STREAMS = 100_000  # that one pattern may find


def find_streams(connections: ServerConnections, options: ReadOptions) -> tuple[str, ...]:
    """The named streams, or those that match the pattern now, sorted by name.

    Raises StreamMissing when none matches, unless streams may be missing.
    """
    if options.stream_pattern is None:
        return options.streams
    pattern = options.stream_pattern
    found = connections.persist(lambda: _scan_all(connections, pattern))
    if not found and not options.allow_missing:
        raise StreamMissing(
            f"option 'streamPattern' is '{pattern}', and no stream matches; set option"
            " 'missingStream' to 'empty' if this is expected"
        )
    return tuple(sorted(found))


def _scan_all(connections: ServerConnections, pattern: str) -> set[str]:
    return {_name(key) for link in connections.masters() for key in _scan(link, pattern)}


def _scan(link: NodeConnection, pattern: str) -> list[bytes]:
    keys: set[bytes] = set()
    cursor: bytes | int = 0
    while True:
        asked = cursor
        cursor, some = link.execute(
            "SCAN", asked, "MATCH", pattern, "COUNT", _SCAN_COUNT, "TYPE", "stream"
        )
        keys.update(some)
        if int(cursor) == 0:
            return sorted(keys)
        if cursor == asked or len(keys) > MOST_STREAMS:
            raise ServerError(
                f"option 'streamPattern' finds more than {MOST_STREAMS} streams, or SCAN at"
                f" {link.node} comes to no end"
            )


def _name(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise ServerError(
            f"option 'streamPattern' fits a stream whose name is not UTF-8: {key!r}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A stream as of one moment; a stream that does not exist is empty with all IDs 0-0."""

    length: int = 0
    added: int = 0  # entries ever added; trimming and XDEL do not reduce it
    last_generated: EntryId = EntryId.MIN
    max_deleted: EntryId = EntryId.MIN  # updated by XDEL, not by trimming
    first: EntryId | None = None  # of the existing entries
    last: EntryId | None = None
    groups: int = 0

    @property
    def removed(self) -> int:
        """The number of entries that were trimmed or deleted."""
        return self.added - self.length


ABSENT = StreamState()


def observe_stream(
    connections: ServerConnections, stream: str, *, allow_missing: bool
) -> StreamState:
    """The stream now. Raises StreamMissing unless `allow_missing`, and other ServerErrors."""
    try:
        return parse_stream_state(connections.execute(stream, "XINFO", "STREAM", stream))
    except StreamMissing as error:
        if allow_missing:
            return ABSENT
        raise StreamMissing(
            f"stream '{stream}' does not exist ({error}); check the options 'stream' and 'db', or"
            " set option 'missingStream' to 'empty'"
        ) from error


def parse_stream_state(reply: list[Any]) -> StreamState:
    """The state from a reply of XINFO STREAM."""
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    if not {b"entries-added", b"max-deleted-entry-id"} <= found.keys():
        raise ServerError(
            "XINFO STREAM does not return 'entries-added': Redis 7.0 or later is required"
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
