"""TLS from PEM texts, without a file that remains after the call."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from tempfile import NamedTemporaryFile

from pelops.domain.endpoint import RedisEndpoint
from pelops.errors import InvalidSpec


class Verify(StrEnum):
    """What is verified in a server's certificate."""

    FULL = "full"  # its issuer, and that it names the host
    CERTIFICATE = "certificate"  # its issuer only
    NONE = "none"


class BadCertificate(ValueError):
    """An unusable PEM text: the CA certificate, or the client certificate or its key."""

    def __init__(self, *, is_ca: bool) -> None:
        super().__init__(
            "no readable PEM certificate" if is_ca else "no readable PEM pair that belongs together"
        )
        self.is_ca = is_ca


def make_ssl_context(
    *,
    ca_pem: bytes | None,
    cert_pem: bytes | None,
    key_pem: bytes | None,
    verify: Verify = Verify.FULL,
) -> ssl.SSLContext:
    """The TLS context. It trusts only the given CA, or the system's CAs without one.

    `cert_pem` may hold the key too. Raises BadCertificate.
    """
    try:
        context = ssl.create_default_context(
            cadata=None if ca_pem is None else ca_pem.decode("ascii", "ignore")
        )
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificate(is_ca=True) from error
    if cert_pem:
        _load_client_certificate(context, cert_pem + b"\n" + (key_pem or b""))
    if verify != Verify.FULL:
        context.check_hostname = False
    if verify == Verify.NONE:
        context.verify_mode = ssl.CERT_NONE
    return context


def build_ssl_context(endpoint: RedisEndpoint) -> ssl.SSLContext | None:
    """The TLS context for this endpoint; None when it does not use TLS.

    The server's name is always verified. Raises InvalidSpec when a certificate or key cannot be
    read.
    """
    if not endpoint.tls:
        return None
    try:
        return make_ssl_context(
            ca_pem=endpoint.ca_pem, cert_pem=endpoint.cert_pem, key_pem=endpoint.key_pem
        )
    except BadCertificate as error:
        files = "ca.crt of the Secret contains", "tls.crt and tls.key of the Secret are"
        raise InvalidSpec(f"{files[not error.is_ca]} {error}") from error


def _load_client_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    try:
        with _readable_file(pem) as path:
            # With an encrypted key this fails, instead of prompting for the pass phrase.
            context.load_cert_chain(path, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificate(is_ca=False) from error


@contextmanager
def _readable_file(content: bytes) -> Iterator[str]:
    # Python's ssl reads a client key only from a path. A memory file is preferred: a container's
    # root file system is often read-only, and a key should not be written to disk.
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pelops-tls"), "wb", buffering=0) as memory:
            memory.write(content)
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with NamedTemporaryFile() as file:  # created with mode 0600, removed on leaving
        file.write(content)
        file.flush()
        yield file.name
