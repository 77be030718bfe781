"""StreamAudits in one replica: their actions, their passes, and what groups show of them.

The next action for an audit brings its job to the desired state, then acknowledges its conditions.
The job is a CronJob (`AuditActions`) or an object of a Spark operator (`SparkActions`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from pydantic import ValidationError

from pelops.api.audit.audit_status_model import StreamAuditStatus
from pelops.api.audit.stream_audit import StreamAudit
from pelops.controller.audit.audit_observer import (
    AuditObserver,
    AuditPart,
    ObservedAudit,
    is_owned,
    name_taken,
    spark_kind,
)
from pelops.controller.audit.audit_status import measure_audit, render_audit_status, report_windows
from pelops.controller.runtime.cache import (
    Cache,
    Concern,
    Name,
    ObjectChange,
    concern_itself,
    name_of,
)
from pelops.controller.runtime.kind import (
    ManagedKind,
    Memory,
    Pass,
    PassIntervals,
    PlannedAction,
    Services,
    Status,
    StatusDecision,
)
from pelops.controller.runtime.namespaces import NamespaceLevels
from pelops.domain.json_fields import unpack
from pelops.domain.naming import GroupKeys
from pelops.errors import Conflict, InvalidSpec, NotFound, PelopsError
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
    STREAM_CONSUMER_GROUP,
    Address,
    Kind,
    KubeApi,
    Manifest,
)
from pelops.kube.event_recorder import EventContent
from pelops.kube.pod_security import hold_template
from pelops.kube.trimmed import trim
from pelops.kube.worker_deployment import fingerprint_of, is_applied
from pelops.metrics import AUDITS_SERVED
from pelops.metrics import forget_audit as forget_series
from pelops.policy.audit.audit_conditions import decide_audit_conditions
from pelops.policy.audit.notices import AuditNotice, read_notices
from pelops.policy.audit.plan import AuditPlan
from pelops.policy.audit.schedule import find_due, parse_schedule
from pelops.policy.status.alarms import ACKNOWLEDGE
from pelops.policy.status.reasons import AUDIT_ALARMS, ConditionType, Reason
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import acknowledge_audit, forget_audit, forget_groups

log = logging.getLogger(__name__)


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
    settled: tuple[str, int, str] | None = None


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
        uid, reported = audit.metadata.uid, audit.status.job_ref if audit.status else None
        is_there = reported is not None and reported.kind == SCHEDULED_SPARK_APPLICATION.kind
        if reported is None or not is_there or uid in self._cleared:
            return None

        async def write() -> None:
            await self._spark.remove_scheduled(audit)
            self._cleared.add(uid)

        return PlannedAction(
            part=AuditPart.JOB, what=f"delete {reported.kind} {reported.name}", do=write
        )

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
            is_applied(body, unpack(live)) or memory.settled == _settled(live, fingerprint)
        ):
            return None
        name = audit_job_name(audit.metadata.name)
        address = Address(kind=CRON_JOB, namespace=audit.metadata.namespace, name=name)

        async def write() -> None:
            answer = await self._api.apply(address, _bound(body, live))
            if live is not None and _version(answer) == _version(live):
                memory.settled = _settled(answer, fingerprint)
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


def _settled(live: Manifest, fingerprint: str) -> tuple[str, int, str]:
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
        settled = (audit.metadata.uid, audit.metadata.generation, fingerprint_of(body))
        if live is not None and (is_applied(body, live) or memory.settled == settled):
            return None
        address = _address(SCHEDULED_SPARK_APPLICATION, body)

        async def write() -> None:
            answer = await self._api.apply(address, _bound(body, live))
            if live is not None and _version(answer) == _version(live):
                memory.settled = settled

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
            found = await self._api.find(Address(kind=kind, namespace=namespace, name=name))
        except NotFound:
            return  # the Spark operator was removed, with its kinds
        if found is not None and is_owned(found, audit.metadata.uid):
            await self._delete(kind, [found])

    async def _check_owner(self, audit: StreamAudit, name: str) -> None:
        """Check the owner of an existing object. Raises InvalidSpec if it is not this audit."""
        kind, namespace = SPARK_APPLICATION, audit.metadata.namespace
        found = await self._api.find(Address(kind=kind, namespace=namespace, name=name))
        if found is not None and not is_owned(found, audit.metadata.uid):
            raise InvalidSpec(name_taken(SPARK_APPLICATION, name).message)

    async def _delete(self, kind: Kind, objects: Sequence[Manifest]) -> None:
        for one in objects:
            await self._api.delete(_address(kind, one), uid=one["metadata"]["uid"])


def _address(kind: Kind, manifest: Manifest) -> Address:
    metadata = manifest["metadata"]
    return Address(kind=kind, namespace=metadata["namespace"], name=metadata["name"])


# What an audit records changes by the minute: a look is cheap, and still not worth one each second.
SLOWER: Final = 3.0

AuditPass = Pass[StreamAudit, AuditMemory]


class AuditIndex:
    """Audits and their CronJobs in the cache, and the notices of audits for groups.

    An audit is due when it, its CronJob, or the spec of a group that it names changes. A group is
    due when the notice of an audit for it changes.
    """

    def __init__(self, cache: Cache) -> None:
        self._audits = cache.objects(STREAM_AUDIT)
        self._notices: dict[Name, dict[str, AuditNotice]] = {}  # by audit, then by group
        cache.follow(
            STREAM_AUDIT,
            concern_itself(STREAM_AUDIT),
            Concern(kind=CRON_JOB, find=_find_owner, keep=_keep_job),
            Concern(kind=STREAM_CONSUMER_GROUP, find=self._find_auditing),
        )
        cache.follow(STREAM_CONSUMER_GROUP, Concern(kind=STREAM_AUDIT, find=self._replace_notices))

    def auditing(self, group: Name) -> set[Name]:
        """The audits that name a StreamConsumerGroup."""
        namespace, name = group
        return {
            audit
            for audit, manifest in self._audits.items()
            if audit[0] == namespace and name in _groups_of(manifest)
        }

    def notices(self, group: Name) -> tuple[AuditNotice, ...]:
        """What the audits of its namespace say about a StreamConsumerGroup."""
        reported = (
            notices.get(group[1])
            for audit, notices in self._notices.items()
            if audit[0] == group[0]
        )
        return tuple(sorted(notice for notice in reported if notice is not None))

    def _find_auditing(self, change: ObjectChange) -> set[Name]:
        """A group: the audits that name it, unless only its status has changed."""
        is_news = _asked(change.before) != _asked(change.after)
        return self.auditing(change.name) if is_news else set()

    def _replace_notices(self, change: ObjectChange) -> set[Name]:
        """An audit: the groups of which it says something else."""
        (namespace, name), manifest = change.name, change.after
        notices: dict[str, AuditNotice] = {}
        if manifest is not None:
            notices = read_notices(name, _groups_of(manifest), _status_of(manifest))
        before = self._notices.pop(change.name, {})
        if notices:
            self._notices[change.name] = notices
        groups = {*before, *notices}
        return {(namespace, one) for one in groups if before.get(one) != notices.get(one)}


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The groups on which an audit records, to remove the records after its deletion."""

    uid: str
    server: Server
    keys: tuple[GroupKeys, ...]
    has_index: bool  # of the groups that a pattern found


