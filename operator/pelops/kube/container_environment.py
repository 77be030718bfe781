"""The environment of workers and of audit jobs. It never contains a secret in clear text.

The job of an audit has no access to Kubernetes, so its environment contains all that it needs:
docs/audits/index.md explains each variable.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pelops.api.audit.stream_audit import S3Spec, StreamAudit
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redis import RedisSpec, SecretRef, TlsSpec
from pelops.domain.destinations import AddressRules
from pelops.domain.naming import GroupKeys
from pelops.errors import InvalidSpec
from pelops.policy.audit.plan import AuditPlan, DeclaredGroup

POD_VARIABLES = frozenset({"POD_NAME", "POD_UID"})  # PELOPS_CONSUMER refers to them
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
    """How workers connect to Redis: the names of Secrets and their keys, never the values."""

    url: str | None = None  # from the spec
    url_secret: str | None = None  # name of the Secret with a `url`, which is used instead
    secret: str | None = None  # name of the Secret with username, password and TLS files
    secret_keys: frozenset[str] = frozenset()
    rules: AddressRules | None = None  # which addresses jobs of this installation may connect to
    credential_hosts: str | None = None  # the hosts that the Secret lists, if it lists any
    ca_secret: str | None = None  # name of a separate Secret with ca.crt
    cert_secret: str | None = None  # name of a separate Secret with tls.crt and tls.key
    sentinel_secret: str | None = None  # name of the Secret with the credentials of Sentinels

    @property
    def tls_keys(self) -> tuple[str, ...]:
        """The TLS files that the Secrets hold."""
        return tuple(key for _, keys in self.tls_sources for key in keys)

    @property
    def tls_sources(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The Secrets with TLS files, and the files to use from each."""
        named = {"ca.crt": self.ca_secret, "tls.crt": self.cert_secret, "tls.key": self.cert_secret}
        sources: dict[str, list[str]] = {}
        for key, _ in TLS_FILES:
            secret = named[key] or (self.secret if key in self.secret_keys else None)
            if secret is not None:
                sources.setdefault(secret, []).append(key)
        return tuple((secret, tuple(keys)) for secret, keys in sources.items())


def name_secrets(redis: RedisSpec, own_secret: SecretRef | None) -> WorkerAccess:
    """Return the names of the Secrets of workers or of a job, without their contents.

    With their own Secret they are a different Redis user, so it contains their client certificate
    as well.
    """
    own = own_secret or redis.login_ref
    tls, sentinel = redis.tls or TlsSpec(), redis.sentinel
    cert = tls.cert_secret_ref if own_secret is None else None
    sentinel_ref = sentinel.auth_secret_ref if sentinel else None
    return WorkerAccess(
        secret=own.name if own else None,
        ca_secret=tls.ca_secret_ref.name if tls.ca_secret_ref else None,
        cert_secret=cert.name if cert else None,
        sentinel_secret=sentinel_ref.name if sentinel_ref else None,
    )


def tls_volume(access: WorkerAccess) -> dict[str, Any] | None:
    """Return the volume with the TLS files of the Secrets; None if there are none."""
    sources = access.tls_sources
    if not sources:
        return None
    if len(sources) == 1 and sources[0][0] == access.secret:
        # Files that are added to the Secret later appear without a restart of the pod.
        items = [{"key": key, "path": key} for key, _ in TLS_FILES]
        secret = {"secretName": access.secret, "optional": True, "items": items}
        return {"name": TLS_VOLUME, "secret": secret}
    projected = [
        {"secret": {"name": secret, "items": [{"key": key, "path": key} for key in keys]}}
        for secret, keys in sources
    ]
    return {"name": TLS_VOLUME, "projected": {"sources": projected}}


def build_environment(
    resource: StreamConsumerGroup, keys: GroupKeys, access: WorkerAccess
) -> list[Variable]:
    """Return the variables of a worker in a fixed order: equal inputs give equal bytes."""
    return [
        *_identity(),
        *redis_variables(resource.spec.redis, access),
        *_keys(keys),
        *_limits(resource),
    ]


def literal(text: str) -> str:
    """Escape a text so that the kubelet, which expands `$(NAME)`, does not change it."""
    return text.replace("$", "$$")


def _identity() -> list[Variable]:
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        # The uid distinguishes pods with the same name: later ones, and those of other clusters.
        {"name": "PELOPS_CONSUMER", "value": "$(POD_NAME):$(POD_UID)"},
    ]


