"""Events of expired keys, from the keyspace notifications of every master.

A server sends them only if its notify-keyspace-events has E and x, which Pelops never changes. It
sends them when it removes the key, which may be late, and those between two connections are lost.
So an event may only speed something up, and nothing may depend on it.
https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import Final

from redis import exceptions

from pelops.domain.endpoint import Node
from pelops.errors import PelopsError, RedisUnavailable, UnsupportedServer
from pelops.redis_core.errors import translate_failure
from pelops.redis_core.masters import Masters, end_tasks
from pelops.redis_core.replies.shapes import reading
from pelops.redis_core.replies.wire import ReplyLimit
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Command, Reply

# As in the rules of `pelops acl`, because an ACL compares patterns literally: of all databases.
PATTERN: Final = "__keyevent@*__:expired"
# New connections then go to the present masters, and replace those that died without a sign.
LIFETIME_S: Final = 60.0
NOT_ENABLED: Final = (
    "set notify-keyspace-events to Ex on every master, or "
    "spec.recovery.tuning.keyspaceNotifications to false"
)
_READ_SETTING: Final = Command(parts=("CONFIG", "GET", "notify-keyspace-events"))
_MESSAGE: Final = ReplyLimit(64 * 1024)  # no lock has a longer name


class ExpiryEvents:
    """The expired keys of one server, from one connection to each master."""

    def __init__(self, server: Server, report: Callable[[str], None]) -> None:
        """`report` is called in the event loop with the name of each key, and must be quick."""
        self._masters = Masters(server)
        self._channel_name = f"__keyevent@{server.endpoint.db}__:expired".encode()
        self._report = report
        self.problem: PelopsError | None = None  # why a master sends no events; outages aside

    async def run(self) -> None:
        """Receive events until a master fails; then the caller calls it again. Never raises."""
        try:
            while True:
                await self._receive()
        except PelopsError as error:
            if not isinstance(error, RedisUnavailable):
                self.problem = error

    async def _receive(self) -> None:
        """Receive events for a lifetime. Raises PelopsError as soon as one master fails."""
        tasks = [asyncio.create_task(self._listen(node)) for node in await self._masters.find()]
        tasks.append(asyncio.create_task(asyncio.sleep(LIFETIME_S)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(tasks)
            errors = [task.exception() for task in tasks if not task.cancelled()]
        for error in filter(None, errors):
            raise error
        self.problem = None

    async def _listen(self, node: Node) -> None:
        """Receive the events of one master until it fails. Always raises PelopsError."""
        channel = self._masters.channel(node)
        try:
            (setting,) = await channel.exchange([_READ_SETTING])
            is_shown = isinstance(setting, list) and setting  # not by many providers
            if is_shown and not re.search(rb"E.*[xA]|[xA].*E", setting[-1]):
                raise UnsupportedServer(NOT_ENABLED)
            connection = await channel.open_connection()
            await connection.send_command("PSUBSCRIBE", PATTERN, check_health=False)
            while True:
                self._handle(await connection.receive(_MESSAGE, timeout_s=math.inf))
        except (exceptions.RedisError, OSError) as error:
            raise translate_failure(error, address=str(node), sent=True, writes=False) from error
        finally:
            await channel.close()

    @reading("PSUBSCRIBE")
    def _handle(self, message: Reply) -> None:
        if isinstance(message, Exception):
            raise message
        if message[0] == b"pmessage" and message[2] == self._channel_name:
            self._report(message[3].decode("utf-8", "surrogateescape"))
            self.problem = None
