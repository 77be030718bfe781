"""TLS from the PEM texts of a Secret, without a file that outlives the call."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile

from pelops.domain.endpoint import RedisEndpoint
from pelops.errors import InvalidSpec


def build_ssl_context(endpoint: RedisEndpoint) -> ssl.SSLContext | None:
    """How to speak TLS to this endpoint; None when it is asked for plain text.

    The server's name is always verified, against the given CA, or the system's own without one.
    Raises InvalidSpec when a certificate or key cannot be read.
    """
    if not endpoint.tls:
        return None
    context = ssl.create_default_context(cadata=_ca_text(endpoint.ca_pem))
    if endpoint.cert_pem and endpoint.key_pem:
        _load_client_certificate(context, endpoint.cert_pem, endpoint.key_pem)
    return context


def _ca_text(ca_pem: bytes | None) -> str | None:
    if ca_pem is None:
        return None
    try:
        text = ca_pem.decode("ascii", "ignore")
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidSpec("ca.crt of the Secret holds no readable PEM certificate") from error
    return text


def _load_client_certificate(context: ssl.SSLContext, cert_pem: bytes, key_pem: bytes) -> None:
    try:
        with _readable_file(cert_pem + b"\n" + key_pem) as path:
            # An encrypted key must fail here instead of asking a terminal for its pass phrase.
            context.load_cert_chain(path, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidSpec(
            "tls.crt and tls.key of the Secret are no readable PEM pair that belongs together"
        ) from error


@contextmanager
def _readable_file(content: bytes) -> Iterator[str]:
    # Python's ssl reads a client key from a path only. Memory first: a container's root file
    # system is often read-only, and a key should never reach a disk.
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pelops-tls"), "wb", buffering=0) as memory:
            memory.write(content)
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with NamedTemporaryFile() as file:  # created with mode 0600, removed on leaving
        file.write(content)
        file.flush()
        yield file.name
