"""One observation of everything that concerns an audit: its groups, its job, what it recorded.

The job is a CronJob, which the cache knows, or an object of a Spark operator. The kinds of Spark
operators are not watched: most clusters have none of them, and those that have allow them to the
operator by an overlay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from pelops.api.audit.stream_audit import BackendType, SparkOperator, StreamAudit
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.connections import Connections, explain_unreachable
from pelops.domain.condition import Finding
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.records.audit import AuditRecord
from pelops.domain.stream_observation import StreamObservation
from pelops.errors import (
    Forbidden,
    InvalidSpec,
    KubernetesUnavailable,
    NotFound,
    PelopsError,
    WrongType,
)
from pelops.kube.audit_cron_job import AUDIT_LABEL, audit_job_name
from pelops.kube.audit_spark import (
    KUBEFLOW_APPLICATION,
    SCHEDULED_LABEL,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    application_runs,
    scheduled_runs,
)
from pelops.kube.client import (
    CRON_JOB,
    STREAM_AUDIT,
    STREAM_CONSUMER_GROUP,
    Address,
    Kind,
    KubeApi,
    Manifest,
)
from pelops.kube.container_environment import S3_KEYS, WorkerAccess
from pelops.kube.pod_security import PodSecurity
from pelops.policy.audit.audit_conditions import find_failed_start
from pelops.policy.audit.audit_facts import AuditFacts, RecordedGroup, Runs, StreamEnds
from pelops.policy.audit.plan import AuditPlan, plan_audit
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import find_first_after, read_audits, read_groups
from pelops.redis_streams.group.group_observation import observe_groups


class AuditPart(StrEnum):
    """What an action belongs to: its failure is reported as a problem of that."""

    RESOURCE = "resource"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAudit:
    """The facts of one pass, and the ways to act on them."""

    facts: AuditFacts
    plan: AuditPlan | None
    access: WorkerAccess
    job: Manifest | None  # the CronJob of the audit's name, of any owner
    spark: tuple[Manifest, ...] = ()  # objects of a Spark operator that the audit owns
    server: Server | None = None
    keys: tuple[GroupKeys, ...] = ()
    level: PodSecurity = PodSecurity.RESTRICTED  # of the job's pods

    def with_problem(self, part: AuditPart, error: PelopsError) -> ObservedAudit:
        """The same, with the failure of an action on this part."""
        problem = diagnose(error)
        facts = (
            replace(self.facts, job_problem=problem)
            if part is AuditPart.JOB
            else replace(self.facts, redis_problem=problem)
        )
        return replace(self, facts=facts)


@dataclass(frozen=True, slots=True)
class _RedisObservation:
    """The groups of an audit in Redis."""

    server: Server | None = None
    groups: tuple[RecordedGroup, ...] = ()
    keys: tuple[GroupKeys, ...] = ()
    problem: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkObservation:
    """The objects of a Spark operator for one audit."""

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


class SparkObserver:
    """Observes the objects of Spark operators."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def observe(self, audit: StreamAudit, kind: Kind) -> SparkObservation:
        """The objects of an audit now. Raises KubernetesUnavailable."""
        metadata = audit.metadata
        is_apache = kind is SPARK_APPLICATION
        name = audit_job_name(metadata.name)
        try:
            if is_apache:
                selector = f"{AUDIT_LABEL}={metadata.name}"
                live = await self._api.list_all(kind, metadata.namespace, selector=selector)
            else:
                address = Address(kind=kind, namespace=metadata.namespace, name=name)
                found = await self._api.find(address)
                live = [] if found is None else [found]
        except (NotFound, Forbidden) as error:
            return SparkObservation(problem=backend_missing(kind, error))
        ours = tuple(one for one in live if is_owned(one, metadata.uid))
        if is_apache:
            return SparkObservation(live=ours, runs=application_runs(ours))
        if len(ours) < len(live):
            return SparkObservation(problem=name_taken(kind, name))
        return await self._observe_scheduled(audit, ours)

    async def _observe_scheduled(
        self, audit: StreamAudit, live: tuple[Manifest, ...]
    ) -> SparkObservation:
        metadata, kind = audit.metadata, KUBEFLOW_APPLICATION
        selector = f"{SCHEDULED_LABEL}={audit_job_name(metadata.name)}"
        try:
            runs = await self._api.list_all(kind, metadata.namespace, selector=selector)
        except (NotFound, Forbidden) as error:
            return SparkObservation(live=live, problem=backend_missing(kind, error))
        return SparkObservation(live=live, runs=scheduled_runs(live[0] if live else None, runs))