class AuditKind(ManagedKind[StreamAudit, ObservedAudit, AuditMemory]):
    """Audits: what runs their jobs, and what they found."""

    api = STREAM_AUDIT
    alarms = AUDIT_ALARMS

    def __init__(self, services: Services) -> None:
        super().__init__(services.clock, defaultdict(AuditMemory))
        api, cache, settings = services.api, services.cache, services.settings
        self._settings = settings
        self.index = AuditIndex(cache)
        self._observer = AuditObserver(api, cache, services.connections)
        self._levels = NamespaceLevels(api, services.clock)
        self._actions = AuditActions(api, cache, image=settings.audit_image)
        self._recorded: dict[Name, _Recorded] = {}

    def parse(self, manifest: Manifest) -> StreamAudit:
        return StreamAudit.parse(manifest)

    async def observe(self, one: AuditPass) -> ObservedAudit:
        level = await self._levels.level(one.name[0])
        observed = replace(await self._observer.observe(one.resource), level=level)
        if observed.server is not None:
            uid, spec = one.resource.metadata.uid, one.resource.spec
            has_index = spec.stream_pattern is not None
            self._recorded[one.name] = _Recorded(uid, observed.server, observed.keys, has_index)
        return observed

    def actions(self, observation: ObservedAudit, one: AuditPass) -> Iterator[PlannedAction]:
        action = self._actions.next_action(observation, one.memory)
        if action is not None:
            yield action

    def add_problem(
        self, observation: ObservedAudit, part: str | None, error: PelopsError
    ) -> ObservedAudit:
        return observation.with_problem(AuditPart(part or AuditPart.JOB), error)

    def decide_status(
        self, observation: ObservedAudit, one: AuditPass, now: datetime
    ) -> StatusDecision:
        facts = observation.facts
        conditions = decide_audit_conditions(facts, now=now)
        return StatusDecision(
            status=render_audit_status(facts, conditions, one.previous, now),
            conditions=conditions,
            problem=facts.plan_problem or facts.job_problem or facts.redis_problem,
        )

    def intervals(self, known: int) -> PassIntervals:
        settings = self._settings
        return PassIntervals(observe_s=settings.observe_s * SLOWER, status_s=settings.status_s)

    async def release(self, name: Name, manifest: Manifest | None) -> float | None:
        """Remove the records of a deleted audit: the ledgers no longer wait for it.

        Every replica tries it. A ledger waits two weeks at most for a record that stays.
        """
        recorded = self._recorded.get(name)
        if recorded is None or (manifest and manifest["metadata"]["uid"] == recorded.uid):
            return None
        del self._recorded[name]
        if manifest is not None:
            return None  # another audit of the same name continues
        server, recorded_as = recorded.server, "/".join(name)
        for keys in recorded.keys:
            await _try(forget_audit(server, keys, recorded_as))
        if recorded.has_index:
            await _try(forget_groups(server, recorded_as))
        return None

    def forget(self, name: Name) -> None:
        forget_series(*name)

    def measure(self, observation: ObservedAudit, decision: StatusDecision) -> None:
        measure_audit(observation.facts, decision.conditions)

    def list_events(self, before: Status, after: Status) -> Iterable[EventContent]:
        yield from super().list_events(before, after)
        windows = report_windows(before, after)
        if windows is not None:
            yield windows

    def serve(self, is_served: bool) -> None:
        AUDITS_SERVED.set(is_served)

    def rank_key(self, name: Name) -> str:
        return f"audit/{'/'.join(name)}"


