"""The replies of XINFO GROUPS and XINFO CONSUMERS, for all views that begin with them."""

from __future__ import annotations

from typing import Any

from pyspark_redis_streams.errors import GroupMissing
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.stream_state import ABSENT, observe_stream

Reply = dict[str, Any]

RAW_NAME = "raw name"  # of a group: the bytes by which Redis knows it


def read_groups(connections: ServerConnections, stream: str, options: ReadOptions) -> list[Reply]:
    """The groups of a stream, or the one that option `group` names.

    Raises GroupMissing when it is not there, unless the read takes streams by a pattern.
    """
    if observe_stream(connections, stream, allow_missing=options.allow_missing) is ABSENT:
        return []
    replies = connections.ask(stream, "XINFO", "GROUPS", stream)
    groups = [named(reply) | {RAW_NAME: reply[reply.index(b"name") + 1]} for reply in replies]
    if options.group is None:
        return groups
    wanted = [group for group in groups if group["name"] == options.group]
    if not wanted and options.stream_pattern is None:
        raise GroupMissing(
            f"option 'group' is '{options.group}', but stream '{stream}' has no such group; it has"
            f" {', '.join(str(group['name']) for group in groups) or 'none'}"
        )
    return wanted


def named(reply: list[Any]) -> Reply:
    """A flat reply of names and values as a dictionary, its texts decoded."""
    return {name.decode(): text(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def text(value: Any) -> Any:
    """Names in Redis are any bytes; those that are no UTF-8 are shown with escapes."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
