"""What a Deployment or StatefulSet says about the Redis and the stream that its pods read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from pelops.cli.kubectl import Object

_REDIS_SCHEMES: Final = ("redis://", "rediss://", "unix://", "valkey://", "valkeys://")
_URL_NAME: Final = re.compile(r"(^|_)(REDIS|VALKEY)(_|$).*(URL|URI|DSN|ADDR|ADDRESS)$|^REDIS$")
_HOST_NAME: Final = re.compile(r"(^|_)(REDIS|VALKEY)_(HOST|HOSTNAME)$")
_PORT_NAME: Final = re.compile(r"(^|_)(REDIS|VALKEY)_PORT$")
_STREAM_NAME: Final = re.compile(r"(^|_)STREAM(_NAME|_KEY)?$")
_GROUP_NAME: Final = re.compile(r"(^|_)(CONSUMER_?)?GROUP(_NAME)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """A key of a Secret that a variable takes its value from."""

    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisReference:
    """A variable that names a Redis, and where its value is."""

    variable: str
    url: str | None = None  # without credentials
    secret: SecretKey | None = None
    had_credentials: bool = False


@dataclass(slots=True, kw_only=True)
class WorkloadFacts:
    """What was found in a workload."""

    kind: str
    name: str
    namespace: str
    api_version: str
    container: str | None = None  # the one that reads the stream
    containers: Sequence[str] = ()
    redis: list[RedisReference] = field(default_factory=list)
    streams: list[tuple[str, str]] = field(default_factory=list)  # variable, value
    groups: list[tuple[str, str]] = field(default_factory=list)
    pod_name_variable: str | None = None
    secret_prefixes: list[str] = field(default_factory=list)  # Secrets of envFrom
    replicas: int = 1
    replica_owners: Sequence[str] = ()  # who applies spec.replicas
    owner: str | None = None  # the object that made the workload, such as a Rollout


def read_workload(resource: Object) -> WorkloadFacts:
    """Return what a workload's pod template says. No value of a Secret is read."""
    spec = resource.get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    facts = WorkloadFacts(
        kind=resource["kind"],
        name=resource["metadata"]["name"],
        namespace=resource["metadata"]["namespace"],
        api_version=resource["apiVersion"],
        containers=[container["name"] for container in containers],
        replicas=spec.get("replicas", 1),
        replica_owners=list(find_replica_owners(resource)),
        owner=_find_owner(resource),
    )
    for container in containers:
        known_count = len(facts.redis) + len(facts.streams)
        _read_container(container, facts)
        if facts.container is None and len(facts.redis) + len(facts.streams) > known_count:
            facts.container = container["name"]
    return facts


def _find_owner(resource: Object) -> str | None:
    owners = resource["metadata"].get("ownerReferences") or ()
    made = (f"{one['kind']} {one['name']}" for one in owners if one.get("controller"))
    return next(made, None)


def find_replica_owners(resource: Object) -> Iterator[str]:
    """Yield the clients that apply spec.replicas, and so set it back at each sync."""
    for entry in resource["metadata"].get("managedFields") or ():
        owned = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        is_scale = entry.get("subresource") == "scale"
        is_repeated = entry.get("operation") == "Apply" or entry.get("manager") not in _BY_HAND
        if "f:replicas" in owned and not is_scale and is_repeated:
            yield str(entry.get("manager"))


# They set replicas once, when a user runs them; `kubectl apply --server-side` has the operation
# Apply, and is repeated.
_BY_HAND: Final = frozenset(
    {"kubectl", "kubectl-create", "kubectl-edit", "kubectl-patch", "kube-controller-manager"}
)


def _read_container(container: Mapping[str, Any], facts: WorkloadFacts) -> None:
    plain: dict[str, str] = {}
    for variable in container.get("env") or ():
        name, value = str(variable["name"]), variable.get("value")
        source = variable.get("valueFrom") or {}
        if (source.get("fieldRef") or {}).get("fieldPath") == "metadata.name":
            facts.pod_name_variable = name
        elif "secretKeyRef" in source:
            _read_secret(name, source["secretKeyRef"], facts)
        elif isinstance(value, str):
            plain[name] = value
            _read_value(name, value, facts)
    _read_host(plain, facts)
    for source in container.get("envFrom") or ():
        if "secretRef" in source:
            facts.secret_prefixes.append(str(source["secretRef"].get("name")))


def _read_secret(name: str, reference: Mapping[str, Any], facts: WorkloadFacts) -> None:
    if _URL_NAME.search(name.upper()):
        secret = SecretKey(secret=str(reference.get("name")), key=str(reference.get("key")))
        facts.redis.append(RedisReference(variable=name, secret=secret))


def _read_value(name: str, value: str, facts: WorkloadFacts) -> None:
    upper = name.upper()
    if value.startswith(_REDIS_SCHEMES):
        url, had_credentials = remove_credentials(value)
        facts.redis.append(RedisReference(variable=name, url=url, had_credentials=had_credentials))
    elif _STREAM_NAME.search(upper) and value:
        facts.streams.append((name, value))
    elif _GROUP_NAME.search(upper) and value:
        facts.groups.append((name, value))


def _read_host(plain: Mapping[str, str], facts: WorkloadFacts) -> None:
    """Take REDIS_HOST and REDIS_PORT for a URL, if there is no other."""
    host = next((name for name in plain if _HOST_NAME.search(name.upper())), None)
    if host is None or facts.redis or not plain[host]:
        return
    port = next((plain[name] for name in plain if _PORT_NAME.search(name.upper())), "6379")
    url = f"redis://{plain[host]}:{port}"
    facts.redis.append(RedisReference(variable=host, url=url))


def remove_credentials(url: str) -> tuple[str, bool]:
    """Return a URL without user and password, and whether it had any.

    >>> remove_credentials("redis://orders:pw@redis:6379/1")
    ('redis://redis:6379/1', True)
    """
    parts = urlsplit(url)
    _, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), bool(at)
