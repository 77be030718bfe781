"""TLS with files and time-outs that are told by the names of options."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from redis import Connection

from pelops.redis_core.tls import BadCertificate, Verify, make_ssl_context
from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.redis.servers import ServerSettings


class TlsConnection(Connection):
    """A connection whose handshake is part of connecting: it has the time-out of connecting.

    A server that speaks no TLS waits for the end of what it takes for a command.
    """

    def __init__(self, *, context: ssl.SSLContext, **settings: Any) -> None:
        self._context = context
        super().__init__(**settings)  # type: ignore[no-untyped-call]

    def _connect(self) -> Any:
        plain = super()._connect()  # type: ignore[no-untyped-call]
        try:
            plain.settimeout(self.socket_connect_timeout)
            secured = self._context.wrap_socket(plain, server_hostname=self.host)
            secured.settimeout(self.socket_timeout)
        except OSError:
            plain.close()
            raise
        return secured


def ssl_context(settings: ServerSettings) -> ssl.SSLContext:
    """How to speak TLS. Raises OptionError for a file that cannot be read or used here."""
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
