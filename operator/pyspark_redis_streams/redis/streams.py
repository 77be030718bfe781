"""Which streams a read is about."""

from __future__ import annotations

from pyspark_redis_streams.errors import ServerError, StreamMissing
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.link import NodeConnection

_SCAN_COUNT = 1000


def find_streams(connections: ServerConnections, options: ReadOptions) -> tuple[str, ...]:
    """The named streams, or those that fit the pattern now, in order of their names.

    Raises StreamMissing when none fits, unless streams may be missing.
    """
    if options.stream_pattern is None:
        return options.streams
    pattern = options.stream_pattern
    found = connections.persist(lambda: _scan_all(connections, pattern))
    if not found and not options.allow_missing:
        raise StreamMissing(
            f"option 'streamPattern' is '{pattern}', and no stream fits it; set option"
            " 'missingStream' to 'empty' if that is no error"
        )
    return tuple(sorted(found))


def _scan_all(connections: ServerConnections, pattern: str) -> set[str]:
    return {_name(key) for link in connections.masters() for key in _scan(link, pattern)}


def _scan(link: NodeConnection, pattern: str) -> list[bytes]:
    keys: list[bytes] = []
    cursor: bytes | int = 0
    while True:
        cursor, some = link.ask(
            "SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT, "TYPE", "stream"
        )
        keys += some
        if int(cursor) == 0:
            return keys


def _name(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise ServerError(
            f"option 'streamPattern' fits a stream whose name is not UTF-8: {key!r}"
        ) from error