class AuditObserver:
    """Observes audits."""

    def __init__(self, api: KubeApi, cache: Cache, connections: Connections) -> None:
        self._spark = SparkObserver(api)
        self._groups = cache.objects(STREAM_CONSUMER_GROUP)
        self._jobs = cache.objects(CRON_JOB)
        self._connections = connections

    async def observe(self, audit: StreamAudit) -> ObservedAudit:
        """Everything that is known now. Raises KubernetesUnavailable."""
        metadata = audit.metadata
        job = self._jobs.get((metadata.namespace, audit_job_name(metadata.name)))
        kind = spark_kind(audit)
        spark = SparkObservation() if kind is None else await self._spark.observe(audit, kind)
        plan, problem = self._plan(audit)
        observed = _RedisObservation() if plan is None else await self._observe_redis(audit, plan)
        access = WorkerAccess()
        if plan is not None:
            redis, namespace = plan.redis, metadata.namespace
            access = await self._connections.access_of(redis, plan.job_secret, namespace)
        facts = AuditFacts(
            audit=audit,
            job=job_label(audit),
            groups=observed.groups,
            runs=_remember(audit, _runs(job) if kind is None else spark.runs),
            plan_problem=problem or (plan.problem if plan else None),
            job_problem=(_name_taken(audit, job) if kind is None else spark.problem)
            or await self._secret_problem(audit, plan),
            redis_problem=observed.problem,
        )
        return ObservedAudit(
            facts=facts,
            plan=plan,
            access=access,
            job=job,
            spark=spark.live,
            server=observed.server,
            keys=observed.keys,
        )

    async def _secret_problem(self, audit: StreamAudit, plan: AuditPlan | None) -> Finding | None:
        """A Secret without which the job's pod would not start, could not write, or may not."""
        if plan is None:
            return None
        namespace, s3 = audit.metadata.namespace, audit.spec.archive.s3
        for path, secret, needed in (
            ("spec.jobSecretRef", plan.job_secret, ()),
            ("spec.archive.s3.secretRef", s3.secret_ref if s3 else None, S3_KEYS),
        ):
            if secret is None:
                continue
            keys = (await self._connections.access_of(plan.redis, secret, namespace)).secret_keys
            if not keys or not keys.issuperset(needed):
                return secret_missing(path, f"{namespace}/{secret.name}", needed)
        return await self._refused_secret(plan, namespace)

    async def _refused_secret(self, plan: AuditPlan, namespace: str) -> Finding | None:
        """A Secret of the job whose credentials may not go to the Redis that is audited."""
        if plan.job_secret is None:
            return None
        try:
            await self._connections.check_job_secret(plan.redis, plan.job_secret, namespace)
        except (Forbidden, NotFound):
            return None  # that is reported of the Secret itself
        except KubernetesUnavailable:
            raise
        except PelopsError as error:
            return diagnose(error)
        return None

    def _plan(self, audit: StreamAudit) -> tuple[AuditPlan | None, Finding | None]:
        try:
            plan = plan_audit(audit, self._declared(audit))
        except InvalidSpec as error:
            return None, diagnose(error)
        return (None, plan) if isinstance(plan, Finding) else (plan, None)

    def _declared(self, audit: StreamAudit) -> Mapping[str, StreamConsumerGroup]:
        namespace, resources = audit.metadata.namespace, {}
        for group in audit.spec.groups or ():
            manifest = self._groups.get((namespace, group))
            if manifest is not None:
                resources[group] = StreamConsumerGroup.parse(manifest)
        return resources

    async def _observe_redis(self, audit: StreamAudit, plan: AuditPlan) -> _RedisObservation:
        try:
            server = await self._connections.reach(plan.redis, audit.metadata.namespace)
            named = await self._name_groups(audit, plan, server)
            return await _observe_groups(server, audit.audit_name, named)
        except KubernetesUnavailable:
            raise
        except PelopsError as error:
            return _RedisObservation(
                problem=explain_unreachable(error, plan.redis, audit.metadata.namespace)
            )

    async def _name_groups(
        self, audit: StreamAudit, plan: AuditPlan, server: Server
    ) -> dict[GroupKeys, str | None]:
        """The groups that are audited, and the resources that declare them."""
        if audit.spec.stream_pattern is None:
            return {one.keys: one.resource for one in plan.groups}
        declared = self._declared_keys(audit)
        pairs = await read_groups(server, audit.audit_name)
        found = (derive_keys(stream, group) for stream, group in pairs)
        return {keys: declared.get((keys.stream, keys.group)) for keys in found}

    def _declared_keys(self, audit: StreamAudit) -> dict[tuple[str, str], str]:
        """The names of the namespace's resources in the same Redis, by stream and group."""
        redis = audit.spec.redis.to_wire() if audit.spec.redis else None
        return {
            (str(spec.get("stream")), str(spec.get("group") or name)): name
            for (namespace, name), manifest in self._groups.items()
            if namespace == audit.metadata.namespace
            and (spec := _spec_of(manifest)).get("redis") == redis
        }


