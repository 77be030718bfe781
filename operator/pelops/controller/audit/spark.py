"""Audits that a Spark operator runs: looking at its objects, and the next write to them.

Its kinds are not watched: most clusters have none of them, and those that have allow them to the
operator by an overlay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from pelops.api.audit.job import BackendType, SparkOperator
from pelops.api.audit.stream_audit import StreamAudit
from pelops.controller.audit.view import AuditView
from pelops.controller.group.memory import Memory
from pelops.controller.runtime.passes import Part, Step
from pelops.domain.condition import Finding
from pelops.errors import Conflict, Forbidden, NotFound
from pelops.kube.audit_cron_job import AUDIT_LABEL, KEPT_RUNS, STARTING_DEADLINE_S, audit_job_name
from pelops.kube.audit_spark import (
    KUBEFLOW_APPLICATION,
    SCHEDULED_LABEL,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    application_runs,
    build_application,
    build_scheduled_application,
    has_ended,
    made_at,
    scheduled_runs,
)
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import Kind
from pelops.kube.worker_deployment import fingerprint_of, is_applied
from pelops.policy.audit.facts import Runs
from pelops.policy.audit.schedule import find_due, parse_schedule
from pelops.policy.status.reasons import Reason

_LATE: Final = timedelta(seconds=STARTING_DEADLINE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkLook:
    """What there is of a Spark operator's objects."""

    live: tuple[Manifest, ...] = ()
    runs: Runs = field(default_factory=Runs)
    problem: Finding | None = None


def spark_kind(audit: StreamAudit) -> Kind | None:
    """The kind that runs an audit, if a Spark operator does."""
    backend = audit.spec.backend
    if backend.type is not BackendType.SPARK_APPLICATION:
        return None
    is_kubeflow = backend.spark_operator is not SparkOperator.APACHE
    return SCHEDULED_SPARK_APPLICATION if is_kubeflow else SPARK_APPLICATION


class SparkJobs:
    """The door to the kinds of Spark operators."""

    def __init__(self, api: KubeApi, *, image: str) -> None:
        self._api = api
        self._image = image

    async def look(self, audit: StreamAudit, kind: Kind) -> SparkLook:
        """The objects of an audit now. Raises KubernetesUnavailable."""
        metadata = audit.metadata
        selector = f"{AUDIT_LABEL}={metadata.name}"
        try:
            live = await self._api.list_all(kind, metadata.namespace, selector=selector)
        except (NotFound, Forbidden) as error:
            return SparkLook(problem=_missing(kind, error))
        ours = tuple(one for one in live if _is_ours(one, audit))
        if kind is SPARK_APPLICATION:
            return SparkLook(live=ours, runs=application_runs(ours))
        return await self._look_at_scheduled(audit, ours)

    async def _look_at_scheduled(self, audit: StreamAudit, live: tuple[Manifest, ...]) -> SparkLook:
        metadata, kind = audit.metadata, KUBEFLOW_APPLICATION
        selector = f"{SCHEDULED_LABEL}={audit_job_name(metadata.name)}"
        try:
            runs = await self._api.list_all(kind, metadata.namespace, selector=selector)
        except (NotFound, Forbidden) as error:
            return SparkLook(live=live, problem=_missing(kind, error))
        return SparkLook(live=live, runs=scheduled_runs(live[0] if live else None, runs))

    def next_step(self, view: AuditView, memory: Memory) -> Step | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        if spark_kind(view.facts.audit) is SPARK_APPLICATION:
            return self._start(view) or self._remove_old(view)
        return self._apply(view, memory)

    def _apply(self, view: AuditView, memory: Memory) -> Step | None:
        plan, audit = view.plan, view.facts.audit
        if plan is None:
            return None
        parse_schedule(audit.spec.schedule, audit.spec.time_zone)  # theirs would stop for good
        body = build_scheduled_application(audit, plan, view.access, image=self._image)
        live = view.spark[0] if view.spark else None
        settled = (audit.metadata.uid, audit.metadata.generation, fingerprint_of(body))
        if live is not None and (is_applied(body, live) or memory.settled == settled):
            return None
        address = _address(SCHEDULED_SPARK_APPLICATION, body)

        async def write() -> None:
            answer = await self._api.apply(address, body)
            if live is not None and _version(answer) == _version(live):
                memory.settled = settled

        what = f"applying ScheduledSparkApplication {body['metadata']['name']}"
        return Step(part=Part.WORKLOAD, what=what, do=write, reads_secrets=True)

    def _start(self, view: AuditView) -> Step | None:
        """The run that is due, unless one goes on."""
        plan, audit = view.plan, view.facts.audit
        if plan is None or audit.spec.suspend or view.facts.runs.is_active:
            return None
        now = datetime.now(UTC)
        since = [now - _LATE, *(made_at(one) for one in view.spark)]
        if audit.metadata.creation_timestamp is not None:
            since.append(audit.metadata.creation_timestamp)
        schedule = parse_schedule(audit.spec.schedule, audit.spec.time_zone)
        due = find_due(schedule, after=max(since), now=now)
        if due is None:
            return None
        body = build_application(audit, plan, view.access, image=self._image, due=due)

        async def write() -> None:
            try:
                await self._api.create(SPARK_APPLICATION, audit.metadata.namespace, body)
            except Conflict:
                return  # another replica was faster

        what = f"creating SparkApplication {body['metadata']['name']}"
        return Step(part=Part.WORKLOAD, what=what, do=write, reads_secrets=True)

    def _remove_old(self, view: AuditView) -> Step | None:
        over = sorted((one for one in view.spark if has_ended(one)), key=made_at)
        surplus = over[: max(0, len(over) - KEPT_RUNS)]
        if not surplus:
            return None
        return Step(
            part=Part.WORKLOAD,
            what="removing old SparkApplications",
            do=partial(self._delete, SPARK_APPLICATION, surplus),
        )

    async def remove_scheduled(self, audit: StreamAudit) -> None:
        """Remove the ScheduledSparkApplication of an audit that something else runs now."""
        name = audit_job_name(audit.metadata.name)
        kind, namespace = SCHEDULED_SPARK_APPLICATION, audit.metadata.namespace
        await self._api.delete(Address(kind=kind, namespace=namespace, name=name))

    async def _delete(self, kind: Kind, objects: Sequence[Manifest]) -> None:
        for one in objects:
            await self._api.delete(_address(kind, one), uid=one["metadata"]["uid"])


def _is_ours(manifest: Manifest, audit: StreamAudit) -> bool:
    owners = manifest["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == audit.metadata.uid for owner in owners)


def _missing(kind: Kind, error: Exception) -> Finding:
    return Finding(
        reason=Reason.BACKEND_MISSING,
        message=(
            f"{kind.kind} of {kind.group} cannot be used: {error}. Install the Spark operator and "
            "manifests/overlays/spark-operators, or set spec.backend.type to CronJob"
        ),
        is_terminal=True,
    )


def _address(kind: Kind, manifest: Manifest) -> Address:
    metadata = manifest["metadata"]
    return Address(kind=kind, namespace=metadata["namespace"], name=metadata["name"])


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])


def job_label(audit: StreamAudit) -> str:
    """KIND/NAME of what runs an audit."""
    kind = spark_kind(audit)
    name = audit_job_name(audit.metadata.name)
    if kind is SPARK_APPLICATION:
        return f"{kind.kind}/{name}-*"
    return f"{kind.kind if kind else 'CronJob'}/{name}"
