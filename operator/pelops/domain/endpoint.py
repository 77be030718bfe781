"""The address of a Redis and the credentials for it, from the resource and its Secret.

No secret is shown: `repr` leaves them out, and messages name the field, not its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final
from urllib.parse import unquote, urlsplit

from pelops.domain.destinations import (
    REDIS_HOSTS,
    AddressRules,
    CredentialGrant,
    HostPattern,
    parse_host_patterns,
)
from pelops.errors import CredentialsNotAllowed, InvalidSpec

DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379
_SCHEMES: Final = {"redis": False, "rediss": True, "valkey": False, "valkeys": True}
_SHOWN: Final = "redis://host:6379/0, or rediss://host:6379/0 for TLS"


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A host and a port. The host is in small letters and without a trailing dot."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_ASK_SENTINEL: Final = Node("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """The Sentinels to ask, and the name under which they monitor the master."""

    master_name: str
    nodes: tuple[Node, ...]
    # The Sentinels' own credentials; without a password, those of the master are used.
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    grant: CredentialGrant | None = None  # for these credentials; None: the endpoint's grant


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisEndpoint:
    """How to connect to one Redis. Equal endpoints may share connections."""

    node: Node  # empty with Sentinels, which return the master's address
    db: int = 0
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_pem: bytes | None = field(default=None, repr=False)
    cert_pem: bytes | None = field(default=None, repr=False)
    key_pem: bytes | None = field(default=None, repr=False)
    server_name: str | None = None  # what certificates must name; None: the host connected to
    sentinel: Sentinel | None = None
    rules: AddressRules | None = None  # None: any address may be connected to
    grant: CredentialGrant | None = None  # None: credentials go to whatever node is connected to

    @property
    def has_credentials(self) -> bool:
        """Whether there is a password or a client certificate."""
        return self.password is not None or self.cert_pem is not None

    @property
    def address(self) -> str:
        """Identifies the server and its database, without credentials; one spelling per address."""
        if self.sentinel is None:
            return f"{self.node}/{self.db}"
        nodes = ",".join(str(node) for node in sorted(self.sentinel.nodes))
        return f"sentinel:{self.sentinel.master_name}@{nodes}/{self.db}"


class UrlProblem(Enum):
    """Why a text is not a Redis URL."""

    PORT = "its port is not a number from 1 to 65535"
    HOST = "its host is malformed"
    SCHEME = "it does not begin with redis:// and a host"
    NO_HOST = "its host is missing, or its port is 0"
    OPTIONS = "it has options after '?' or '#'"
    DATABASE = "its database is not a number"


_REPORTED: Final = {
    UrlProblem.PORT: f"is invalid ({UrlProblem.PORT.value})",
    UrlProblem.HOST: f"is invalid ({UrlProblem.HOST.value})",
    UrlProblem.SCHEME: "does not begin with redis:// and a host",
    UrlProblem.NO_HOST: "has no host, or port 0",
    UrlProblem.OPTIONS: "has options after '?' or '#', which Pelops does not support (percent-"
    "encode these characters in a password)",
    UrlProblem.DATABASE: "has a database that is not a number",
}


class BadUrl(ValueError):
    """A text is not a Redis URL; the message repeats no part of the text."""

    def __init__(self, problem: UrlProblem) -> None:
        super().__init__(problem.value)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUrl:
    """The parts of a Redis URL."""

    node: Node
    db: int | None  # None: the URL names no database
    tls: bool
    username: str | None
    password: str | None = field(repr=False)


def read_redis_url(url: str) -> RedisUrl:
    """The parts of redis://, rediss://, valkey:// or valkeys://. Raises BadUrl."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadUrl(_problem(error)) from None
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise BadUrl(UrlProblem.SCHEME)
    if not host or port == 0:
        raise BadUrl(UrlProblem.NO_HOST)
    if parts.query or parts.fragment:
        # Other clients read options there, such as the database: ignoring them could read another.
        raise BadUrl(UrlProblem.OPTIONS)
    return RedisUrl(
        node=_node(host, port or DEFAULT_PORT),
        db=_read_db(parts.path.strip("/")),
        tls=_SCHEMES[parts.scheme],
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )


def parse_redis_url(url: str) -> RedisEndpoint:
    """The endpoint that a URL names, with the credentials in it.

    Raises InvalidSpec with what to write instead; the message never repeats the credentials.
    """
    try:
        parsed_url = read_redis_url(url)
    except BadUrl as error:
        raise InvalidSpec(f"the Redis URL {_REPORTED[error.problem]}; write {_SHOWN}") from None
    return RedisEndpoint(
        node=parsed_url.node,
        db=parsed_url.db or 0,
        tls=parsed_url.tls,
        username=parsed_url.username,
        password=parsed_url.password,
    )


