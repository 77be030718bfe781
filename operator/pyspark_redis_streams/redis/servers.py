"""Addresses of servers and credentials for them. No connections are opened here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pelops.redis_core import (
    AddressRules,
    BadUrl,
    CredentialGrant,
    Node,
    UrlProblem,
    parse_address_rules,
    parse_host_patterns,
    parse_node,
    read_redis_url,
)
from pelops.redis_core.errors import InvalidSpec
from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.options.option import (
    EVERY_USE,
    EVERY_VIEW,
    FLAG,
    NAMES,
    TEXT,
    choice,
    either,
    section,
    values_for,
    whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A password, or the place where it is read for each connection."""

    plain: str | None = field(default=None, repr=False)
    env: str | None = None
    file: str | None = None
    url_env: str | None = None  # a variable that holds a URL with the password
    options: str = "password"  # prefix of the options' names, for messages

    def reveal(self) -> str | None:
        """The password; None when there is none. Raises OptionError when it cannot be read."""
        if self.env is not None:
            return self._read_variable("Env", self.env).rstrip("\r\n")
        if self.url_env is not None:
            try:
                return read_redis_url(self._read_variable("UrlEnv", self.url_env)).password
            except BadUrl as error:
                raise OptionError(
                    f"option '{self.options}UrlEnv' names the environment variable"
                    f" '{self.url_env}', which holds no URL of a Redis: {error}"
                ) from None
        if self.file is not None:
            return self._read_file(self.file)
        return self.plain

    def _read_variable(self, ending: str, name: str) -> str:
        if name not in os.environ:
            raise OptionError(
                f"option '{self.options}{ending}' names the environment variable '{name}',"
                " which is not set in this process: set it before the session begins, and for"
                " executors too"
            )
        return os.environ[name]

    def _read_file(self, path: str) -> str:
        try:
            return Path(path).read_text().rstrip("\r\n")
        except OSError as error:
            raise OptionError(
                f"option '{self.options}File' names '{path}', which cannot be read here"
                f" ({error.strerror}); executors need it too"
            ) from error


def _read_nodes(names: tuple[str, ...]) -> tuple[Node, ...]:
    try:
        return tuple(parse_node(name) for name in names)
    except InvalidSpec as error:
        raise ValueError(str(error)) from error


def _checked(text: str, parse: Callable[[], object]) -> str:
    try:
        parse()
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}") from error
    return text


