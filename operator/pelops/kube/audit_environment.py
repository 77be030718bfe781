"""The environment of an audit's job: all that it is told, since it may ask Kubernetes nothing.

docs/audits.md says what each variable means. No secret ever stands in it in clear.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

from pelops.api.audit.archive import S3Spec
from pelops.api.audit.stream_audit import StreamAudit
from pelops.errors import InvalidSpec
from pelops.kube.worker_environment import (
    Variable,
    WorkerAccess,
    literal,
    redis_variables,
    secret_variable,
)
from pelops.policy.audit.plan import AuditedGroup, AuditPlan

_FACTORS: Final = {
    "": Decimal(1),
    **{unit: Decimal(1000) ** -power for power, unit in enumerate("mun", 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_SHAPE: Final = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{1,9})?(?:[eE][+-]?[0-9]{1,2})?)([A-Za-z]*)")


def parse_quantity(quantity: object, *, field: str) -> Decimal:
    """The number that a quantity stands for. Raises InvalidSpec, which names the field."""
    found = None if isinstance(quantity, bool) else _SHAPE.fullmatch(str(quantity))
    if found is None or found[2] not in _FACTORS:
        raise InvalidSpec(
            f"{field} must be a quantity such as 500m or 2Gi; it is {str(quantity)[:64]!r}"
        )
    return Decimal(found[1]) * _FACTORS[found[2]]


def mebibytes(quantity: object, *, field: str) -> int:
    """A quantity of memory in whole MiB. Raises InvalidSpec, which names the field."""
    return int(parse_quantity(quantity, field=field) / 1024**2)


ARCHIVE_MOUNT: Final = "/archive"
WORK_MOUNT: Final = "/var/lib/pelops"  # the one directory that may be written to beside the archive
_S3_VARIABLES: Final = (
    ("AWS_ACCESS_KEY_ID", "accessKeyId", False),
    ("AWS_SECRET_ACCESS_KEY", "secretAccessKey", False),
    ("AWS_SESSION_TOKEN", "sessionToken", True),
)
S3_KEYS: Final = tuple(key for _, key, is_optional in _S3_VARIABLES if not is_optional)


def build_audit_environment(
    audit: StreamAudit, plan: AuditPlan, access: WorkerAccess
) -> list[Variable]:
    """The variables in a fixed order: the same facts give the same bytes."""
    return [
        *redis_variables(plan.redis, access),
        *(_plain(name, text) for name, text in _texts(audit, plan).items() if text is not None),
        *_archive_secrets(audit.spec.archive.s3),
        *_memory(audit),
    ]


def archive_address(audit: StreamAudit) -> str:
    """Where the archive begins, as Spark names it."""
    archive = audit.spec.archive
    if archive.s3 is not None:
        prefix = f"/{archive.s3.prefix.strip('/')}" if archive.s3.prefix else ""
        return f"s3a://{archive.s3.bucket}{prefix}"
    return ARCHIVE_MOUNT if archive.pvc is not None else str(archive.path)


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
        "PELOPS_AUDIT_RETENTION_DAYS": str(spec.retention_days),
        "PELOPS_AUDIT_DEADLINE_SECONDS": str(spec.deadline_seconds),
        "PELOPS_AUDIT_AOF_PATH": spec.evidence.aof_path if spec.evidence else None,
        "PELOPS_AUDIT_S3_ENDPOINT": s3.endpoint if s3 else None,
        "PELOPS_AUDIT_S3_REGION": s3.region if s3 else None,
        # What was found stands in the summary: a run that finds something has not failed.
        "PELOPS_AUDIT_FINDINGS_EXIT": "0",
        "TMPDIR": WORK_MOUNT,
        "SPARK_LOCAL_DIRS": WORK_MOUNT,
    }


def _render_groups(groups: tuple[AuditedGroup, ...]) -> str:
    reported = [
        {
            "resource": one.resource,
            "stream": one.keys.stream,
            "group": one.keys.group,
            "dead_letter": one.keys.dead_letter,
            "field_prefix": one.field_prefix,
            "stuck_after_ms": one.stuck_after_s * 1000,
        }
        for one in groups
    ]
    return json.dumps(reported, ensure_ascii=False, separators=(",", ":"))


def _milliseconds(seconds: int | None) -> str | None:
    return None if seconds is None else str(seconds * 1000)


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
    """Requests and limits of the container: what was asked for, or enough for most streams.

    Raises InvalidSpec: one of them is no object of quantities. The API server does not say where.
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
