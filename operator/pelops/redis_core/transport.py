"""A bounded set of connections to one node. No command is repeated.

redis-py implements the protocol; its retries are not used, because only the caller knows which
commands may be repeated.
"""

from __future__ import annotations

import asyncio
import math
import select
import ssl
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import hiredis
from redis import exceptions
from redis.asyncio.connection import Connection, ConnectionPool

from pelops.domain.destinations import AddressRules, CredentialGrant, is_host
from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import CredentialsNotAllowed, InvalidReply, RedisUnavailable
from pelops.redis_core.commands import Part
from pelops.redis_core.errors import translate_failure
from pelops.redis_core.replies.shapes import check_reply
from pelops.redis_core.replies.wire import (
    ANSWERS,
    AsyncBoundedParser,
    BoundedReader,
    ByteAccount,
    ReplyLimit,
    UnboundedReply,
    check_depth,
    limit_of,
)
from pelops.redis_core.resolution import resolve
from pelops.redis_core.sentinel_answers import is_replica
from pelops.redis_core.sockets import OPEN

CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 5.0
EXCHANGE_TIMEOUT_S: Final = 15.0  # of all answers to commands sent together
HANDSHAKE_TIMEOUT_S: Final = 15.0  # of finding a server, connecting and logging in
CONNECTIONS_PER_NODE: Final = 16

Locate: TypeAlias = Callable[[], Awaitable[Node]]
Reply: TypeAlias = Any  # the types of RESP2: bytes, int, None, lists of these, or an exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command, with what is needed to route it and to judge its outcome."""

    parts: tuple[Part, ...]
    key: str | None = None  # decides the node in a cluster; None: any node
    writes: bool = False
    limit: ReplyLimit | None = None  # of the reply; None: the usual one for this command

    @property
    def name(self) -> str:
        """The first word of the command."""
        return str(self.parts[0])


