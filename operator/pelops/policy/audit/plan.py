"""Which groups one run of an audit covers, on which Redis: from the resource and its groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pelops.api.audit.stream_audit import StreamAudit
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.redis import RedisSpec, SecretRef
from pelops.domain.condition import Finding
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.policy.status.reasons import Reason

STUCK_AFTER_S: Final = 300  # without a StreamConsumerGroup, which would set it
_NAMES_REPORTED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGroup:
    """One group that is declared in the audit's namespace."""

    resource: str  # name of its StreamConsumerGroup
    keys: GroupKeys
    stuck_after_s: int
    field_prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """The inputs of a run."""

    redis: RedisSpec
    job_secret: SecretRef | None  # None: the one of `redis`, if any
    groups: tuple[DeclaredGroup, ...]  # sorted by name; empty with `spec.redis`
    problem: Finding | None = None  # which part of the spec a run cannot meet


def plan_audit(
    audit: StreamAudit, declared: Mapping[str, StreamConsumerGroup]
) -> AuditPlan | Finding:
    """Return the plan, or why there can be no run. `declared` has the namespace's groups by name.

    Missing groups do not prevent the audit of the others. Raises InvalidSpec if no keys can be
    derived from the names of a group.
    """
    spec = audit.spec
    if spec.redis is not None:
        return AuditPlan(redis=spec.redis, job_secret=spec.job_secret_ref, groups=())
    wanted = sorted(spec.groups or ())
    groups = [declared[name] for name in wanted if name in declared]
    missing = [name for name in wanted if name not in declared]
    if not groups:
        return _missing(missing)
    strangers = [one.metadata.name for one in groups if one.spec.redis != groups[0].spec.redis]
    if strangers:
        return _scattered(groups[0].metadata.name, strangers)
    return AuditPlan(
        redis=groups[0].spec.redis,
        job_secret=spec.job_secret_ref,
        groups=tuple(_audited(one, spec.stuck_after_seconds) for one in groups),
        problem=_missing(missing) if missing else None,
    )


def _audited(group: StreamConsumerGroup, stuck_after_s: int | None) -> DeclaredGroup:
    spec = group.spec
    return DeclaredGroup(
        resource=group.metadata.name,
        keys=derive_keys(spec.stream, group.group_name, dead_letter=spec.dead_letter.stream),
        stuck_after_s=stuck_after_s or spec.recovery.processing_timeout_seconds,
        field_prefix=spec.recovery.tuning.field_prefix,
    )


def _missing(names: list[str]) -> Finding:
    return Finding(
        reason=Reason.GROUP_MISSING,
        message=(
            f"spec.groups lists StreamConsumerGroups that do not exist in this namespace: "
            f"{_list(names)}. Create them, or correct spec.groups"
        ),
    )


def _scattered(first: str, others: list[str]) -> Finding:
    return Finding(
        reason=Reason.INVALID_SPEC,
        message=(
            f"The groups of one audit must have the same spec.redis; {_list(others)} differs from "
            f"{first}. Create one StreamAudit for each Redis"
        ),
        is_terminal=True,
    )


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_REPORTED])
    more = len(names) - _NAMES_REPORTED
    return f"{shown} and {more} more" if more > 0 else shown