def parse_node(text: str, *, default_port: int = DEFAULT_SENTINEL_PORT) -> Node:
    """The node that `host`, `host:port`, `[ipv6]` or `[ipv6]:port` names."""
    try:
        parts = urlsplit(f"//{text.strip()}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidSpec(
            f"{text!r} is not an address ({_problem(error).value}); write HOST:PORT"
        ) from None
    if not host or port == 0 or parts.path or parts.query or parts.fragment or "@" in text:
        raise InvalidSpec(f"{text!r} is not an address; write HOST:PORT")
    return _node(host, port or default_port)


def build_endpoint(
    *,
    url: str | None = None,
    secret: Mapping[str, bytes] | None = None,
    sentinel_master: str | None = None,
    sentinel_nodes: Sequence[str] = (),
    tls: bool = False,
) -> RedisEndpoint:
    """The endpoint of a resource, from its URL, its Sentinels and the fields of its Secret.

    The resource's URL takes precedence over the Secret's, of which only the credentials are then
    used. The Secret's keys `username` and `password` take precedence over the credentials in a URL.
    With Sentinels, a URL only decides on TLS and the database.

    `tls` turns TLS on when there is no URL. Raises InvalidSpec, also for `tls` with a plain URL.
    """
    fields = dict(secret or {})
    sentinel = _build_sentinel(sentinel_master, sentinel_nodes)
    url_endpoint = _choose_url(url, _text(fields, "url"), has_sentinel=sentinel is not None)
    if url is None and not fields.get("url"):
        url_endpoint = replace(url_endpoint, tls=tls)
    if tls and not url_endpoint.tls:
        raise InvalidSpec("spec.redis.tls is set and the URL begins with redis://: write rediss://")
    endpoint = replace(
        url_endpoint,
        username=_text(fields, "username") or url_endpoint.username,
        password=_text(fields, "password") or url_endpoint.password,
        ca_pem=fields.get("ca.crt") or None,
        cert_pem=fields.get("tls.crt") or None,
        key_pem=fields.get("tls.key") or None,
        sentinel=sentinel,
    )
    _check_credentials(endpoint)
    return endpoint


def with_sentinel_login(
    endpoint: RedisEndpoint, *, username: str | None, password: str | None
) -> RedisEndpoint:
    """The endpoint with these credentials for its Sentinels; unchanged without a password."""
    if endpoint.sentinel is None or not password:
        return endpoint
    sentinel = replace(endpoint.sentinel, username=username or None, password=password)
    return replace(endpoint, sentinel=sentinel)


def confine_credentials(
    endpoint: RedisEndpoint, secret: Mapping[str, bytes], *, name: str
) -> RedisEndpoint:
    """The endpoint, restricted so that credentials go only to hosts that their Secret allows.

    The Secret allows the host and port of its own url, and the hosts that its annotation lists.
    Without the annotation, credentials also go to the cluster nodes that this server names. With
    it, every node that gets credentials must be listed. With Sentinels the annotation is required.

    Raises CredentialsNotAllowed, and InvalidSpec for an annotation that cannot be read.
    """
    if not endpoint.has_credentials:
        return endpoint
    fields = dict(secret)
    url, listed = _text(fields, "url"), _text(fields, REDIS_HOSTS)
    own = parse_redis_url(url).node if url else None
    if listed is None and endpoint.sentinel is None and own == endpoint.node:
        return endpoint
    if listed is None:
        place = "the master that Sentinels return" if endpoint.sentinel else str(endpoint.node)
        raise CredentialsNotAllowed(
            f"Pelops does not send the credentials of Secret {name} to {place}, because the Secret "
            "does not list this host. Put the address into the key url of the Secret, or list the "
            f"host in its annotation {REDIS_HOSTS}"
        )
    hosts = _read_listed(listed, name)
    own_host = () if own is None else (HostPattern(own.host, own.port),)
    grant = CredentialGrant(owner=f"Secret {name}", hosts=(*hosts, *own_host))
    node = endpoint.node
    objection = None if endpoint.sentinel else grant.objection(node.host, node.port)
    if objection is not None:
        raise CredentialsNotAllowed(objection)
    return replace(endpoint, grant=replace(grant, also=endpoint.grant))


