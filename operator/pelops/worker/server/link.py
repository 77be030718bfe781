"""One connection of a worker, made anew when it breaks, and the patience that this takes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from redis import exceptions

from pelops.domain.backoff import backoff_s
from pelops.domain.endpoint import Node
from pelops.errors import PelopsError
from pelops.redis_core.errors import translate_failure
from pelops.redis_core.transport import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, Locate, Login, Reply
from pelops.worker.server.reply_stream import StreamedConnection
from pelops.worker.server.scripts import Parts

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Link:
    """Commands out, replies in, nothing repeated. For one caller at a time.

    After a failure the next attempt waits, longer with each one and never exactly as long as the
    others do: a server that comes back meets its workers one after the other.
    """

    def __init__(self, locate: Locate, login: Login, patience_s: float) -> None:
        self.connections = 0  # how many there have been
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
            driver_info=None,  # CLIENT SETINFO is unknown to 7.0 and one more word in the ACL
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=ANSWER_TIMEOUT_S,  # of the handshake
        )

    async def exchange(self, commands: Sequence[Parts], *, wait_s: float = 0.0) -> list[Reply]:
        """The replies to commands sent together; a refused one has its exception as reply.

        `wait_s` is how long the server may rightly take. Raises RedisUnavailable when nothing was
        sent, OutcomeUnknown when no answer came, AuthenticationFailed and InvalidSpec from the
        login. Cancelling it ends the connection.
        """
        async with self._busy:
            connection = self._connection
            if not connection.is_usable:
                await self._connect()
            try:
                return await connection.ask(commands, wait_s=wait_s, patience_s=self._patience_s)
            except (exceptions.RedisError, OSError) as error:
                self._failures += 1
                await self.drop()
                raise translate_failure(
                    error, address=str(self.node), sent=True, writes=True
                ) from error
            except BaseException:
                await self.drop()
                raise

    def refused(self) -> None:
        """What was asked is to be asked again: after a pause."""
        self._failures += 1

    def served(self) -> None:
        """The server does what it is asked."""
        self._failures = 0

    async def connect(self) -> None:
        """Connect now, if there is no connection; raises as `exchange`."""
        async with self._busy:
            if not self._connection.is_usable:
                await self._connect()

    async def drop(self) -> None:
        """End the connection; the next exchange looks for the server anew."""
        await self._connection.disconnect(nowait=True)

    async def pause(self) -> None:
        """Wait as long as past failures ask for."""
        if self._failures:
            pause_s = backoff_s(self._failures, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    @property
    def node(self) -> Node:
        """Where the connection leads, or led last."""
        return Node(self._connection.host, self._connection.port)

    async def _connect(self) -> None:
        await self.drop()
        try:
            # However many replies the handshake takes, and whoever must be asked for the way.
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