# Ten times as fast as redis-py's own packing. Its type stub only accepts tuples of one element.
pack_command = cast("Callable[[tuple[Part, ...]], bytes]", hiredis.pack_command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The credentials, TLS and address rules for new connections."""

    tls: ssl.SSLContext | None
    username: str | None = None
    password: str | None = None
    db: int = 0
    needs_master: bool = False  # a Sentinel may name a server that is not the master yet
    has_certificate: bool = False  # whether `tls` has a client certificate
    server_name: str | None = None  # what certificates must name; None: the host connected to
    rules: AddressRules | None = None  # None: any address may be connected to
    grant: CredentialGrant | None = None  # None: credentials may go to any server

    @classmethod
    def of(cls, endpoint: RedisEndpoint, tls: ssl.SSLContext | None) -> Login:
        """The login of an endpoint's data servers."""
        return cls(
            tls=tls,
            username=endpoint.username,
            password=endpoint.password,
            db=endpoint.db,
            needs_master=endpoint.sentinel is not None,
            has_certificate=endpoint.cert_pem is not None,
            server_name=endpoint.server_name,
            rules=endpoint.rules,
            grant=endpoint.grant,
        )

    def check_grant(self, node: Node) -> None:
        """Raise CredentialsNotAllowed when the credentials must not be sent to a node."""
        if self.grant is None or not (self.password or self.has_certificate):
            return
        objection = self.grant.objection(node.host, node.port)
        if objection is not None:
            raise CredentialsNotAllowed(objection)


class _Place:
    """Locates a node, and keeps its address for messages.

    Connections refer to this object and not to their channel. So a closed channel is not part of a
    reference cycle, and its memory is freed at once.
    """

    def __init__(self, locate: Locate) -> None:
        self.address = "an unknown address"
        self._locate = locate

    async def find(self) -> Node:
        node = await self._locate()
        if not is_host(node.host):  # it comes from a server: the message must not repeat it
            raise RedisUnavailable("the Redis Cluster returned a node with an invalid host")
        self.address = str(node)
        return node


class NodeChannel:
    """Connections to one node, shared by all callers."""

    def __init__(
        self, locate: Locate, login: Login, *, connections: int = CONNECTIONS_PER_NODE
    ) -> None:
        self._free = asyncio.Semaphore(connections)
        self._failed_at = -math.inf
        self._place = place = _Place(locate)
        self._pool: ConnectionPool = ConnectionPool(
            connection_class=LocatedConnection,
            max_connections=connections,
            locate=place.find,
            login=login,
            db=login.db,
            username=login.username,
            password=login.password,
            protocol=2,
            driver_info=None,  # no CLIENT SETINFO: unknown to 7.0, and would need another right
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=ANSWER_TIMEOUT_S,
        )
        self.in_flight = 0

    async def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """The replies to commands that are sent together, an exception for an error reply.

        Raises RedisUnavailable when nothing was sent or no command writes, OutcomeUnknown when a
        write may have happened, AuthenticationFailed and InvalidSpec from the login.
        """
        self.in_flight += 1
        came_at = asyncio.get_running_loop().time()
        try:
            async with self._free:
                return await self._exchange(commands, came_at)
        finally:
            self.in_flight -= 1

    async def open_connection(self) -> LocatedConnection:
        """A connection for this caller only, until the channel is closed; raises as `exchange`.

        It is for subscriptions and blocking reads.
        """
        return await self._connect(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """End every connection, also those in use."""
        await self._pool.aclose()

    async def _exchange(self, commands: Sequence[Command], came_at: float) -> list[Reply]:
        connection = await self._connect(came_at)
        try:
            packed = b"".join(pack_command(command.parts) for command in commands)
            await connection.send_packed_command(packed, check_health=False)
            return await self._read_replies(connection, commands)
        except (exceptions.RedisError, OSError) as error:
            # The other idle connections most likely go to the same dead server.
            await self._pool.disconnect(inuse_connections=False)
            writes = any(command.writes for command in commands)
            raise translate_failure(
                error, address=self._place.address, sent=True, writes=writes
            ) from error
        finally:
            await self._pool.release(connection)

    async def _read_replies(
        self, connection: LocatedConnection, commands: Sequence[Command]
    ) -> list[Reply]:
        replies: list[Reply] = []
        with ANSWERS.open() as account:
            try:
                async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
                    for command in commands:
                        limit = command.limit or limit_of(command.parts[0])
                        replies.append(await connection.receive(limit, account))
                if connection.reader.has_data():
                    raise UnboundedReply("more replies than requests")
            except BaseException:
                # Unread replies must not be taken for replies to later commands.
                await connection.disconnect(nowait=True)
                raise
        checked = [
            _checked(command, reply) for command, reply in zip(commands, replies, strict=True)
        ]
        if any(isinstance(reply, InvalidReply) for reply in checked):
            await connection.disconnect(nowait=True)
        return checked

    async def _connect(self, came_at: float) -> LocatedConnection:
        if self._failed_at >= came_at:
            # Callers that waited for a free connection share the failure of the one before.
            raise RedisUnavailable(
                f"Redis at {self._place.address} could not be reached a moment ago"
            )
        try:
            pool: Any = self._pool  # its methods are untyped
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                connection: LocatedConnection = await pool.get_connection()
        except RedisUnavailable:
            self._failed_at = asyncio.get_running_loop().time()
            raise
        except (exceptions.RedisError, OSError) as error:
            self._failed_at = asyncio.get_running_loop().time()
            raise translate_failure(
                error, address=self._place.address, sent=False, writes=False
            ) from error
        return connection

    async def forget_connections(self) -> None:
        """End idle connections, so that the next command locates the server again."""
        await self._pool.disconnect(inuse_connections=False)


def _checked(command: Command, reply: Reply) -> Reply:
    try:
        check_reply(command.parts, reply)
    except InvalidReply as error:
        return error
    return reply


class LocatedConnection(Connection):
    """A connection that locates its server whenever it connects."""

    def __init__(self, *, locate: Locate, login: Login, **settings: Any) -> None:
        self._locate = locate
        self._login = login
        self._addresses: tuple[str, ...] = ()  # checked addresses of the node
        self._counted: weakref.finalize[Any, Any] | None = None  # while a socket may be open
        super().__init__(parser_class=AsyncBoundedParser, **settings)

    @property
    def reader(self) -> BoundedReader:
        """The reader of the replies; only while it is connected."""
        parser = self._parser
        assert isinstance(parser, AsyncBoundedParser)
        return parser.reader

    async def receive(
        self,
        limit: ReplyLimit,
        account: ByteAccount | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Reply:
        """The next reply, within its limit; an error reply is returned as its exception.

        None after `timeout_s`; without it, raises redis-py's TimeoutError after the usual time.
        """
        self.reader.expect(limit, account)
        try:
            reply = await self.read_response(timeout=timeout_s)
        except exceptions.ResponseError as refusal:
            return refusal
        check_depth(reply)
        return reply

    async def connect(self) -> None:
        if self.is_connected:
            if not self.has_unread():
                return
            await self.disconnect()
        node = await self._locate()
        self._login.check_grant(node)
        self.host, self.port = node.host, node.port
        self._addresses = (node.host,)
        if self._login.rules is not None:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._addresses = await resolve(node, self._login.rules)
        self._counted = weakref.finalize(self, OPEN.acquire())
        try:
            await super().connect()  # type: ignore[no-untyped-call]
        except BaseException:
            self._discount()
            raise
        if self._login.needs_master:
            await self._check_master()

    def has_unread(self) -> bool:
        """Whether the socket is readable or closed while no reply is expected."""
        # Before a command, only the end of a connection that the server closed can be readable. The
        # kernel knows it before the event loop does. Detected before a write is sent, it proves
        # that the write did not happen.
        assert self._writer is not None
        socket = self._writer.get_extra_info("socket")
        if socket is None or socket.fileno() < 0:
            return True  # the event loop has closed it; with TLS the transport then has none
        poller = select.poll()
        poller.register(socket.fileno(), select.POLLIN)
        return bool(poller.poll(0))

    async def disconnect(self, *args: Any, **settings: Any) -> None:
        try:
            await super().disconnect(*args, **settings)
        finally:
            self._discount()

    def _close(self) -> None:
        super()._close()  # type: ignore[no-untyped-call]
        self._discount()

    async def _connect(self) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            while True:
                try:
                    await super()._connect()  # type: ignore[no-untyped-call]
                except OSError:
                    if len(self._addresses) == 1:
                        raise
                    self._addresses = self._addresses[1:]
                else:
                    return

    def _discount(self) -> None:
        if self._counted is not None and not self.is_connected:
            self._counted()  # has no effect if the garbage collector called it before
            self._counted = None

    def _connection_arguments(self) -> dict[str, Any]:
        arguments = {**super()._connection_arguments(), "host": self._addresses[0]}
        if self._login.tls is None:
            return arguments
        # The certificate is verified for the host name, not for the resolved address.
        return {
            **arguments,
            "ssl": self._login.tls,
            "server_hostname": self._login.server_name or self.host,
        }

    async def _check_master(self) -> None:
        await self.send_command("INFO", "replication", check_health=False)
        role = await self.receive(limit_of("INFO"))
        if is_replica(role):
            await self.disconnect()
            raise RedisUnavailable("the server that Sentinel returned is not the master yet")
