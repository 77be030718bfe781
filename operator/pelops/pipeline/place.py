"""Where Redis is: for the driver's own looks, for the data source, and for what is recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pelops.domain.endpoint import RedisEndpoint, build_endpoint
from pelops.errors import InvalidSpec
from pelops.pipeline.errors import WrongPipelineSettings

PASSWORD: Final = "PELOPS_REDIS_PASSWORD"
_PLAIN: Final = {
    "url": "PELOPS_REDIS_URL",
    "username": "PELOPS_REDIS_USERNAME",
    "password": PASSWORD,
}
_FILES: Final = {
    "ca.crt": ("tlsCaFile", "PELOPS_REDIS_CA_FILE"),
    "tls.crt": ("tlsCertFile", "PELOPS_REDIS_CERT_FILE"),
    "tls.key": ("tlsKeyFile", "PELOPS_REDIS_KEY_FILE"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisPlace:
    """One Redis, in the words of both who speak to it."""

    endpoint: RedisEndpoint
    options: Mapping[str, str]  # of the data source; a password only where the URL holds one

    @property
    def address(self) -> str:
        return self.endpoint.address


def read_place(environment: Mapping[str, str], url: str | None = None) -> RedisPlace:
    """Where Redis is, by the variables that the operator sets, or by a URL of one's own.

    Raises WrongSettings, which names the variable and not its value.
    """
    reported = {**environment, **({"PELOPS_REDIS_URL": url} if url else {})}
    fields = {key: reported.get(name, "").encode() for key, name in _PLAIN.items()}
    fields |= {key: _read_file(name, reported.get(name)) for key, (_, name) in _FILES.items()}
    nodes = reported.get("PELOPS_REDIS_SENTINEL_NODES", "")
    try:
        endpoint = build_endpoint(
            secret={key: value for key, value in fields.items() if value},
            sentinel_master=reported.get("PELOPS_REDIS_SENTINEL_MASTER") or None,
            sentinel_nodes=[node for node in nodes.split(",") if node.strip()],
        )
    except InvalidSpec as error:
        raise WrongPipelineSettings(f"PELOPS_REDIS_*: {error}") from error
    return RedisPlace(endpoint=endpoint, options=_source_options(endpoint, reported))


def on_cluster(place: RedisPlace) -> RedisPlace:
    """The same place, once its servers have proved to be a cluster."""
    options = {**place.options, "topology": "cluster"}
    options.pop("db", None)
    return RedisPlace(endpoint=place.endpoint, options=options)


def _source_options(endpoint: RedisEndpoint, reported: Mapping[str, str]) -> dict[str, str]:
    options = {"db": str(endpoint.db), "tls": str(endpoint.tls).lower()}
    if endpoint.sentinel is None:
        options |= {"host": endpoint.node.host, "port": str(endpoint.node.port)}
    else:
        options |= {
            "topology": "sentinel",
            # As JSON, since the brackets of an IPv6 address that comes first look like it.
            "sentinels": json.dumps([str(node) for node in endpoint.sentinel.nodes]),
            "sentinelMaster": endpoint.sentinel.master_name,
        }
    if endpoint.username:
        options["username"] = endpoint.username
    if endpoint.password:
        # Spark shows options in plans: the name of a variable is all it need know.
        by_name = reported.get(PASSWORD) == endpoint.password
        options |= {"passwordEnv": PASSWORD} if by_name else {"password": endpoint.password}
    files = {option: reported.get(name) for option, name in _FILES.values()}
    return options | {option: path for option, path in files.items() if path and endpoint.tls}


def _read_file(variable: str, path: str | None) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise WrongPipelineSettings(
            f"{variable} names {path}, which cannot be read: {error}"
        ) from error
