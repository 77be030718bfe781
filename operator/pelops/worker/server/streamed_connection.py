"""A connection of a worker that reconnects when it breaks and parses replies as they arrive.

redis-py does the handshake. Its stream reader is then replaced, because it would cost as much as
the rest of a round trip.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from redis import exceptions
from redis.exceptions import ConnectionError as LostConnection

from pelops.domain.backoff import backoff_s
from pelops.domain.endpoint import Node
from pelops.errors import InvalidReply, PelopsError
from pelops.redis_core.errors import translate_failure
from pelops.redis_core.replies.shapes import check_reply
from pelops.redis_core.replies.wire import (
    NOT_ENOUGH_DATA,
    PACE,
    BoundedReader,
    ReplyLimit,
    limit_of,
)
from pelops.redis_core.transport import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    Locate,
    LocatedConnection,
    Login,
    Reply,
    pack_command,
)
from pelops.worker.server.script_commands import Parts


class ReplyTimeout(LostConnection, exceptions.TimeoutError):
    """The server sent no reply in time."""


class StreamedConnection(LocatedConnection):
    """Connects by redis-py, then passes its socket to `Replies`. For one caller at a time."""

    _replies: Replies | None = None

    async def connect(self) -> None:
        """Connect, do the handshake, and attach `Replies` to the socket."""
        self._replies = None  # of the previous connection
        await super().connect()
        assert self._writer is not None
        self._replies = Replies()
        self._writer.transport.set_protocol(self._replies)

    @property
    def is_usable(self) -> bool:
        """Whether a command may be sent: the connection is open and has no unexpected data."""
        replies = self._replies
        if replies is None or not self.is_connected or replies.is_over:
            return False
        # With TLS, session tickets and key updates can arrive at any time.
        return self._login.tls is not None or not self.has_unread()

    async def send(
        self, commands: Sequence[Parts], *, wait_s: float, patience_s: float
    ) -> list[Reply]:
        """The replies to commands sent together; a refused one has its exception as reply.

        The server may take `wait_s + patience_s` before the first data, then `patience_s` between
        two parts of a reply, whatever its size. Raises redis-py's ConnectionError when it takes
        longer, or when the connection ends before the last reply.
        """
        assert self._replies is not None and self._writer is not None
        limit = max((limit_of(command[0]) for command in commands), key=lambda one: one.bytes)
        self._replies.bound(limit)
        answered = self._replies.expect(len(commands), wait_s, patience_s)
        self._writer.transport.write(b"".join(map(pack_command, commands)))
        try:
            return await answered
        finally:
            self._replies.rest()


class Replies(asyncio.Protocol):
    """Parses the replies of one connection."""

    def __init__(self) -> None:
        self.is_over = False  # no more replies can arrive
        self._parser = BoundedReader()
        self._found: list[Reply] = []
        self._expected = 0
        self._answered: asyncio.Future[list[Reply]] | None = None
        self._loop = asyncio.get_running_loop()
        self._received_bytes = 0  # since `_received_s`
        self._received_s = 0.0  # last progress; at first the end of `wait_s`
        self._patience_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def bound(self, limit: ReplyLimit) -> None:
        """Limit the size of each of the next replies."""
        self._parser.expect(limit)

    def expect(self, count: int, wait_s: float, patience_s: float) -> asyncio.Future[list[Reply]]:
        """A future of the next `count` replies, done when the last has arrived."""
        self._found, self._expected = [], count
        self._received_s, self._patience_s = self._loop.time() + wait_s, patience_s
        self._received_bytes = 0
        self._timer = self._loop.call_at(self._received_s + patience_s, self._lose_patience)
        self._answered = self._loop.create_future()
        return self._answered

    def rest(self) -> None:
        """Stop the timeout: no reply is expected."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        parser, replies = self._parser, self._found
        self._received_bytes += len(data)
        before = len(replies)
        try:
            parser.feed(data)
            while (reply := parser.gets()) is not NOT_ENOUGH_DATA:
                replies.append(reply)
        except exceptions.InvalidResponse as error:
            self._end(error)
            return
        if len(replies) > before or self._received_bytes >= PACE:
            # A server that sends only a few bytes from time to time must still time out.
            self._received_s, self._received_bytes = max(self._received_s, self._loop.time()), 0
        if len(replies) > self._expected:
            self._end(LostConnection("Redis sent more replies than it was sent commands"))
        elif len(replies) == self._expected and self._answered and not self._answered.done():
            self._found, self._expected = [], 0  # further data is unexpected
            self._answered.set_result(replies)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._end(LostConnection(str(error) if error else "the connection was closed"))

    def _lose_patience(self) -> None:
        until = self._received_s + self._patience_s
        if self._loop.time() < until:
            self._timer = self._loop.call_at(until, self._lose_patience)
        else:
            self._end(ReplyTimeout(f"no reply for {self._patience_s:g} s"))

    def _end(self, error: Exception) -> None:
        self.is_over = True
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Link:
    """Sends commands and returns replies, without retries. Serializes its callers.

    `pause` waits after failures, with exponential backoff and jitter: when a server comes back, its
    workers do not all reconnect at once.
    """

    def __init__(self, locate: Locate, login: Login, patience_s: float) -> None:
        self.connections = 0  # number of connections made
        self._failures = 0
        self._patience_s = patience_s
        self._busy = asyncio.Lock()
        self._connection = StreamedConnection(
            locate=locate,
            login=login,
            db=login.db,
            username=login.username,
            password=login.password,
            protocol=2,
            driver_info=None,  # Redis 7.0 has no CLIENT SETINFO, and it would need an ACL rule
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=ANSWER_TIMEOUT_S,  # of the handshake
        )

    async def exchange(self, commands: Sequence[Parts], *, wait_s: float = 0.0) -> list[Reply]:
        """The replies to commands sent together; a refused one has its exception as reply.

        `wait_s` is how long the commands block. Raises RedisUnavailable when nothing was sent,
        OutcomeUnknown when no reply came, AuthenticationFailed and InvalidSpec from the login. A
        cancellation closes the connection.
        """
        async with self._busy:
            connection = self._connection
            if not connection.is_usable:
                await self._connect()
            try:
                replies = await connection.send(
                    commands, wait_s=wait_s, patience_s=self._patience_s
                )
                return await self._check(commands, replies)
            except (exceptions.RedisError, OSError) as error:
                self._failures += 1
                await self.drop()
                raise translate_failure(
                    error, address=str(self.node), sent=True, writes=True
                ) from error
            except BaseException:
                await self.drop()
                raise

    async def _check(self, commands: Sequence[Parts], replies: list[Reply]) -> list[Reply]:
        for at, (command, reply) in enumerate(zip(commands, replies, strict=True)):
            try:
                check_reply(command, reply)
            except InvalidReply as error:
                replies[at] = error
                await self.drop()
        return replies

    def refused(self) -> None:
        """Count a failure: the next `pause` is longer."""
        self._failures += 1

    def served(self) -> None:
        """Reset the backoff: the server executes commands."""
        self._failures = 0

    async def connect(self) -> None:
        """Connect unless connected; raises as `exchange`."""
        async with self._busy:
            if not self._connection.is_usable:
                await self._connect()

    async def drop(self) -> None:
        """Close the connection; the next exchange locates the server again."""
        await self._connection.disconnect(nowait=True)

    async def pause(self) -> None:
        """Wait for the backoff of the failures since the last success."""
        if self._failures:
            pause_s = backoff_s(self._failures, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    @property
    def node(self) -> Node:
        """The node of the connection, or of the last one."""
        return Node(self._connection.host, self._connection.port)

    async def _connect(self) -> None:
        await self.drop()
        try:
            # One timeout for locating the node, connecting, and all replies of the handshake.
            async with asyncio.timeout(CONNECT_TIMEOUT_S + ANSWER_TIMEOUT_S):
                await self._connection.connect()
        except PelopsError:
            self._failures += 1
            raise
        except (exceptions.RedisError, OSError) as error:
            self._failures += 1
            raise translate_failure(
                error, address=str(self.node), sent=False, writes=False
            ) from error
        self.connections += 1
