"""A consumer group that shows how far a streaming query has come.

Nobody reads with it: it is moved to what the query has finished, so that XINFO GROUPS, and every
tool that reads it, shows the query's lag as that of any other group.
"""

from __future__ import annotations

import logging

from pyspark_redis_streams.errors import (
    GroupMissing,
    OptionError,
    ServerUnavailable,
    StreamMissing,
)
from pyspark_redis_streams.micro_batch.offsets import Offsets, Position
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.views.group_replies import named

logger = logging.getLogger(__name__)


class ProgressGroup:
    """Moves one group, in each stream of the query; creates it where it is missing."""

    def __init__(self, connections: ServerConnections, name: str) -> None:
        self._connections = connections
        self._name = name
        self._shown: dict[str, Position] = {}

    def show(self, offsets: Offsets) -> None:
        """Move the group to these places.

        Raises OptionError when others read with the group, and ServerError when it may not be
        moved. A server that is away is only logged: the next micro-batch moves the group as well.
        """
        for stream, position in offsets.items():
            try:
                self._show(stream, position)
            except StreamMissing:
                continue
            except ServerUnavailable as error:
                logger.warning("group '%s' was not moved: %s", self._name, error)

    def _show(self, stream: str, position: Position) -> None:
        if self._shown.get(stream) == position:
            return
        if stream not in self._shown:
            self._refuse_readers(stream)
        place = (stream, self._name, str(position.id), "ENTRIESREAD", position.added)
        try:
            self._connections.ask(stream, "XGROUP", "SETID", *place)
        except GroupMissing:
            self._connections.ask(stream, "XGROUP", "CREATE", *place)
        self._shown[stream] = position

    def _refuse_readers(self, stream: str) -> None:
        """Moving a group that others read with would take entries from them."""
        for group in map(named, self._connections.ask(stream, "XINFO", "GROUPS", stream)):
            if group["name"] == self._name and (group["consumers"] or group["pending"]):
                raise OptionError(
                    f"option 'progressGroup' is '{self._name}', a group that others read stream"
                    f" '{stream}' with (consumers: {group['consumers']}, pending entries:"
                    f" {group['pending']}); name one that nobody reads with"
                )
