"""Where the servers are and how to be let in: settings only, nothing is connected here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from pyspark_redis_streams.errors import OptionError


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    verify: str  # full | certificate | none


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything that is needed to connect, from driver and executors alike."""

    topology: str
    host: str
    port: int
    db: int
    username: str | None
    secret: Secret
    sentinels: tuple[tuple[str, int], ...]
    sentinel_master: str | None
    sentinel_username: str | None
    sentinel_secret: Secret
    tls: Tls | None
    from_replica: bool
    connect_timeout_s: float
    read_timeout_s: float
    retries: int
    retry_interval_s: float

    def describe(self) -> str:
        """The place as a person would name it."""
        if self.topology == "sentinel":
            return f"master '{self.sentinel_master}' of the Sentinels"
        return f"{self.host}:{self.port}"


def read_server_settings(values: Mapping[str, Any]) -> ServerSettings:
    """The settings that checked option values amount to. Raises OptionError."""
    place = dict(values) if values["url"] is None else _with_url(values)
    _check_topology(place)
    return ServerSettings(
        topology=place["topology"],
        host=place["host"],
        port=place["port"],
        db=place["db"],
        username=place["username"],
        secret=_secret(place, "password"),
        sentinels=_sentinel_addresses(place["sentinels"] or ()),
        sentinel_master=place["sentinelMaster"],
        sentinel_username=place["sentinelUsername"],
        sentinel_secret=_secret(place, "sentinelPassword"),
        tls=_tls(place),
        from_replica=place["readFrom"] == "replica",
        connect_timeout_s=place["connectTimeoutMs"] / 1000,
        read_timeout_s=place["readTimeoutMs"] / 1000,
        retries=place["numRetries"],
        retry_interval_s=place["retryIntervalMs"] / 1000,
    )


def _with_url(values: Mapping[str, Any]) -> dict[str, Any]:
    parts = urlsplit(values["url"])
    problem = _problem_of_url(parts)
    if problem is not None:
        raise OptionError(
            f"option 'url' must be redis://host:port/db or rediss://host:port/db ({problem})"
        )
    place = dict(values)
    place["host"] = parts.hostname
    place["port"] = _port_of(parts.netloc, parts)
    place["db"] = _database_of(parts.path, values["db"])
    place["tls"] = values["tls"] or parts.scheme == "rediss"
    if parts.username:
        place["username"] = unquote(parts.username)
    if parts.password:
        place["password"] = unquote(parts.password)
    return place


def _problem_of_url(parts: SplitResult) -> str | None:
    if parts.scheme not in ("redis", "rediss"):
        return f"its scheme is '{parts.scheme}'"
    if not parts.hostname:
        return "it has no host"
    if parts.query or parts.fragment:
        # Other clients read settings there: to drop them could read another database.
        return "it goes on behind the database; say the rest by other options"
    return None


def _port_of(netloc: str, parts: Any) -> int:
    try:
        return parts.port or 6379
    except ValueError as error:
        shown = netloc.rpartition("@")[2]
        raise OptionError(f"option 'url' has no usable port: '{shown}'") from error


def _database_of(path: str, default: int) -> int:
    text = path.strip("/")
    if not text:
        return default
    if not text.isdigit():
        raise OptionError(f"option 'url' ends with '{text}', which is no database number")
    return int(text)


def _check_topology(values: Mapping[str, Any]) -> None:
    if values["topology"] == "sentinel":
        for name in ("sentinels", "sentinelMaster"):
            if values[name] is None:
                raise OptionError(f"option '{name}' is missing: topology 'sentinel' needs it")
    elif values["sentinels"] is not None:
        raise OptionError(
            f"option 'sentinels' is given, but option 'topology' is '{values['topology']}'"
        )
    if values["topology"] == "cluster" and values["db"] != 0:
        raise OptionError("option 'db' must be 0 with topology 'cluster'")


def _secret(values: Mapping[str, Any], prefix: str) -> Secret:
    ways = {"plain": values.get(prefix), "env": values[f"{prefix}Env"]}
    ways["file"] = values[f"{prefix}File"]
    given = {way: value for way, value in ways.items() if value is not None}
    if len(given) > 1:
        raise OptionError(
            f"options '{prefix}', '{prefix}Env' and '{prefix}File' exclude each other: give one"
        )
    return Secret(**given, options=prefix)


def _sentinel_addresses(names: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    return tuple(_address(name) for name in names)


def _address(name: str) -> tuple[str, int]:
    host, _, port = name.rpartition(":")
    if not host or not port.isdigit():
        raise OptionError(f"option 'sentinels' has '{name}': write host:port")
    return host, int(port)


def _tls(values: Mapping[str, Any]) -> Tls | None:
    files = [name for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile") if values[name]]
    if not values["tls"]:
        if files:
            raise OptionError(f"option '{files[0]}' is given, but option 'tls' is false")
        return None
    return Tls(
        ca_file=values["tlsCaFile"],
        cert_file=values["tlsCertFile"],
        key_file=values["tlsKeyFile"],
        verify=values["tlsVerify"],
    )
