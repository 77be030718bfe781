"""TLS as redis-py wants it, with files and time-outs that are told by the names of options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redis import SSLConnection

from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.redis.servers import ServerSettings


class TlsConnection(SSLConnection):
    """A connection whose handshake is part of connecting: it has the time-out of connecting.

    A server that speaks no TLS waits for the end of what it takes for a command.
    """

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        sock.settimeout(self.socket_connect_timeout)
        wrapped = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        wrapped.settimeout(self.socket_timeout)
        return wrapped


def tls_arguments(settings: ServerSettings) -> dict[str, Any]:
    """What a connection is made with. Raises OptionError for a file that cannot be read here."""
    if not settings.tls:
        return {}
    return {
        "ssl_ca_certs": _readable("tlsCaFile", settings.tls_ca_file),
        "ssl_certfile": _readable("tlsCertFile", settings.tls_cert_file),
        "ssl_keyfile": _readable("tlsKeyFile", settings.tls_key_file),
        "ssl_cert_reqs": "none" if settings.tls_verify == "none" else "required",
        "ssl_check_hostname": settings.tls_verify == "full",
    }


def _readable(option: str, path: str | None) -> str | None:
    if path is not None:
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise OptionError(
                f"option '{option}' names '{path}', which cannot be read here"
                f" ({error.strerror}); executors need it too"
            ) from error
    return path
