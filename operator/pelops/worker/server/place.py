"""Which group of which Redis a worker reads, and under which name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pelops.domain.endpoint import RedisEndpoint, build_endpoint
from pelops.domain.naming import GroupKeys
from pelops.errors import InvalidSpec

_TLS_FILES: Final = {
    "ca.crt": "PELOPS_REDIS_CA_FILE",
    "tls.crt": "PELOPS_REDIS_CERT_FILE",
    "tls.key": "PELOPS_REDIS_KEY_FILE",
}
_PLAIN: Final = {
    "url": "PELOPS_REDIS_URL",
    "username": "PELOPS_REDIS_USERNAME",
    "password": "PELOPS_REDIS_PASSWORD",
}
_SPOKEN: Final = {  # what messages for authors of resources call it
    "spec.redis.sentinel needs both a masterName and at least one node": (
        "PELOPS_REDIS_SENTINEL_MASTER and PELOPS_REDIS_SENTINEL_NODES are needed both, or neither"
    ),
    "no Redis URL: set spec.redis.url, or the key url of the Secret": "PELOPS_REDIS_URL is not set",
    "the key password": "PELOPS_REDIS_PASSWORD",
    "the Secret has a username": "PELOPS_REDIS_USERNAME is set",
    "the Secret needs both tls.crt and tls.key": (
        "PELOPS_REDIS_CERT_FILE and PELOPS_REDIS_KEY_FILE are needed both"
    ),
    "the Secret holds certificates": "PELOPS_REDIS_CA_FILE or PELOPS_REDIS_CERT_FILE is set",
    "the Redis URL": "PELOPS_REDIS_URL",
    "the URL": "PELOPS_REDIS_URL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Where a worker works. Shows no secret."""

    endpoint: RedisEndpoint
    keys: GroupKeys
    consumer: str
    processing_timeout_ms: int = 30_000  # what has been idle for so long anywhere is claimed
    field_prefix: str = "_"  # of the fields that recovery adds
    patience_s: float = 5.0  # with a server that owes an answer and says nothing
    deletes: bool = False  # acknowledged entries that no other group needs: by XACKDEL


def read_endpoint(environment: Mapping[str, str]) -> RedisEndpoint:
    """Where Redis is, by the variables that the operator sets.

    Raises InvalidSpec, which names the variable and not its value.
    """
    fields = {key: environment.get(name, "").encode() for key, name in _PLAIN.items()}
    fields |= {key: _read_file(name, environment.get(name)) for key, name in _TLS_FILES.items()}
    nodes = environment.get("PELOPS_REDIS_SENTINEL_NODES", "")
    try:
        return build_endpoint(
            secret={key: value for key, value in fields.items() if value},
            sentinel_master=environment.get("PELOPS_REDIS_SENTINEL_MASTER") or None,
            sentinel_nodes=[node for node in nodes.split(",") if node.strip()],
        )
    except InvalidSpec as error:
        raise InvalidSpec(_in_variables(str(error))) from error


def _read_file(variable: str, path: str | None) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidSpec(f"{variable} names {path}, which cannot be read: {error}") from error


def _in_variables(message: str) -> str:
    for spoken, variables in _SPOKEN.items():
        message = message.replace(spoken, variables)
    return message
