"""Where the servers are and how to be let in: settings only, nothing is connected here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pelops.redis_core import BadUrl, Node, UrlProblem, parse_node, read_redis_url
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
    """A password, or the place where it is looked up at each connecting."""

    plain: str | None = field(default=None, repr=False)
    env: str | None = None
    file: str | None = None
    options: str = "password"  # prefix of the options' names, for messages

    def reveal(self) -> str | None:
        """The password; None when there is none. Raises OptionError when its place is empty."""
        if self.env is not None:
            if self.env not in os.environ:
                raise OptionError(
                    f"option '{self.options}Env' names the environment variable '{self.env}',"
                    " which is not set in this process: set it before the session begins, and for"
                    " executors too"
                )
            return os.environ[self.env]
        if self.file is not None:
            return self._read_file(self.file)
        return self.plain

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


_server = section("Server", uses=EVERY_USE, views=EVERY_VIEW)
_SECONDS = whole(1).then(lambda milliseconds: milliseconds / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything that is needed to connect, from driver and executors alike.

    What `url` says is in the fields of its parts.
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
    from_replica: bool = _server("readFrom", either("replica", "master"), default="master")(
        "Read entries from a replica that has them already, else from the master."
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
        return Secret(plain=self.password, env=self.password_env, file=self.password_file)

    @property
    def sentinel_secret(self) -> Secret:
        """The password of the Sentinels."""
        env, file = self.sentinel_password_env, self.sentinel_password_file
        return Secret(env=env, file=file, options="sentinelPassword")

    def describe(self) -> str:
        """The place as a person would name it."""
        if self.topology == "sentinel":
            return f"master '{self.sentinel_master}' of the Sentinels"
        return f"{self.host}:{self.port}"


def read_server_settings(values: Mapping[str, Any], given: Mapping[str, str]) -> ServerSettings:
    """The settings that parsed values amount to; `given` are the options as written.

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
    UrlProblem.OPTIONS: f"{_SHAPE} (it goes on behind the database; say the rest by other options)",
    UrlProblem.DATABASE: "option 'url' ends with something that is no database number",
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
    if [secret.plain, secret.env, secret.file].count(None) < 2:
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
