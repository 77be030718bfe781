"""One connection to one node. Replies are returned as hiredis parses them.

Errors, including those of TLS files and time-outs, name the options that fix them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from redis import Connection
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse, MovedError, RedisError
from redis.retry import Retry

from pelops.redis_core import Node
from pelops.redis_core.errors import (
    AddressNotAllowed,
    AuthenticationFailed,
    InvalidReply,
    NoSuchGroup,
    NoSuchStream,
    PermissionDenied,
    RedisUnavailable,
    WrongType,
    is_passing,
    is_refusal,
    translate_reply,
)
from pelops.redis_core.replies.shapes import check_reply
from pelops.redis_core.replies.wire import BoundedParser, UnboundedReply, check_depth, limit_of
from pelops.redis_core.resolution import resolve_blocking
from pelops.redis_core.tls import BadCertificate, Verify, make_ssl_context
from pyspark_redis_streams.errors import (
    GroupMissing,
    NotAStream,
    NotPermitted,
    OptionError,
    ServerError,
    StreamMissing,
)
from pyspark_redis_streams.redis.servers import ServerSettings

Argument = str | bytes | int


class Away(Exception):
    """The node cannot serve the command now: reconnect, locate the stream again, and retry."""


_PAGES = ("XRANGE", "XREVRANGE")
_CONTAINERS = ("XINFO", "XGROUP")


class NodeConnection:
    """A connection to one node; nothing is sent before the first command."""

    def __init__(self, node: Node, settings: ServerSettings, *, is_sentinel: bool = False) -> None:
        self.node = node
        self._topology = settings.topology
        self._connection = _connection(node, settings, is_sentinel=is_sentinel)

    def execute(self, *command: Argument) -> Any:
        """The reply to one command. Raises Away or a ServerError."""
        self.send(*command)
        return self.receive(*command)

    def send(self, *command: Argument) -> None:
        """Send a command; `receive` reads the replies in the same order."""
        try:
            self._connection.connect()
            self._connection.send_command(*command, check_health=False)
        except (RedisError, OSError) as error:
            raise (
                self._refuse(error, command)
                if isinstance(error, InvalidResponse)
                else self._translate(error, command)
            ) from error

    def receive(self, *command: Argument) -> Any:
        """The next reply; `command` is used for its limits, its check and messages."""
        try:
            self._parser.expect(limit_of(command[0]))
            reply = self._connection.read_response(disable_decoding=True)
            if command[0] not in _PAGES:
                check_depth(reply)
        except InvalidResponse as error:
            raise self._refuse(error, command) from None
        except (RedisError, OSError) as error:
            raise self._translate(error, command) from error
        try:
            check_reply(command, reply)
        except InvalidReply as error:
            raise self._refuse(error, command) from None
        return reply

    def close(self) -> None:
        self._connection.disconnect()

    @property
    def _parser(self) -> BoundedParser:
        parser: BoundedParser = self._connection._parser
        return parser

    def _refuse(self, error: Exception, command: Sequence[Argument]) -> ServerError:
        """Close the connection after an invalid reply; the error does not quote the reply."""
        self.close()
        if isinstance(error, InvalidReply):
            return ServerError(f"{error} (at {self.node})")
        words = " ".join(map(_text, _named(command)))
        why = error if isinstance(error, UnboundedReply) else "it is none of RESP2"
        return ServerError(f"{words} at {self.node} is answered with no valid reply: {why}")

    def _translate(self, error: Exception, command: Sequence[Argument]) -> Exception:
        where = f"at {self.node}"
        words = _named(command)
        if isinstance(error, MovedError) and self._topology != "cluster":
            return ServerError(
                f"option 'topology' is '{self._topology}', but the server {where} is a node of a"
                " cluster, and sends to another one: set option 'topology' to 'cluster'"
            )
        return translate(error, " ".join(map(_text, words)), where)


def translate(error: Exception, command: str, where: str) -> Exception:
    """The error of this package for a failure of a command."""
    said = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return ServerError(
            f"the certificate of the server {where} is not trusted: {said}; check the options"
            " 'tlsCaFile' and 'tlsVerify'"
        )
    if not is_refusal(error) or is_passing(error):
        return Away(f"{command} {where}: {said or type(error).__name__}")
    refusal = translate_reply(error, command=command, key=None, writes=False)
    for kind, (ours, reported) in _REFUSALS.items():
        if isinstance(refusal, kind):
            return ours(reported.format(command=command, where=where, said=said))
    hint = next((hint for part, hint in _HINTS.items() if part in said), "")
    return ServerError(f"{command} {where} was refused: {said}{hint}")


_REFUSALS: dict[type[Exception], tuple[type[ServerError], str]] = {
    PermissionDenied: (NotPermitted, "{command} {where} is not permitted to this user: {said}"),
    AuthenticationFailed: (
        NotPermitted,
        "the server {where} does not let this user in: {said}; check the options 'username',"
        " 'password', 'passwordEnv' and 'passwordFile'",
    ),
    NoSuchStream: (StreamMissing, "{command} {where}: there is no such stream"),
    NoSuchGroup: (GroupMissing, "{command} {where}: {said}"),
    WrongType: (NotAStream, "{command} {where}: the key is not a stream ({said})"),
}

# Hints at the option to check, by a part of the server's error.
_HINTS = {
    "DB index is out of range": "; check option 'db', or the end of option 'url'",
    "equal or smaller than the target stream top item": (
        ": the stream has later entries already, and Redis appends in the order of IDs; nothing of"
        " this call is appended. With option 'keepIds', write to a new stream, and all rows of a"
        " stream in one task: frame.repartition(1).sortWithinPartitions('ms', 'seq')"
    ),
    "cluster support disabled": "; check option 'topology': the server is not part of a cluster",
}


def _connection(node: Node, settings: ServerSettings, *, is_sentinel: bool) -> Any:
    secret = settings.sentinel_secret if is_sentinel else settings.secret
    kind: Callable[..., Connection] = CheckedConnection
    if settings.tls:
        kind = partial(
            TlsConnection, context=ssl_context(settings), server_name=settings.tls_server_name
        )
    return kind(
        find=partial(_find_addresses, node, settings),
        host=node.host,
        port=node.port,
        parser_class=BoundedParser,
        db=0 if is_sentinel else settings.db,
        username=settings.sentinel_username if is_sentinel else settings.username,
        password=secret.reveal(),
        socket_connect_timeout=settings.connect_timeout_s,
        socket_timeout=settings.read_timeout_s,
        socket_keepalive=True,
        # `ServerConnections.persist` retries, because it also locates the stream again.
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        # No CLIENT SETNAME or SETINFO, for which the ACL user may not have the right.
        driver_info=None,
    )


def _named(command: Sequence[Argument]) -> Sequence[Argument]:
    """The words of a command that name it and its key."""
    if command[0] == "EVAL":
        return command[0], command[3]  # without the script
    return command[: 3 if command[0] in _CONTAINERS else 2]


def _text(word: Argument) -> str:
    return word.decode("utf-8", "backslashreplace") if isinstance(word, bytes) else str(word)


def _find_addresses(node: Node, settings: ServerSettings) -> Sequence[str]:
    """The addresses to connect to. Raises ServerError if not allowed, Away if not resolved."""
    grant, rules = settings.grant, settings.rules
    objection = None if grant is None else grant.objection(node.host, node.port)
    if objection is not None:
        raise ServerError(objection)
    if rules is None:
        return (node.host,)
    try:
        return resolve_blocking(node, rules)
    except AddressNotAllowed as error:
        raise ServerError(
            f"{error}; check the options 'allowedNetworks' and 'allowedHosts'"
        ) from error
    except RedisUnavailable as error:
        raise Away(str(error)) from error


class CheckedConnection(Connection):
    """A connection to addresses that `find` has checked, so the name is not resolved again."""

    def __init__(self, *, find: Callable[[], Sequence[str]], **settings: Any) -> None:
        self._find = find
        super().__init__(**settings)  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        name, last = self.host, len(addresses := self._find()) - 1
        try:
            for position, address in enumerate(addresses):
                self.host = address
                try:
                    return super()._connect()  # type: ignore[no-untyped-call]
                except UnicodeError as error:  # not a valid host name, but a Sentinel may return it
                    why = "its host name cannot be resolved"
                    raise socket.gaierror(socket.EAI_NONAME, why) from error
                except OSError:
                    if position == last:
                        raise
        finally:
            self.host = name
        raise AssertionError("there is always an address")


class TlsConnection(CheckedConnection):
    """A TLS connection whose handshake has the time-out of connecting, not that of replies.

    A server without TLS does not answer a handshake: it waits for the end of a command.
    """

    def __init__(
        self, *, context: ssl.SSLContext, server_name: str | None = None, **settings: Any
    ) -> None:
        self._context = context
        self._server_name = server_name
        super().__init__(**settings)

    def _connect(self) -> Any:
        plain = super()._connect()
        try:
            plain.settimeout(self.socket_connect_timeout)
            secured = self._context.wrap_socket(
                plain, server_hostname=self._server_name or self.host
            )
            secured.settimeout(self.socket_timeout)
        except OSError:
            plain.close()
            raise
        return secured


def ssl_context(settings: ServerSettings) -> ssl.SSLContext:
    """The TLS context. Raises OptionError for a file that cannot be read or used here."""
    try:
        return make_ssl_context(
            ca_pem=_content("tlsCaFile", settings.tls_ca_file),
            cert_pem=_content("tlsCertFile", settings.tls_cert_file),
            key_pem=_content("tlsKeyFile", settings.tls_key_file),
            verify=Verify(settings.tls_verify),
        )
    except BadCertificate as error:
        names = "option 'tlsCaFile' names" if error.is_ca else "'tlsCertFile' and 'tlsKeyFile' name"
        raise OptionError(f"{names} {error}") from error


def _content(option: str, path: str | None) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise OptionError(
            f"option '{option}' names '{path}', which cannot be read here"
            f" ({error.strerror}); executors need it too"
        ) from error