async def _observe_groups(
    server: Server, name: str, named: Mapping[GroupKeys, str | None]
) -> _RedisObservation:
    records, streams = await asyncio.gather(
        read_audits(server, named, name), observe_groups(server, named)
    )
    ends = await asyncio.gather(*(_ends(server, k, records[k], streams[k]) for k in named))
    groups = [
        _group_audit(keys, resource, records[keys], end, streams[keys])
        for (keys, resource), end in zip(named.items(), ends, strict=True)
    ]
    return _RedisObservation(server, tuple(groups), tuple(named))


def _group_audit(
    keys: GroupKeys,
    resource: str | None,
    record: AuditRecord | PelopsError | None,
    ends: StreamEnds | None,
    stream: StreamObservation | PelopsError,
) -> RecordedGroup:
    return RecordedGroup(
        stream=keys.stream,
        group=keys.group,
        resource=resource,
        record=None if isinstance(record, PelopsError) else record,
        ends=ends,
        problem=diagnose(record) if isinstance(record, PelopsError) else None,
        stream_problem=diagnose(stream) if isinstance(stream, WrongType) else None,
    )


async def _ends(
    server: Server,
    keys: GroupKeys,
    record: AuditRecord | PelopsError | None,
    stream: StreamObservation | PelopsError,
) -> StreamEnds | None:
    if isinstance(stream, PelopsError) or stream.entries_added is None:
        return None
    first = None
    if isinstance(record, AuditRecord) and stream.entries_added > record.summary.window.to_added:
        first = await find_first_after(server, keys.stream, record.summary.window.to_id)
    return StreamEnds(added=stream.entries_added, length=stream.length, first_unaudited=first)


def _runs(job: Manifest | None) -> Runs:
    if job is None:
        return Runs()
    status = job.get("status") or {}
    return Runs(
        exists=True,
        last_start=_time(status.get("lastScheduleTime")),
        last_success=_time(status.get("lastSuccessfulTime")),
        is_active=bool(status.get("active")),
    )


def _remember(audit: StreamAudit, runs: Runs) -> Runs:
    reported = audit.status.run if audit.status else None
    return replace(runs, failed_start=find_failed_start(runs, reported))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def secret_missing(field: str, secret: str, needed: tuple[str, ...]) -> Finding:
    """A Secret that the job of an audit needs is missing, or has not all its keys."""
    keys = " and ".join(needed or ("username", "password"))
    return Finding(
        reason=Reason.SECRET_MISSING,
        message=(
            f"Secret {secret} of {field} does not exist, cannot be read, or does not have all "
            "keys that "
            f"the job needs: {keys}. Create the Secret, or add the keys; Pelops retries "
            "automatically"
        ),
    )


def _name_taken(audit: StreamAudit, job: Manifest | None) -> Finding | None:
    owners = (job or {}).get("metadata", {}).get("ownerReferences") or []
    if job is None or any(one.get("uid") == audit.metadata.uid for one in owners):
        return None
    return name_taken(CRON_JOB, audit_job_name(audit.metadata.name))


def name_taken(kind: Kind, name: str) -> Finding:
    """The problem if an object of another owner has the name of the audit's object."""
    return Finding(
        reason=Reason.NAME_TAKEN,
        message=(
            f"{kind.kind} {name} exists, but was not created for this StreamAudit: delete it, or "
            "rename the StreamAudit"
        ),
        is_terminal=True,
    )


def _spec_of(manifest: Manifest) -> dict[str, Any]:
    return dict(manifest.get("spec") or {})


def job_label(audit: StreamAudit) -> str:
    """KIND/NAME of what runs an audit."""
    kind = spark_kind(audit)
    name = audit_job_name(audit.metadata.name)
    if kind is SPARK_APPLICATION:
        return f"{kind.kind}/{name}-*"
    return f"{kind.kind if kind else 'CronJob'}/{name}"


def job_reference(audit: StreamAudit) -> dict[str, str]:
    """The object that runs an audit, without a name where each run has an object of its own."""
    kind = spark_kind(audit) or CRON_JOB
    reference = {"apiVersion": kind.api_version, "kind": kind.kind}
    if kind is SPARK_APPLICATION:
        return reference
    return {**reference, "name": audit_job_name(audit.metadata.name)}


def backend_missing(kind: Kind, error: Exception) -> Finding:
    """The kind of a Spark operator is not there, or may not be used."""
    return Finding(
        reason=Reason.BACKEND_MISSING,
        message=(
            f"{kind.kind} of {kind.group} cannot be used: {error}. Install the Spark operator and "
            "manifests/overlays/spark-operators, or set spec.backend.type to CronJob"
        ),
        is_terminal=True,
    )


def is_owned(job: Manifest, uid: str | None = None) -> bool:
    """Whether an audit owns it; with a uid whether this one does."""
    owners = job["metadata"].get("ownerReferences") or ()
    return any(
        owner.get("kind") == STREAM_AUDIT.kind and uid in (None, owner.get("uid"))
        for owner in owners
    )