_server = section("Server", uses=EVERY_USE, views=EVERY_VIEW)
_NETWORKS = TEXT.then(lambda text: _checked(text, lambda: parse_address_rules(text, "")))
_PATTERNS = TEXT.then(lambda text: _checked(text, lambda: parse_host_patterns(text)))
_SECONDS = whole(1).then(lambda milliseconds: milliseconds / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything that driver and executors need to connect.

    The parts of `url` are in fields of their own.
    """

    topology: str = _server(
        "topology", choice("standalone", "sentinel", "cluster"), default="standalone"
    )("How the servers are arranged.")
    url: str | None = _server("url", TEXT, is_secret=True)(
        "`redis://user:password@host:port/db`, or `rediss://` for TLS; in place of the parts."
    )
    host: str = _server("host", TEXT, default="localhost")(
        "Host of the server, or of any node of a cluster."
    )
    port: int = _server("port", whole(1, 65535), default="6379")("Port of the server.")
    db: int = _server("db", whole(0), default="0")("Number of the database; a cluster has only 0.")
    username: str | None = _server("username", TEXT)("ACL user.")
    password: str | None = _server("password", TEXT, is_secret=True)(
        "Password in plain text, which Spark writes into plans and logs: better a file."
    )
    password_env: str | None = _server("passwordEnv", TEXT)(
        "Environment variable, on driver and executors, that holds the password."
    )
    password_file: str | None = _server("passwordFile", TEXT)(
        "File, on driver and executors, that holds the password."
    )
    password_url_env: str | None = _server("passwordUrlEnv", TEXT)(
        "Environment variable, on driver and executors, that holds a `url` with the password in it."
    )
    sentinels: tuple[Node, ...] = _server("sentinels", NAMES.then(_read_nodes))(
        "Sentinels as `host:port,host:port`."
    )
    sentinel_master: str | None = _server("sentinelMaster", TEXT)(
        "Name under which the Sentinels watch the master."
    )
    sentinel_username: str | None = _server("sentinelUsername", TEXT)("ACL user at the Sentinels.")
    sentinel_password_env: str | None = _server("sentinelPasswordEnv", TEXT)(
        "Environment variable that holds the password of the Sentinels."
    )
    sentinel_password_file: str | None = _server("sentinelPasswordFile", TEXT)(
        "File that holds the password of the Sentinels."
    )
    tls: bool = _server("tls", FLAG, default="false")("Speak TLS, with the Sentinels as well.")
    tls_ca_file: str | None = _server("tlsCaFile", TEXT)(
        "Certificates to trust (PEM); default those of the system."
    )
    tls_cert_file: str | None = _server("tlsCertFile", TEXT)("Certificate of the client (PEM).")
    tls_key_file: str | None = _server("tlsKeyFile", TEXT)("Key of the client's certificate (PEM).")
    tls_verify: str = _server("tlsVerify", choice("full", "certificate", "none"), default="full")(
        "What is checked: certificate and host name, the certificate alone, or nothing."
    )
    tls_server_name: str | None = _server("tlsServerName", TEXT)(
        "Name that certificates must hold; default the host that is connected to."
    )
    from_replica: bool = _server("readFrom", either("replica", "master"), default="master")(
        "Read entries from a replica that has them already, else from the master."
    )
    allowed_networks: str | None = _server("allowedNetworks", _NETWORKS)(
        "Networks that servers may be in, such as `10.0.0.0/8,routable`; `routable`: all but"
        " loopback, link-local and the like. Default: every address."
    )
    allowed_hosts: str | None = _server("allowedHosts", _PATTERNS)(
        "Host names that servers may have beside, such as `*.cache.example.com`."
    )
    credential_hosts: str | None = _server("credentialHosts", _PATTERNS)(
        "Hosts that may be given the password: `HOST`, `HOST:PORT`, `*.DOMAIN` or a network."
        " Default: every host."
    )
    connect_timeout_s: float = _server("connectTimeoutMs", _SECONDS, default="5000")(
        "Longest wait for a connection."
    )
    read_timeout_s: float = _server("readTimeoutMs", _SECONDS, default="30000")(
        "Longest wait for a reply."
    )
    retries: int = _server("numRetries", whole(0, 1000), default="8")(
        "How often a read is repeated when the server is away or has moved."
    )
    retry_interval_s: float = _server("retryIntervalMs", _SECONDS, default="200")(
        "First wait before a repetition; doubles each time, up to 5 s, with jitter."
    )

    @property
    def secret(self) -> Secret:
        """The password of the servers."""
        return Secret(
            plain=self.password,
            env=self.password_env,
            file=self.password_file,
            url_env=self.password_url_env,
        )

    @property
    def sentinel_secret(self) -> Secret:
        """The password of the Sentinels."""
        env, file = self.sentinel_password_env, self.sentinel_password_file
        return Secret(env=env, file=file, options="sentinelPassword")

    @property
    def rules(self) -> AddressRules | None:
        """The rules for addresses; None: every address is allowed."""
        if self.allowed_networks is None and self.allowed_hosts is None:
            return None
        return parse_address_rules(self.allowed_networks or "", self.allowed_hosts or "")

    @property
    def grant(self) -> CredentialGrant | None:
        """The hosts to which the password may be sent; None: every host."""
        if self.credential_hosts is None:
            return None
        hosts = parse_host_patterns(self.credential_hosts)
        return CredentialGrant(owner="these options", hosts=hosts)

    def describe(self) -> str:
        """The server's name for messages."""
        if self.topology == "sentinel":
            return f"master '{self.sentinel_master}' of the Sentinels"
        return f"{self.host}:{self.port}"


def read_server_settings(values: Mapping[str, Any], given: Mapping[str, str]) -> ServerSettings:
    """The settings from parsed values; `given` are the options as written.

    Raises OptionError.
    """
    place = values_for(ServerSettings, values)
    place["sentinels"] = place["sentinels"] or ()
    if place["url"] is not None:
        beside = sorted({"host", "port"} & {name.lower() for name in given})
        if beside:
            raise OptionError(f"options 'url' and '{beside[0]}' exclude each other: give one")
        place |= _parts_of_url(place)
    settings = ServerSettings(**place)
    _check_topology(settings)
    _check_secret(settings.secret)
    _check_secret(settings.sentinel_secret)
    _check_tls(settings)
    return settings


def _parts_of_url(values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        url = read_redis_url(values["url"])
    except BadUrl as error:
        raise OptionError(_REPORTED[error.problem]) from None
    return {
        "host": url.node.host,
        "port": url.node.port,
        "db": values["db"] if url.db is None else url.db,
        "tls": values["tls"] or url.tls,
        "username": url.username or values["username"],
        "password": url.password or values["password"],
    }


_SHAPE = "option 'url' must be redis://host:port/db or rediss://host:port/db"
_REPORTED = {
    UrlProblem.PORT: "option 'url' has no usable port: it must be a number from 1 to 65535",
    UrlProblem.HOST: f"{_SHAPE} (its host is malformed)",
    UrlProblem.SCHEME: f"{_SHAPE} (it begins with another scheme, or it has no host)",
    UrlProblem.NO_HOST: f"{_SHAPE} (it has no host, or port 0)",
    UrlProblem.OPTIONS: f"{_SHAPE} (it continues after the database; use other options for the "
    "rest)",
    UrlProblem.DATABASE: "option 'url' must end with a database number",
}


def _check_topology(settings: ServerSettings) -> None:
    if settings.topology == "sentinel":
        needed = {"sentinels": settings.sentinels, "sentinelMaster": settings.sentinel_master}
        for name, value in needed.items():
            if not value:
                raise OptionError(f"option '{name}' is missing: topology 'sentinel' needs it")
    elif settings.sentinels:
        raise OptionError(
            f"option 'sentinels' is given, but option 'topology' is '{settings.topology}'"
        )
    if settings.topology == "cluster" and settings.db != 0:
        raise OptionError("option 'db' must be 0 with topology 'cluster'")


def _check_secret(secret: Secret) -> None:
    if [secret.plain, secret.env, secret.file, secret.url_env].count(None) < 3:
        name = secret.options
        raise OptionError(
            f"options '{name}', '{name}Env' and '{name}File' exclude each other: give one"
        )


def _check_tls(settings: ServerSettings) -> None:
    files = {
        "tlsCaFile": settings.tls_ca_file,
        "tlsCertFile": settings.tls_cert_file,
        "tlsKeyFile": settings.tls_key_file,
    }
    for name, path in files.items():
        if path is not None and not settings.tls:
            raise OptionError(f"option '{name}' is given, but option 'tls' is false")