def redis_variables(redis: RedisSpec, access: WorkerAccess) -> list[Variable]:
    """Return the variables with the address and user of Redis; secrets only by reference."""
    variables: list[Variable] = []
    if access.url_secret is not None:
        variables.append(secret_variable("PELOPS_REDIS_URL", access.url_secret, "url"))
    elif access.url is not None:
        variables.append({"name": "PELOPS_REDIS_URL", "value": literal(access.url)})
    if access.secret is not None:
        for key in ("username", "password"):
            name = f"PELOPS_REDIS_{key.upper()}"
            variables.append(secret_variable(name, access.secret, key, optional=True))
    variables += _sentinel_variables(redis, access)
    if redis.tls is not None and redis.tls.server_name is not None:
        variables.append(_plain("PELOPS_REDIS_TLS_SERVER_NAME", redis.tls.server_name))
    if redis.tls is not None and redis.url is None:
        variables.append(_plain("PELOPS_REDIS_TLS", "true"))
    variables += [
        {"name": name, "value": f"{TLS_MOUNT}/{key}"}
        for key, name in TLS_FILES
        if key in access.tls_keys
    ]
    return variables


def _sentinel_variables(redis: RedisSpec, access: WorkerAccess) -> list[Variable]:
    sentinel = redis.sentinel
    if sentinel is None:
        return []
    variables = [
        _plain("PELOPS_REDIS_SENTINEL_MASTER", sentinel.master_name),
        _plain("PELOPS_REDIS_SENTINEL_NODES", ",".join(sentinel.nodes)),
    ]
    if access.sentinel_secret is not None:
        for key in ("username", "password"):
            name, secret = f"PELOPS_REDIS_SENTINEL_{key.upper()}", access.sentinel_secret
            variables.append(secret_variable(name, secret, key, optional=key == "username"))
    return variables


def secret_variable(name: str, secret: str, key: str, *, optional: bool = False) -> Variable:
    """Return a variable whose value the kubelet takes from a Secret."""
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
        "PELOPS_WORKER_STATE_KEY": keys.worker_state,
        "PELOPS_WORKER_LEDGER_STREAM": keys.worker_ledger,
        "PELOPS_DEAD_LETTER_STREAM": keys.dead_letter,
    }
    return [{"name": name, "value": literal(value)} for name, value in named.items()]


def _limits(resource: StreamConsumerGroup) -> list[Variable]:
    recovery = resource.spec.recovery
    limits = {
        "PELOPS_IDLE_LIMIT_MS": str(recovery.processing_timeout_seconds * 1000),
        "PELOPS_MAX_RETRIES": str(recovery.max_retries),
        "PELOPS_FIELD_PREFIX": literal(recovery.tuning.field_prefix),
        "PELOPS_MAX_ENTRY_BYTES": str(recovery.max_entry_bytes),
    }
    if recovery.backoff is not None:
        limits |= {
            "PELOPS_BACKOFF_INITIAL_SECONDS": str(recovery.backoff.initial_seconds),
            "PELOPS_BACKOFF_FACTOR": str(recovery.backoff.factor),
            "PELOPS_BACKOFF_MAX_SECONDS": str(recovery.backoff.max_seconds),
        }
    return [{"name": name, "value": value} for name, value in limits.items()]


_FACTORS: Final = {
    "": Decimal(1),
    **{unit: Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_SHAPE: Final = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{1,9})?(?:[eE][+-]?[0-9]{1,2})?)([A-Za-z]*)")


def parse_quantity(quantity: object, *, field: str) -> Decimal:
    """Return the number of a quantity. Raises InvalidSpec, which names the field."""
    found = None if isinstance(quantity, bool) else _SHAPE.fullmatch(str(quantity))
    if found is None or found[2] not in _FACTORS:
        raise InvalidSpec(
            f"{field} must be a quantity such as 500m or 2Gi; it is {str(quantity)[:64]!r}"
        )
    return Decimal(found[1]) * _FACTORS[found[2]]


def mebibytes(quantity: object, *, field: str) -> int:
    """Return a quantity of memory in whole MiB. Raises InvalidSpec, which names the field."""
    return int(parse_quantity(quantity, field=field) / 1024**2)


ARCHIVE_MOUNT: Final = "/archive"
WORK_MOUNT: Final = "/var/lib/pelops"  # the only writable directory apart from the archive
_S3_VARIABLES: Final = (
    ("AWS_ACCESS_KEY_ID", "accessKeyId", False),
    ("AWS_SECRET_ACCESS_KEY", "secretAccessKey", False),
    ("AWS_SESSION_TOKEN", "sessionToken", True),
)
S3_KEYS: Final = tuple(key for _, key, is_optional in _S3_VARIABLES if not is_optional)


def build_audit_environment(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess
) -> list[Variable]:
    """Return the variables of an audit job in a fixed order: equal inputs give equal bytes."""
    return [
        *redis_variables(plan.redis, access),
        *_destinations(access),
        *(_plain(name, text) for name, text in _texts(audit, plan).items() if text is not None),
        *_archive_secrets(audit.spec.archive.s3),
        *_memory(audit),
    ]