def confine_sentinel_login(
    endpoint: RedisEndpoint, secret: Mapping[str, bytes], *, name: str
) -> RedisEndpoint:
    """The endpoint with the credentials of this Secret for its Sentinels.

    They go only to the hosts that the Secret's annotation lists. The endpoint's own grant applies
    as well, because Sentinels are also sent the endpoint's client certificate.

    Raises CredentialsNotAllowed, and InvalidSpec for a Secret that cannot be read.
    """
    if endpoint.sentinel is None:
        return endpoint
    fields = dict(secret)
    password, listed = _text(fields, "password"), _text(fields, REDIS_HOSTS)
    if password is None:
        raise InvalidSpec(f"Secret {name} for the Sentinels has no key password: add it")
    if listed is None:
        raise CredentialsNotAllowed(
            f"Pelops does not send the credentials of Secret {name} to the Sentinels, because the "
            f"Secret does not list them. List the Sentinels in its annotation {REDIS_HOSTS}"
        )
    hosts = _read_listed(listed, name)
    grant = CredentialGrant(owner=f"Secret {name}", hosts=hosts, also=endpoint.grant)
    username = _text(fields, "username")
    sentinel = replace(endpoint.sentinel, username=username, password=password, grant=grant)
    return replace(endpoint, sentinel=sentinel)


def _read_listed(listed: str, name: str) -> tuple[HostPattern, ...]:
    try:
        return parse_host_patterns(listed)
    except ValueError:
        raise InvalidSpec(
            f"the annotation {REDIS_HOSTS} of Secret {name} is invalid: list hosts as HOST, "
            "HOST:PORT, *.DOMAIN or 10.0.0.0/8, separated by commas"
        ) from None


def _choose_url(
    spec_url: str | None, secret_url: str | None, *, has_sentinel: bool
) -> RedisEndpoint:
    spec = parse_redis_url(spec_url) if spec_url else None
    secret = parse_redis_url(secret_url) if secret_url else None
    if spec and (spec.username or spec.password):
        raise InvalidSpec("spec.redis.url contains credentials: put them into a Secret")
    if spec and secret and secret.tls and not spec.tls:
        raise InvalidSpec(
            "the url of the Secret uses TLS, but spec.redis.url does not: write rediss://"
        )
    if spec and secret:
        return replace(spec, username=secret.username, password=secret.password)
    chosen = spec or secret
    if chosen is None and has_sentinel:
        return RedisEndpoint(node=_ASK_SENTINEL)
    if chosen is None:
        raise InvalidSpec("no Redis URL: set spec.redis.url, or the key url of the Secret")
    return replace(chosen, node=_ASK_SENTINEL) if has_sentinel else chosen


def _build_sentinel(master: str | None, nodes: Sequence[str]) -> Sentinel | None:
    if master is None and not nodes:
        return None
    if not master or not nodes:
        raise InvalidSpec("spec.redis.sentinel needs both a masterName and at least one node")
    return Sentinel(master_name=master, nodes=tuple(sorted({parse_node(node) for node in nodes})))


def _check_credentials(endpoint: RedisEndpoint) -> None:
    if endpoint.username and not endpoint.password:
        raise InvalidSpec("the Secret has a username and no password: add the key password")
    if (endpoint.cert_pem is None) != (endpoint.key_pem is None):
        raise InvalidSpec("the Secret needs both tls.crt and tls.key, or neither")
    if not endpoint.tls and (endpoint.ca_pem or endpoint.cert_pem):
        # A user who provides certificates expects TLS: do not connect in plain text silently.
        raise InvalidSpec(
            "the Secret holds certificates, but the URL begins with redis://: write rediss://"
        )


def _read_db(path: str) -> int | None:
    if not path:
        return None
    if not (path.isascii() and path.isdigit() and len(path) <= 5):
        raise BadUrl(UrlProblem.DATABASE)
    return int(path)


def _node(host: str, port: int) -> Node:
    return Node(host.lower().rstrip("."), port)


def _text(fields: Mapping[str, bytes], name: str) -> str | None:
    # `echo secret | base64` adds a line feed that is not part of the intended value.
    try:
        return fields.get(name, b"").decode().rstrip("\r\n") or None
    except UnicodeDecodeError:
        raise InvalidSpec(f"the key {name} of the Secret is not UTF-8 text") from None


def _problem(error: ValueError) -> UrlProblem:
    # urllib's message about a port quotes it, and the quoted text may be part of a password.
    return UrlProblem.PORT if "ort" in str(error) else UrlProblem.HOST
