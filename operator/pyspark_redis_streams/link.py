"""One connection to one node, without the callbacks of a client: replies as hiredis makes them."""

from __future__ import annotations

from typing import Any

from redis import Connection, SSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from pyspark_redis_streams.errors import (
    GroupMissing,
    NotAStream,
    NotPermitted,
    ServerError,
    StreamMissing,
)
from pyspark_redis_streams.servers import ServerSettings, Tls

Argument = str | bytes | int
Address = tuple[str, int]


class Away(Exception):
    """The node does not serve this now: reconnect, look where the stream is, and try again."""


# What a node says that another node, or the same one later, would not say.
_PASSING = (
    "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "BUSY",
    "UNBLOCKED", "max number of clients",
)  # fmt: skip


class Link:
    """A connection to one node; nothing is sent before the first command."""

    def __init__(
        self, address: Address, settings: ServerSettings, *, is_sentinel: bool = False
    ) -> None:
        self.address = address
        self._connection = _connection(address, settings, is_sentinel=is_sentinel)

    def ask(self, *command: Argument) -> Any:
        """The reply to one command. Raises Away or a ServerError."""
        self.send(*command)
        return self.receive(*command[:2])

    def send(self, *command: Argument) -> None:
        """Send a command whose reply `receive` is to fetch, in order."""
        try:
            self._connection.connect()
            self._connection.send_command(*command, check_health=False)
        except (RedisError, OSError) as error:
            raise self._translate(error, *command[:2]) from error

    def receive(self, command: Argument, key: Argument = "") -> Any:
        """The next reply; the words of its command are for messages."""
        try:
            return self._connection.read_response(disable_decoding=True)
        except (RedisError, OSError) as error:
            raise self._translate(error, command, key) from error

    def close(self) -> None:
        self._connection.disconnect()

    def _translate(self, error: Exception, command: Argument, key: Argument = "") -> Exception:
        where = f"at {self.address[0]}:{self.address[1]}"
        return translate(error, f"{_text(command)} {_text(key)}".strip(), where)


def translate(error: Exception, command: str, where: str) -> Exception:
    """What a failure of this command means to a reader of a stream."""
    said = str(error)
    if isinstance(error, NoPermissionError) or said.startswith("NOPERM"):
        return NotPermitted(f"{command} {where} is not permitted to this user: {said}")
    if isinstance(error, AuthenticationError) or said.startswith(("WRONGPASS", "NOAUTH")):
        return NotPermitted(
            f"the server {where} does not let this user in: {said}; check the options 'username',"
            " 'password', 'passwordEnv' and 'passwordFile'"
        )
    if not isinstance(error, ResponseError):
        return Away(f"{command} {where}: {said or type(error).__name__}")
    return _translate_refusal(error, command, where)


def _translate_refusal(error: ResponseError, command: str, where: str) -> Exception:
    said = str(error)
    if "no such key" in said or "requires the key to exist" in said:
        return StreamMissing(f"{command} {where}: there is no such stream")
    if "NOGROUP" in said or "no such consumer group" in said.lower():
        return GroupMissing(f"{command} {where}: {said}")
    if "WRONGTYPE" in said or "wrong kind of value" in said:
        return NotAStream(f"{command} {where}: the key is not a stream ({said})")
    if said.startswith(_PASSING) or type(error).__name__ in _PASSING_TYPES:
        return Away(f"{command} {where}: {said}")
    return ServerError(f"{command} {where} was refused: {said}")


# redis-py strips the first word of these replies and says it by a class.
_PASSING_TYPES = (
    "MovedError", "AskError", "TryAgainError", "ClusterDownError", "BusyLoadingError",
    "ReadOnlyError", "MasterDownError", "MaxConnectionsError",
)  # fmt: skip


def _connection(address: Address, settings: ServerSettings, *, is_sentinel: bool) -> Any:
    secret = settings.sentinel_secret if is_sentinel else settings.secret
    kind = SSLConnection if settings.tls else Connection
    return kind(
        host=address[0],
        port=address[1],
        db=0 if is_sentinel else settings.db,
        username=settings.sentinel_username if is_sentinel else settings.username,
        password=secret.reveal(),
        socket_connect_timeout=settings.connect_timeout_s,
        socket_timeout=settings.read_timeout_s,
        socket_keepalive=True,
        # Repeating is the door's: it also looks anew where the stream is.
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        # No CLIENT SETNAME or SETINFO: a user who may read streams need not be allowed them.
        driver_info=None,
        **_tls_arguments(settings.tls),
    )


def _tls_arguments(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl_ca_certs": tls.ca_file,
        "ssl_certfile": tls.cert_file,
        "ssl_keyfile": tls.key_file,
        "ssl_cert_reqs": "none" if tls.verify == "none" else "required",
        "ssl_check_hostname": tls.verify == "full",
    }


def _text(word: Argument) -> str:
    return word.decode("utf-8", "backslashreplace") if isinstance(word, bytes) else str(word)