def archive_address(audit: StreamAudit) -> str:
    """Return the root of the archive as a path for Spark."""
    archive = audit.spec.archive
    if archive.s3 is not None:
        prefix = f"/{archive.s3.prefix.strip('/')}" if archive.s3.prefix else ""
        return f"s3a://{archive.s3.bucket}{prefix}"
    return ARCHIVE_MOUNT if archive.persistent_volume_claim is not None else str(archive.path)


def _texts(audit: StreamAudit, plan: AuditPlan) -> dict[str, str | None]:
    spec = audit.spec
    s3 = spec.archive.s3
    return {
        "PELOPS_AUDIT_NAME": audit.audit_name,
        "PELOPS_AUDIT_GROUPS": _render_groups(plan.groups) if plan.groups else None,
        "PELOPS_AUDIT_STREAM_PATTERN": spec.stream_pattern,
        "PELOPS_AUDIT_WINDOW_SECONDS": str(spec.window_seconds),
        "PELOPS_AUDIT_STUCK_AFTER_MS": _milliseconds(spec.stuck_after_seconds),
        "PELOPS_AUDIT_ARCHIVE": archive_address(audit),
        "PELOPS_AUDIT_PAYLOAD": spec.payload.value.lower(),
        "PELOPS_AUDIT_RETENTION_SECONDS": str(spec.retention_seconds),
        "PELOPS_AUDIT_DEADLINE_SECONDS": str(spec.active_deadline_seconds),
        "PELOPS_AUDIT_AOF_PATH": spec.evidence.aof.path if spec.evidence else None,
        "PELOPS_AUDIT_S3_ENDPOINT": s3.endpoint if s3 else None,
        "PELOPS_AUDIT_S3_REGION": s3.region if s3 else None,
        # The summary contains the findings: a run with findings has not failed.
        "PELOPS_AUDIT_FINDINGS_EXIT": "0",
        "TMPDIR": WORK_MOUNT,
        "SPARK_LOCAL_DIRS": WORK_MOUNT,
    }


def _render_groups(groups: tuple[DeclaredGroup, ...]) -> str:
    documents = [
        {
            "resource": group.resource,
            "stream": group.keys.stream,
            "group": group.keys.group,
            "dead_letter": group.keys.dead_letter,
            "field_prefix": group.field_prefix,
            "stuck_after_ms": group.stuck_after_s * 1000,
        }
        for group in groups
    ]
    return json.dumps(documents, ensure_ascii=False, separators=(",", ":"))


def _milliseconds(seconds: int | None) -> str | None:
    return None if seconds is None else str(seconds * 1000)


def _destinations(access: WorkerAccess) -> list[Variable]:
    """Return the addresses to which the job may connect and send credentials, as the operator."""
    rules = access.rules
    texts = {
        "PELOPS_ALLOWED_NETWORKS": rules.networks_text if rules else None,
        "PELOPS_ALLOWED_HOSTS": rules.hosts_text if rules else None,
        "PELOPS_REDIS_HOSTS": access.credential_hosts,
    }
    return [_plain(name, text) for name, text in texts.items() if text]


def _plain(name: str, text: str) -> Variable:
    return {"name": name, "value": literal(text)}


def _archive_secrets(s3: S3Spec | None) -> list[Variable]:
    if s3 is None or s3.secret_ref is None:
        return []
    secret = s3.secret_ref.name
    return [
        secret_variable(name, secret, key, optional=is_optional)
        for name, key, is_optional in _S3_VARIABLES
    ]


def _memory(audit: StreamAudit) -> list[Variable]:
    if "memory" not in (resources_of(audit).get("limits") or {}):
        return []
    field = {"resource": "limits.memory", "divisor": "1Mi"}
    return [{"name": "PELOPS_AUDIT_MEMORY_MIB", "valueFrom": {"resourceFieldRef": field}}]


def resources_of(audit: StreamAudit) -> dict[str, Any]:
    """Return requests and limits of the container; the default is enough for most streams.

    Raises InvalidSpec if one of them is not an object of quantities; the error of the API server
    would not name the field.
    """
    if audit.spec.resources is None:
        return {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    for part in ("requests", "limits"):
        amounts: Any = audit.spec.resources.get(part) or {}
        if not isinstance(amounts, dict):
            raise InvalidSpec(
                f"in spec.resources, {part} must be an object such as {{memory: 2Gi}}"
            )
        for name, amount in amounts.items():
            parse_quantity(amount, field=f"in spec.resources, {part}.{name}")
    return dict(audit.spec.resources)