def audit_of(job: Name) -> Name | None:
    """The audit whose CronJob has this name; None when no audit's can."""
    namespace, name = job
    audit = name.removesuffix(audit_job_name(""))
    return None if audit in {"", name} else (namespace, audit)


def _find_owner(change: ObjectChange) -> set[Name]:
    owner = audit_of(change.name)
    return set() if owner is None else {owner}


def _keep_job(job: Manifest) -> Manifest | None:
    """The CronJob of an audit; only the metadata if another owner has the name."""
    if audit_of(name_of(job)) is None:
        return None
    bare = trim(job)
    return bare if is_owned(bare) else {"metadata": bare["metadata"]}


def _asked(group: Manifest | None) -> tuple[object, object]:
    metadata = (group or {}).get("metadata", {})
    return metadata.get("uid"), metadata.get("generation")


def _groups_of(manifest: Manifest) -> list[str]:
    return [str(group) for group in (manifest.get("spec") or {}).get("groups") or ()]


def _status_of(manifest: Manifest) -> StreamAuditStatus | None:
    try:
        return StreamAuditStatus.model_validate(manifest.get("status") or {})
    except ValidationError:
        return None


async def _try(clearing: Awaitable[object]) -> None:
    try:
        await clearing
    except PelopsError as error:
        log.info("Could not delete the records of the audit in Redis: %s", error)
