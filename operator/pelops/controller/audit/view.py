"""What one turn of an audit has seen."""

from __future__ import annotations

from dataclasses import dataclass

from pelops.domain.naming import GroupKeys
from pelops.kube.client import Manifest
from pelops.kube.worker_environment import WorkerAccess
from pelops.policy.audit.facts import AuditFacts
from pelops.policy.audit.plan import AuditPlan
from pelops.redis_core.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """The facts of one turn, and the ways to act on them."""

    facts: AuditFacts
    plan: AuditPlan | None
    access: WorkerAccess
    job: Manifest | None  # the CronJob of the audit's name, whoever owns it
    spark: tuple[Manifest, ...] = ()  # objects of a Spark operator that the audit owns
    server: Server | None = None
    keys: tuple[GroupKeys, ...] = ()
