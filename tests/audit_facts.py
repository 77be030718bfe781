"""Facts about audits for tests that need no server: `facts(groups=[a_group(lost=2)])`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pelops.api.audit.stream_audit import StreamAudit
from pelops.domain.records.audit import AuditRecord, AuditSummary
from pelops.kube.container_environment import WorkerAccess
from pelops.policy.audit.audit_facts import AuditFacts, RecordedGroup, Runs, StreamEnds
from pelops.policy.audit.plan import AuditPlan, plan_audit
from tests.audits import CLOSED, a_summary
from tests.builders import resource

ACCESS = WorkerAccess(url="redis://redis:6379")


def audit_manifest(*, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A StreamAudit as the API server shows it; a field that is None is left out."""
    fields = {
        "groups": ["order-processing"],
        "schedule": "*/15 * * * *",
        "archive": {"path": "/archive"},
        **spec,
    }
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamAudit",
        "metadata": {
            "name": "nightly",
            "namespace": "shop",
            "uid": "uid-a",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": "2026-05-04T03:02:01Z",
            **(metadata or {}),
        },
        "spec": {name: value for name, value in fields.items() if value is not None},
    }


def an_audit(**changes: Any) -> StreamAudit:
    """An audit of one group."""
    status = changes.pop("status", None)
    return StreamAudit.parse({**audit_manifest(**changes), "status": status})


def a_plan(audit: StreamAudit | None = None) -> AuditPlan:
    """The plan of an audit of `resource()`."""
    plan = plan_audit(audit or an_audit(), {"order-processing": resource()})
    assert isinstance(plan, AuditPlan)
    return plan


def a_group(summary: AuditSummary | None = None, **changes: Any) -> RecordedGroup:
    """A group that was audited, of whose stream everything is archived and nothing trimmed."""
    known = {"lost", "stuck", "dead_lettered"} & changes.keys()
    summary = summary or a_summary(**{name: changes.pop(name) for name in known})
    acknowledged = changes.pop("acknowledged", 0)
    usual = RecordedGroup(
        stream="orders:events",
        group="order-processing",
        resource="order-processing",
        record=AuditRecord(summary=summary, lost=summary.lost, acknowledged=acknowledged),
        ends=StreamEnds(added=summary.window.to_added, length=summary.window.to_added),
    )
    return replace(usual, **changes)


def some_runs(**changes: Any) -> Runs:
    """A run that began after the window was closed and has ended well."""
    usual = Runs(
        exists=True,
        last_start=CLOSED + timedelta(seconds=1),
        last_success=CLOSED + timedelta(seconds=30),
    )
    return replace(usual, **changes)


def facts(groups: Sequence[RecordedGroup] = (), **changes: Any) -> AuditFacts:
    """Everything is well."""
    usual = AuditFacts(
        audit=an_audit(),
        job="CronJob/nightly-audit",
        groups=tuple(groups),
        runs=some_runs(),
    )
    return replace(usual, **changes)


def after(**duration: float) -> datetime:
    """A moment after the window was closed."""
    return CLOSED + timedelta(**duration)
