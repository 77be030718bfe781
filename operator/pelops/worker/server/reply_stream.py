"""A connection whose replies are parsed as they come, without a stream reader in between.

redis-py connects and introduces itself; from then on its reader would cost as much as all the rest
of a round trip.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis
from redis.exceptions import ConnectionError as LostConnection

from pelops.redis_core.transport import LocatedConnection, Reply
from pelops.worker.server.scripts import Parts

_MORE: Final = object()  # of the reply is to come
_pack = cast("Callable[[Parts], bytes]", hiredis.pack_command)  # its stub knows tuples of one


class StreamedConnection(LocatedConnection):
    """Connects as any other, then hands its socket to `Replies`. For one caller at a time."""

    _replies: Replies | None = None

    async def connect(self) -> None:
        """Connect, introduce ourselves, and take over the socket."""
        self._replies = None  # of a former connection
        await super().connect()
        assert self._writer is not None
        parser: Any = self._parser
        self._replies = Replies(parser.parse_error)
        self._writer.transport.set_protocol(self._replies)

    @property
    def is_usable(self) -> bool:
        """Whether a command may be sent: nobody hung up, and nothing was said unasked."""
        replies = self._replies
        if replies is None or not self.is_connected or replies.is_over:
            return False
        # By TLS a server may say a word about keys at any time.
        return self._login.tls is not None or not self.has_unread()

    async def ask(
        self, commands: Sequence[Parts], *, wait_s: float, patience_s: float
    ) -> list[Reply]:
        """The replies to commands sent together; a refused one has its exception as reply.

        The server may be silent for `wait_s` and `patience_s` at first, then for `patience_s`
        between two pieces of an answer, however large that is. Raises redis-py's ConnectionError
        when it is silent for longer, or when the connection ends before the last reply.
        """
        assert self._replies is not None and self._writer is not None
        answered = self._replies.expect(len(commands), wait_s, patience_s)
        self._writer.transport.write(b"".join(map(_pack, commands)))
        try:
            return await answered
        finally:
            self._replies.rest()


class Replies(asyncio.Protocol):
    """What the server says on one connection."""

    def __init__(self, parse_error: Callable[[str], Exception]) -> None:
        self.is_over = False  # nothing more can be expected
        self._parser: Any = hiredis.Reader(replyError=parse_error, notEnoughData=_MORE)
        self._found: list[Reply] = []
        self._expected = 0
        self._answered: asyncio.Future[list[Reply]] | None = None
        self._loop = asyncio.get_running_loop()
        self._heard_s = 0.0  # when the server said something last, or need not have before
        self._patience_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, count: int, wait_s: float, patience_s: float) -> asyncio.Future[list[Reply]]:
        """The next `count` replies, once the last of them is there."""
        self._found, self._expected = [], count
        self._heard_s, self._patience_s = self._loop.time() + wait_s, patience_s
        self._timer = self._loop.call_at(self._heard_s + patience_s, self._lose_patience)
        self._answered = self._loop.create_future()
        return self._answered

    def rest(self) -> None:
        """Nothing is expected any more."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._heard_s = max(self._heard_s, self._loop.time())
        parser, found = self._parser, self._found
        parser.feed(data)
        try:
            reply = parser.gets()
            while reply is not _MORE:
                found.append(reply)
                reply = parser.gets()
        except hiredis.ProtocolError as error:
            self._end(LostConnection(f"Redis does not speak its protocol: {error}"))
            return
        if len(found) > self._expected:
            self._end(LostConnection("Redis said more than it was asked"))
        elif len(found) == self._expected and self._answered and not self._answered.done():
            self._answered.set_result(found)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._end(LostConnection(str(error) if error else "the connection was closed"))

    def _lose_patience(self) -> None:
        until = self._heard_s + self._patience_s
        if self._loop.time() < until:
            self._timer = self._loop.call_at(until, self._lose_patience)
        else:
            self._end(LostConnection(f"no answer for {self._patience_s:g} s"))

    def _end(self, error: Exception) -> None:
        self.is_over = True
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
