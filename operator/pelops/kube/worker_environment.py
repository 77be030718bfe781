"""The environment that worker containers get. No secret ever stands in it in clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redis import RedisSpec
from pelops.domain.naming import GroupKeys

POD_VARIABLES = frozenset({"POD_NAME", "POD_UID"})  # what PELOPS_CONSUMER is made of
TLS_MOUNT = "/etc/pelops/redis"
TLS_VOLUME = "pelops-redis-tls"
# The Secret's keys, and the variables that name the mounted files.
TLS_FILES = (
    ("ca.crt", "PELOPS_REDIS_CA_FILE"),
    ("tls.crt", "PELOPS_REDIS_CERT_FILE"),
    ("tls.key", "PELOPS_REDIS_KEY_FILE"),
)

Variable = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAccess:
    """Where workers find Redis: which Secrets exist and which keys they hold, never the values."""

    url: str | None = None  # from the spec
    url_secret: str | None = None  # name of the Secret that has a `url`, which then serves
    secret: str | None = None  # name of the Secret with username, password and TLS files
    secret_keys: frozenset[str] = frozenset()

    @property
    def tls_keys(self) -> tuple[str, ...]:
        """The TLS files that the Secret holds."""
        return tuple(key for key, _ in TLS_FILES if key in self.secret_keys)


def build_environment(
    resource: StreamConsumerGroup, keys: GroupKeys, access: WorkerAccess
) -> list[Variable]:
    """The variables of DESIGN section 3, in a fixed order: the same facts give the same bytes."""
    return [
        *_identity(),
        *redis_variables(resource.spec.redis, access),
        *_keys(keys),
        *_limits(resource),
    ]


def literal(text: str) -> str:
    """Text that the kubelet passes on as it is, where `$(NAME)` is expanded and `$$` means `$`."""
    return text.replace("$", "$$")


def _identity() -> list[Variable]:
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        # The uid tells a pod from its namesake after a restart, and in another cluster.
        {"name": "PELOPS_CONSUMER", "value": "$(POD_NAME):$(POD_UID)"},
    ]


def redis_variables(redis: RedisSpec, access: WorkerAccess) -> list[Variable]:
    """The variables that say where Redis is and who asks; secrets by reference alone."""
    variables: list[Variable] = []
    if access.url_secret is not None:
        variables.append(secret_variable("PELOPS_REDIS_URL", access.url_secret, "url"))
    elif access.url is not None:
        variables.append({"name": "PELOPS_REDIS_URL", "value": literal(access.url)})
    if access.secret is not None:
        for key in ("username", "password"):
            name = f"PELOPS_REDIS_{key.upper()}"
            variables.append(secret_variable(name, access.secret, key, optional=True))
    sentinel = redis.sentinel
    if sentinel is not None:
        master = literal(sentinel.master_name)
        nodes = literal(",".join(sentinel.nodes))
        variables.append({"name": "PELOPS_REDIS_SENTINEL_MASTER", "value": master})
        variables.append({"name": "PELOPS_REDIS_SENTINEL_NODES", "value": nodes})
    variables += [
        {"name": name, "value": f"{TLS_MOUNT}/{key}"}
        for key, name in TLS_FILES
        if key in access.tls_keys
    ]
    return variables


def secret_variable(name: str, secret: str, key: str, *, optional: bool = False) -> Variable:
    """A variable whose value the kubelet takes from a Secret."""
    reference: dict[str, Any] = {"name": secret, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def _keys(keys: GroupKeys) -> list[Variable]:
    named = {
        "PELOPS_STREAM": keys.stream,
        "PELOPS_GROUP": keys.group,
        "PELOPS_RETRY_STREAM": keys.retry,
        "PELOPS_HANDOVER_STREAM": keys.offer_stream,
        "PELOPS_STARTED_KEY": keys.started,
        "PELOPS_STATE_KEY": keys.state,
        "PELOPS_LEDGER_STREAM": keys.ledger,
        "PELOPS_DEAD_LETTER_STREAM": keys.dead_letter,
    }
    return [{"name": name, "value": literal(value)} for name, value in named.items()]


def _limits(resource: StreamConsumerGroup) -> list[Variable]:
    recovery = resource.spec.recovery
    limits = {
        "PELOPS_IDLE_LIMIT_MS": str(recovery.processing_timeout_seconds * 1000),
        "PELOPS_MAX_RETRIES": str(recovery.max_retries),
        "PELOPS_FIELD_PREFIX": literal(recovery.field_prefix),
    }
    if recovery.backoff is not None:
        limits |= {
            "PELOPS_BACKOFF_INITIAL_SECONDS": str(recovery.backoff.initial_seconds),
            "PELOPS_BACKOFF_FACTOR": f"{recovery.backoff.factor:g}",
            "PELOPS_BACKOFF_MAX_SECONDS": str(recovery.backoff.max_seconds),
        }
    return [{"name": name, "value": value} for name, value in limits.items()]
