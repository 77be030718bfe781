"""A certificate authority, and what it signs; 0.1 s for a whole control plane."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)
# Clocks of one machine agree; a container's or a suspended laptop's may be a little behind.
BACKDATED = timedelta(hours=1)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """PEM files of a certificate and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority kept in files."""

    files: KeyPair

    @classmethod
    def create(cls, directory: Path, name: str) -> "Authority":
        """A new authority, in `<name>.crt` and `<name>.key` of the directory."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"pelops {name}")])
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            _begin_certificate(subject, subject, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(may_sign_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
        )
        certificate = builder.sign(key, hashes.SHA256())
        return cls(files=_write_pair(directory, name, certificate, key))

    def issue_server(self, name: str, hosts: Sequence[str]) -> KeyPair:
        """A serving certificate for host names and IP addresses."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(name, _subject(hosts[0], ()), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client(self, name: str, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate that Kubernetes takes for `user` in `groups`."""
        return self._issue(name, _subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        issuer = x509.load_pem_x509_certificate(self.files.certificate.read_bytes())
        issuer_key = serialization.load_pem_private_key(self.files.key.read_bytes(), None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        builder = (
            _begin_certificate(subject, issuer.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(may_sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(identifier, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(issuer_key, hashes.SHA256())
        return _write_pair(self.files.certificate.parent, name, certificate, key)


def write_signing_key(directory: Path, name: str) -> KeyPair:
    """An RSA key pair (`certificate` is the bare public key): what service account tokens need."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    pair = KeyPair(certificate=directory / f"{name}.pub", key=directory / f"{name}.key")
    pair.certificate.write_bytes(public)
    _write_key(pair.key, key)
    return pair


def _begin_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )


def _subject(user: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, may_sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=may_sign_certificates,
        crl_sign=may_sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(
    directory: Path, name: str, certificate: x509.Certificate, key: PrivateKey
) -> KeyPair:
    pair = KeyPair(certificate=directory / f"{name}.crt", key=directory / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)
    return pair


def _write_key(path: Path, key: PrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)
