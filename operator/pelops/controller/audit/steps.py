"""The next write for an audit: its CronJob as it should look, then what people acknowledged."""

from __future__ import annotations

from typing import Final

from pelops.controller.audit.cache import AuditCache, is_owned
from pelops.controller.audit.spark import SparkJobs, spark_kind
from pelops.controller.audit.view import AuditView
from pelops.controller.group.memory import Memory
from pelops.controller.runtime.passes import Part, Step
from pelops.kube.audit_cron_job import audit_job_name, build_cron_job
from pelops.kube.audit_spark import SCHEDULED_SPARK_APPLICATION
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import CRON_JOB, STREAM_AUDIT
from pelops.kube.worker_deployment import fingerprint_of, is_applied
from pelops.policy.audit.plan import AuditPlan
from pelops.policy.status.alarms import ACKNOWLEDGE
from pelops.policy.status.reasons import ConditionType, Reason
from pelops.redis_streams.audit.records import acknowledge_audit

MANAGER: Final = "pelops-acknowledge"


class AuditSteps:
    """Finds the next step for a view."""

    def __init__(self, api: KubeApi, audits: AuditCache, spark: SparkJobs, *, image: str) -> None:
        """`image` is that of audits that name none."""
        self._spark = spark
        self._cleared: set[str] = set()  # uids of audits whose former Spark object is gone
        self._api = api
        self._audits = audits
        self._image = image

    def next_step(self, view: AuditView, memory: Memory) -> Step | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        return self._job(view, memory) or self._acknowledge(view)

    def _job(self, view: AuditView, memory: Memory) -> Step | None:
        redis = view.facts.redis_problem
        if view.plan is None or view.facts.job_problem is not None:
            return None
        if redis is not None and redis.reason == Reason.SECRET_MISSING:
            return None  # a job without what the Secret holds could do nothing
        if spark_kind(view.facts.audit) is not None:
            self._cleared.discard(view.facts.audit.metadata.uid)
            return self._remove_cron_job(view) or self._spark.next_step(view, memory)
        return self._remove_spark(view) or self._apply_cron_job(view, view.plan, memory)

    def _remove_spark(self, view: AuditView) -> Step | None:
        """The ScheduledSparkApplication that the status tells of, once it is asked for no more."""
        audit = view.facts.audit
        uid, told = audit.metadata.uid, (audit.status.job if audit.status else None) or ""
        is_there = told.startswith(f"{SCHEDULED_SPARK_APPLICATION.kind}/")
        if not is_there or uid in self._cleared:
            return None

        async def write() -> None:
            await self._spark.remove_scheduled(audit)
            self._cleared.add(uid)

        return Step(part=Part.WORKLOAD, what=f"removing {told}", do=write)

    def _remove_cron_job(self, view: AuditView) -> Step | None:
        """The CronJob of a backend that is asked for no more."""
        live, uid = view.job, view.facts.audit.metadata.uid
        if live is None or not is_owned(live, uid):
            return None
        metadata = live["metadata"]
        address = Address(kind=CRON_JOB, namespace=metadata["namespace"], name=metadata["name"])

        async def write() -> None:
            await self._api.delete(address, uid=metadata["uid"])
            name = (metadata["namespace"], metadata["name"])
            self._audits.remove(CRON_JOB, name, metadata["uid"])

        what = f"removing CronJob {metadata['name']}, in whose place a Spark operator runs"
        return Step(part=Part.WORKLOAD, what=what, do=write)

    def _apply_cron_job(self, view: AuditView, plan: AuditPlan, memory: Memory) -> Step | None:
        audit, live = view.facts.audit, view.job
        body = build_cron_job(audit, plan, view.access, image=self._image)
        fingerprint = fingerprint_of(body)
        if live is not None and (
            is_applied(body, live) or memory.settled == _settled(live, fingerprint)
        ):
            return None
        name = audit_job_name(audit.metadata.name)
        address = Address(kind=CRON_JOB, namespace=audit.metadata.namespace, name=name)

        async def write() -> None:
            answer = await self._api.apply(address, body)
            if live is not None and _version(answer) == _version(live):
                memory.settled = _settled(answer, fingerprint)
            self._audits.put(CRON_JOB, answer)

        what = f"applying CronJob {name}" if live else f"creating CronJob {name}"
        return Step(part=Part.WORKLOAD, what=what, do=write, reads_secrets=True)

    def _acknowledge(self, view: AuditView) -> Step | None:
        metadata, server = view.facts.audit.metadata, view.server
        asked = metadata.annotations.get(ACKNOWLEDGE)
        if asked is None or server is None:
            return None
        is_meant = ConditionType.LOSS_DETECTED in {word.strip() for word in asked.split(",")}
        groups = zip(view.keys, view.facts.groups, strict=True)
        lost = [
            (keys, group.record.lost)
            for keys, group in groups
            if is_meant and group.record is not None and group.record.unacknowledged
        ]
        address = Address(kind=STREAM_AUDIT, namespace=metadata.namespace, name=metadata.name)

        async def write() -> None:
            for keys, count in lost:
                await acknowledge_audit(server, keys, view.facts.audit.audit_name, count)
            # The wish goes with what it asked for, or the next loss would be cleared unseen.
            body: Manifest = {"metadata": {"uid": metadata.uid, "annotations": {ACKNOWLEDGE: None}}}
            answer = await self._api.merge(address, body, manager=MANAGER)
            self._audits.put(STREAM_AUDIT, answer)

        return Step(part=Part.RESOURCE, what=f"acknowledging {asked}", do=write)


def _settled(live: Manifest, fingerprint: str) -> tuple[str, int, str]:
    metadata = live["metadata"]
    return metadata["uid"], metadata.get("generation", 0), fingerprint


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])
