"""The actions that are missing of an audit: its CronJob, or the objects of a Spark operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from pelops.api.audit.stream_audit import StreamAudit
from pelops.controller.audit.audit_observer import (
    AuditPart,
    ObservedAudit,
    is_owned,
    name_taken,
    spark_kind,
)
from pelops.controller.runtime.cache import (
    Cache,
)
from pelops.controller.runtime.kind import (
    Memory,
    PlannedAction,
)
from pelops.domain.records.packed_parts import unpack
from pelops.errors import Conflict, InvalidSpec, NotFound
from pelops.kube.audit_cron_job import (
    KEPT_RUNS,
    STARTING_DEADLINE_S,
    audit_job_name,
    build_cron_job,
)
from pelops.kube.audit_spark import (
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    build_application,
    build_scheduled_application,
    has_ended,
    made_at,
)
from pelops.kube.client import (
    CRON_JOB,
    STREAM_AUDIT,
    Address,
    Kind,
    KubeApi,
    Manifest,
)
from pelops.kube.pod_security import hold_template
from pelops.kube.worker_deployment import fingerprint_of, is_applied
from pelops.policy.audit.plan import AuditPlan
from pelops.policy.audit.schedule import find_due, parse_schedule
from pelops.policy.status.alarms import ACKNOWLEDGE
from pelops.policy.status.reasons import ConditionType, Reason
from pelops.redis_streams.audit.records import acknowledge_audit

MANAGER: Final = "pelops-acknowledge"
# A job without what the Secret holds could do nothing, and none goes where the operator may not.
_JOBLESS: Final = frozenset(
    {Reason.SECRET_MISSING, Reason.CREDENTIALS_NOT_ALLOWED, Reason.ADDRESS_NOT_ALLOWED}
)
_LATE: Final = timedelta(seconds=STARTING_DEADLINE_S)


@dataclass(slots=True)
class AuditMemory(Memory):
    """What one replica keeps about an audit between passes."""

    # The uid, generation, and content of an apply that changed nothing: it is not repeated.
    unchanged_apply: tuple[str, int, str] | None = None


class AuditActions:
    """Finds the next action for an observed audit."""

    def __init__(self, api: KubeApi, cache: Cache, *, image: str) -> None:
        """`image` is the default image of audits."""
        self._spark = SparkActions(api, image=image)
        self._cleared: set[str] = set()  # uids of audits whose former Spark object is deleted
        self._api = api
        self._cache = cache
        self._image = image

    def next_action(self, observed: ObservedAudit, memory: AuditMemory) -> PlannedAction | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        return self._job(observed, memory) or self._acknowledge(observed)

    def _job(self, observed: ObservedAudit, memory: AuditMemory) -> PlannedAction | None:
        redis = observed.facts.redis_problem
        if observed.plan is None or observed.facts.job_problem is not None:
            return None
        if redis is not None and redis.reason in _JOBLESS:
            return None
        if spark_kind(observed.facts.audit) is not None:
            self._cleared.discard(observed.facts.audit.metadata.uid)
            return self._remove_cron_job(observed) or self._spark.next_action(observed, memory)
        return self._remove_spark(observed) or self._apply_cron_job(observed, observed.plan, memory)

    def _remove_spark(self, observed: ObservedAudit) -> PlannedAction | None:
        """The ScheduledSparkApplication that the status reports, once it is asked for no more."""
        audit = observed.facts.audit
        uid, job = audit.metadata.uid, audit.status.job_ref if audit.status else None
        is_there = job is not None and job.kind == SCHEDULED_SPARK_APPLICATION.kind
        if job is None or not is_there or uid in self._cleared:
            return None

        async def write() -> None:
            await self._spark.remove_scheduled(audit)
            self._cleared.add(uid)

        return PlannedAction(part=AuditPart.JOB, what=f"delete {job.kind} {job.name}", do=write)

    def _remove_cron_job(self, observed: ObservedAudit) -> PlannedAction | None:
        """The CronJob of a backend that is asked for no more."""
        live, uid = observed.job, observed.facts.audit.metadata.uid
        if live is None or not is_owned(live, uid):
            return None
        metadata = live["metadata"]
        address = Address(kind=CRON_JOB, namespace=metadata["namespace"], name=metadata["name"])

        async def write() -> None:
            await self._api.delete(address, uid=metadata["uid"])
            name = (metadata["namespace"], metadata["name"])
            self._cache.remove_deleted(CRON_JOB, name, metadata["uid"], writer=STREAM_AUDIT)

        what = f"delete CronJob {metadata['name']}, because a Spark operator runs the audit"
        return PlannedAction(part=AuditPart.JOB, what=what, do=write)

    def _apply_cron_job(
        self, observed: ObservedAudit, plan: AuditPlan, memory: AuditMemory
    ) -> PlannedAction | None:
        audit, live = observed.facts.audit, observed.job
        body = build_cron_job(audit, plan, observed.access, image=self._image)
        hold_template(body, observed.level, "spec", "jobTemplate", "spec", "template")
        fingerprint = fingerprint_of(body)
        if live is not None and (
            is_applied(body, unpack(live))
            or memory.unchanged_apply == _apply_key(live, fingerprint)
        ):
            return None
        name = audit_job_name(audit.metadata.name)
        address = Address(kind=CRON_JOB, namespace=audit.metadata.namespace, name=name)

        async def write() -> None:
            answer = await self._api.apply(address, _bound(body, live))
            if live is not None and _version(answer) == _version(live):
                memory.unchanged_apply = _apply_key(answer, fingerprint)
            self._cache.put_answer(CRON_JOB, answer, writer=STREAM_AUDIT)

        what = f"update CronJob {name}" if live else f"create CronJob {name}"
        return PlannedAction(
            part=AuditPart.JOB,
            what=what,
            do=write,
            secrets=(*plan.redis.secret_refs, plan.job_secret),
        )

    def _acknowledge(self, observed: ObservedAudit) -> PlannedAction | None:
        metadata, server = observed.facts.audit.metadata, observed.server
        asked = metadata.annotations.get(ACKNOWLEDGE)
        if asked is None or server is None:
            return None
        is_meant = ConditionType.LOSS_DETECTED in {word.strip() for word in asked.split(",")}
        groups = zip(observed.keys, observed.facts.groups, strict=True)
        lost = [
            (keys, group.record.lost)
            for keys, group in groups
            if is_meant and group.record is not None and group.record.unacknowledged
        ]
        address = Address(kind=STREAM_AUDIT, namespace=metadata.namespace, name=metadata.name)

        async def write() -> None:
            for keys, count in lost:
                await acknowledge_audit(server, keys, observed.facts.audit.audit_name, count)
            # The wish goes with what it asked for, or the next loss would be cleared unseen.
            body: Manifest = {"metadata": {"uid": metadata.uid, "annotations": {ACKNOWLEDGE: None}}}
            answer = await self._api.merge(address, body, manager=MANAGER)
            self._cache.put_answer(STREAM_AUDIT, answer, writer=STREAM_AUDIT)

        return PlannedAction(part=AuditPart.RESOURCE, what=f"acknowledge {asked}", do=write)


def _apply_key(live: Manifest, fingerprint: str) -> tuple[str, int, str]:
    metadata = live["metadata"]
    return metadata["uid"], metadata.get("generation", 0), fingerprint


def _bound(body: Manifest, live: Manifest | None) -> Manifest:
    """The body with the uid: another object of the same name refuses it (409)."""
    if live is None:
        return body
    return {**body, "metadata": {**body["metadata"], "uid": live["metadata"]["uid"]}}


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])


class SparkActions:
    """Finds the next action for an audit that a Spark operator runs."""

    def __init__(self, api: KubeApi, *, image: str) -> None:
        self._api = api
        self._image = image

    def next_action(self, observed: ObservedAudit, memory: AuditMemory) -> PlannedAction | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        if spark_kind(observed.facts.audit) is SPARK_APPLICATION:
            return self._start(observed) or self._remove_old(observed)
        return self._apply(observed, memory)

    def _apply(self, observed: ObservedAudit, memory: AuditMemory) -> PlannedAction | None:
        plan, audit = observed.plan, observed.facts.audit
        if plan is None:
            return None
        parse_schedule(
            audit.spec.schedule, audit.spec.time_zone
        )  # the Spark operator would stop at an invalid one
        body = build_scheduled_application(audit, plan, observed.access, image=self._image)
        for role in ("driver", "executor"):
            if "template" in body["spec"]["template"][role]:
                path = ("spec", "template", role, "template")
                hold_template(body, observed.level, *path)
        live = observed.spark[0] if observed.spark else None
        unchanged_apply = (audit.metadata.uid, audit.metadata.generation, fingerprint_of(body))
        if live is not None and (
            is_applied(body, live) or memory.unchanged_apply == unchanged_apply
        ):
            return None
        address = _address(SCHEDULED_SPARK_APPLICATION, body)

        async def write() -> None:
            answer = await self._api.apply(address, _bound(body, live))
            if live is not None and _version(answer) == _version(live):
                memory.unchanged_apply = unchanged_apply

        what = f"apply ScheduledSparkApplication {body['metadata']['name']}"
        return PlannedAction(
            part=AuditPart.JOB,
            what=what,
            do=write,
            secrets=(*plan.redis.secret_refs, plan.job_secret),
        )

    def _start(self, observed: ObservedAudit) -> PlannedAction | None:
        """The run that is due, unless one is active."""
        plan, audit = observed.plan, observed.facts.audit
        if plan is None or audit.spec.suspend or observed.facts.runs.is_active:
            return None
        now = datetime.now(UTC)
        since = [now - _LATE, *(made_at(one) for one in observed.spark)]
        if audit.metadata.creation_timestamp is not None:
            since.append(audit.metadata.creation_timestamp)
        schedule = parse_schedule(audit.spec.schedule, audit.spec.time_zone)
        due = find_due(schedule, after=max(since), now=now)
        if due is None:
            return None
        body = build_application(audit, plan, observed.access, image=self._image, due=due)
        hold_template(body, observed.level, "spec", "driverSpec", "podTemplateSpec")

        async def write() -> None:
            try:
                await self._api.create(SPARK_APPLICATION, audit.metadata.namespace, body)
            except Conflict:
                await self._check_owner(audit, body["metadata"]["name"])

        what = f"create SparkApplication {body['metadata']['name']}"
        return PlannedAction(
            part=AuditPart.JOB,
            what=what,
            do=write,
            secrets=(*plan.redis.secret_refs, plan.job_secret),
        )

    def _remove_old(self, observed: ObservedAudit) -> PlannedAction | None:
        over = sorted((one for one in observed.spark if has_ended(one)), key=made_at)
        surplus = over[: max(0, len(over) - KEPT_RUNS)]
        if not surplus:
            return None
        return PlannedAction(
            part=AuditPart.JOB,
            what="delete old SparkApplications",
            do=partial(self._delete, SPARK_APPLICATION, surplus),
        )

    async def remove_scheduled(self, audit: StreamAudit) -> None:
        """Remove the ScheduledSparkApplication of an audit that something else runs now.

        One of the same name that the audit does not own stays.
        """
        kind, namespace = SCHEDULED_SPARK_APPLICATION, audit.metadata.namespace
        name = audit_job_name(audit.metadata.name)
        try:
            manifest = await self._api.find(Address(kind=kind, namespace=namespace, name=name))
        except NotFound:
            return  # the Spark operator was removed, with its kinds
        if manifest is not None and is_owned(manifest, audit.metadata.uid):
            await self._delete(kind, [manifest])

    async def _check_owner(self, audit: StreamAudit, name: str) -> None:
        """Check the owner of an existing object. Raises InvalidSpec if it is not this audit."""
        kind, namespace = SPARK_APPLICATION, audit.metadata.namespace
        manifest = await self._api.find(Address(kind=kind, namespace=namespace, name=name))
        if manifest is not None and not is_owned(manifest, audit.metadata.uid):
            raise InvalidSpec(name_taken(SPARK_APPLICATION, name).message)

    async def _delete(self, kind: Kind, objects: Sequence[Manifest]) -> None:
        for one in objects:
            await self._api.delete(_address(kind, one), uid=one["metadata"]["uid"])


def _address(kind: Kind, manifest: Manifest) -> Address:
    metadata = manifest["metadata"]
    return Address(kind=kind, namespace=metadata["namespace"], name=metadata["name"])


# What an audit records changes by the minute: a read each second would be a waste.
