"""The table of the variables that workers get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.domain.naming import derive_keys
from pelops.kube.container_environment import WorkerAccess, build_environment
from tools.reference.tables import render_table

# What each variable holds, in the order of the table.
_HELD: Final[Mapping[str, str]] = {
    "POD_NAME": "Name of the pod.",
    "POD_UID": "UID of the pod.",
    "PELOPS_CONSUMER": "Name of the consumer: `$(POD_NAME):$(POD_UID)`.",
    "PELOPS_REDIS_URL": "`spec.redis.url`, or the key `url` of the Secret.",
    "PELOPS_REDIS_USERNAME": "Key `username` of the Secret of `workerSecretRef`, else of `redis`.",
    "PELOPS_REDIS_PASSWORD": "Key `password` of the same Secret.",
    "PELOPS_REDIS_SENTINEL_MASTER": "`redis.sentinel.masterName`.",
    "PELOPS_REDIS_SENTINEL_NODES": "`redis.sentinel.nodes`, as `HOST:PORT,...`.",
    "PELOPS_REDIS_SENTINEL_USERNAME": "Key `username` of `redis.sentinel.authSecretRef`.",
    "PELOPS_REDIS_SENTINEL_PASSWORD": "Key `password` of `redis.sentinel.authSecretRef`.",
    "PELOPS_REDIS_TLS": "`true`: connect with TLS although no URL begins with `rediss://`.",
    "PELOPS_REDIS_TLS_SERVER_NAME": "`redis.tls.serverName`: the name that certificates must hold.",
    "PELOPS_REDIS_CA_FILE": "File with the authorities, mounted from the Secret.",
    "PELOPS_REDIS_CERT_FILE": "File with the client certificate, mounted from the Secret.",
    "PELOPS_REDIS_KEY_FILE": "File with the key of that certificate, mounted from the Secret.",
    "PELOPS_STREAM": "`spec.stream`: the stream to read.",
    "PELOPS_GROUP": "`spec.group`: the group to read as.",
    "PELOPS_RETRY_STREAM": "The group's retry stream, for `strategy: RetryStream`.",
    "PELOPS_HANDOVER_STREAM": "The group's offer stream, for `strategy: Release`.",
    "PELOPS_STARTED_KEY": "Hash in which workers record entries that they begin.",
    "PELOPS_WORKER_STATE_KEY": "Hash in which the SDK keeps its state.",
    "PELOPS_WORKER_LEDGER_STREAM": "Stream in which the SDK records what it did.",
    "PELOPS_DEAD_LETTER_STREAM": "The dead-letter stream.",
    "PELOPS_IDLE_LIMIT_MS": "`recovery.processingTimeoutSeconds`, in milliseconds.",
    "PELOPS_MAX_RETRIES": "`recovery.maxRetries`.",
    "PELOPS_FIELD_PREFIX": "`recovery.tuning.fieldPrefix`.",
    "PELOPS_MAX_ENTRY_BYTES": "`recovery.maxEntryBytes`.",
    "PELOPS_BACKOFF_INITIAL_SECONDS": "`recovery.backoff.initialSeconds`.",
    "PELOPS_BACKOFF_FACTOR": "`recovery.backoff.factor`.",
    "PELOPS_BACKOFF_MAX_SECONDS": "`recovery.backoff.maxSeconds`.",
}
_ALWAYS: Final = "always"
# When a variable is set that is not set always.
_SENTINEL: Final = {"sentinel": {"masterName": "mymaster", "nodes": ["sentinel:26379"]}}
_URL: Final = {"url": "rediss://redis:6379"}
_CASES: Final[tuple[tuple[str, Mapping[str, Any], Mapping[str, Any], WorkerAccess], ...]] = (
    (_ALWAYS, _URL, {}, WorkerAccess()),
    ("with an address or a Secret that has one", _URL, {}, WorkerAccess(url="rediss://redis:6379")),
    ("with a Secret that has the key", _URL, {}, WorkerAccess(secret="s")),
    ("with `redis.sentinel`", _SENTINEL, {}, WorkerAccess()),
    ("with this Secret", _SENTINEL, {}, WorkerAccess(sentinel_secret="s")),
    ("with `redis.tls` and without `redis.url`", {**_SENTINEL, "tls": {}}, {}, WorkerAccess()),
    ("with this field", {**_URL, "tls": {"serverName": "redis"}}, {}, WorkerAccess()),
    ("with a Secret that has `ca.crt`", _URL, {}, WorkerAccess(ca_secret="s")),
    ("with a Secret that has it", _URL, {}, WorkerAccess(cert_secret="s")),
    ("with `recovery.backoff`", _URL, {"backoff": {"initialSeconds": 1}}, WorkerAccess()),
)


class UndescribedVariableError(Exception):
    """Workers get a variable that the table does not describe, or do not get one that it does."""


def list_worker_variables() -> dict[str, str]:
    """Return every variable that workers can get, and when each is set."""
    found: dict[str, str] = {}
    for when, redis, recovery, access in _CASES:
        resource = _build_resource(redis, recovery)
        keys = derive_keys(resource.spec.stream, resource.group_name)
        for variable in build_environment(resource, keys, access):
            found.setdefault(variable["name"], when)
    return found


def render_worker_variables() -> Iterator[str]:
    """Yield the table. Raises UndescribedVariableError."""
    found = list_worker_variables()
    if found.keys() != _HELD.keys():
        raise UndescribedVariableError(sorted(found.keys() ^ _HELD.keys()))
    rows = ((f"`{name}`", held, found[name]) for name, held in _HELD.items())
    return render_table(("variable", "holds", "set"), rows)


def _build_resource(redis: Mapping[str, Any], recovery: Mapping[str, Any]) -> StreamConsumerGroup:
    return StreamConsumerGroup.parse(
        {
            "apiVersion": "pelops.dev/v1alpha1",
            "kind": "StreamConsumerGroup",
            "metadata": {"name": "order-processing", "namespace": "shop"},
            "spec": {
                "redis": dict(redis),
                "stream": "orders:events",
                "recovery": dict(recovery),
                "targetRef": {"name": "order-workers"},
            },
        }
    )
