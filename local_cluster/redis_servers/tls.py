"""A certificate authority, with a certificate for servers and one for clients."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=3650)
CLOCK_SKEW = timedelta(days=1)
ADDRESSES: tuple[x509.GeneralName, ...] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files. A client needs `ca`, and `cert` with `key` when the server asks for them."""

    ca: Path
    cert: Path
    key: Path
    server_cert: Path
    server_key: Path


def make_tls_files(folder: Path) -> TlsFiles:
    """Write a new authority's certificates, good for localhost and 127.0.0.1, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = TlsFiles(
        ca=folder / "ca.crt",
        cert=folder / "client.crt",
        key=folder / "client.key",
        server_cert=folder / "server.crt",
        server_key=folder / "server.key",
    )
    authority = _Authority()
    files.ca.write_bytes(_pem(authority.certificate))
    # Redis' replication and cluster links show the server's certificate as clients.
    authority.issue("server", files.server_cert, files.server_key, alternative_names=ADDRESSES)
    authority.issue("client", files.cert, files.key)
    return files


class _Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name("Pelops local authority")
        self.certificate = (
            self._builder(self.name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def issue(
        self,
        name: str,
        certificate_file: Path,
        key_file: Path,
        *,
        alternative_names: Sequence[x509.GeneralName] = (),
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        roles = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            self._builder(_name(f"Pelops local {name}"), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(roles), critical=False)
        )
        if alternative_names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternative_names), critical=False
            )
        certificate_file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        key_file.touch(mode=0o600)
        key_file.write_bytes(_key_pem(key))

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + VALID_FOR)
            # Python 3.13 and later refuse certificates without these two.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(authority_key, critical=False)
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
