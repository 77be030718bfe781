"""StreamAudits in one replica: what concerns them, their passes, and what groups show of them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from pelops.api.audit.status import StreamAuditStatus
from pelops.api.audit.stream_audit import StreamAudit
from pelops.api.meta import ObjectMeta
from pelops.controller.audit.actions import AuditActions, AuditMemory
from pelops.controller.audit.observation import (
    AuditObserver,
    AuditPart,
    ObservedAudit,
    is_owned,
)
from pelops.controller.audit.status import measure_audit, render_audit_status, report_windows
from pelops.controller.runtime.cache import (
    Cache,
    Concern,
    Name,
    ObjectChange,
    concern_itself,
    name_of,
    without_managers,
)
from pelops.controller.runtime.kind import (
    ManagedKind,
    Pass,
    PassIntervals,
    PlannedAction,
    Services,
    Status,
    StatusDecision,
)
from pelops.domain.naming import GroupKeys
from pelops.errors import PelopsError
from pelops.kube.audit_cron_job import audit_job_name
from pelops.kube.client import Manifest
from pelops.kube.events import Happening
from pelops.kube.resources import CRON_JOB, STREAM_AUDIT, STREAM_CONSUMER_GROUP
from pelops.metrics import AUDITS_SERVED
from pelops.metrics import forget_audit as forget_series
from pelops.policy.audit.conditions import decide_audit_conditions
from pelops.policy.audit.notices import AuditNotice, read_notices
from pelops.policy.status.reasons import AUDIT_ALARMS
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import forget_audit, forget_groups

log = logging.getLogger(__name__)

# What an audit records changes by the minute: a look is cheap, and still not worth one each second.
SLOWER: Final = 3.0

AuditPass = Pass[StreamAudit, AuditMemory]


class AuditIndex:
    """Audits and their CronJobs in the cache, and what audits say of groups.

    An audit is due when it changes, its CronJob, or what a group that it names asks for. A group is
    due when an audit says something else of it.
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
    """Where an audit records, to be cleared when it is gone."""

    uid: str
    server: Server
    keys: tuple[GroupKeys, ...]
    has_index: bool  # of the groups that a pattern found


class AuditKind(ManagedKind[StreamAudit, ObservedAudit, AuditMemory]):
    """Audits: what runs their jobs, and what they found."""

    api = STREAM_AUDIT
    alarms = AUDIT_ALARMS
    workers = 8  # audits are few, and their passes mostly wait

    def __init__(self, services: Services) -> None:
        super().__init__(services.clock, defaultdict(AuditMemory))
        api, cache, settings = services.api, services.cache, services.settings
        self._settings = settings
        self.index = AuditIndex(cache)
        self._observer = AuditObserver(api, cache, services.connections)
        self._actions = AuditActions(api, cache, image=settings.audit_image)
        self._recorded: dict[Name, _Recorded] = {}

    def parse(self, manifest: Manifest) -> StreamAudit:
        return StreamAudit.parse(manifest)

    async def observe(self, one: AuditPass) -> ObservedAudit:
        observed = await self._observer.observe(one.resource)
        if observed.server is not None:
            uid, spec = one.resource.metadata.uid, one.resource.spec
            has_index = spec.stream_pattern is not None
            self._recorded[one.name] = _Recorded(uid, observed.server, observed.keys, has_index)
        return observed

    def next_action(self, observation: ObservedAudit, one: AuditPass) -> PlannedAction | None:
        return self._actions.next_action(observation, one.memory)

    def blame(
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
        """Remove what an audit that is gone recorded: the ledgers wait for it no longer.

        Every replica tries; what none can clear is waited for two weeks at most.
        """
        recorded = self._recorded.get(name)
        if recorded is None or (manifest and manifest["metadata"]["uid"] == recorded.uid):
            return None
        del self._recorded[name]
        if manifest is not None:
            return None  # made anew under its name, and goes on
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

    def list_events(self, before: Status, after: Status) -> Iterable[Happening]:
        yield from super().list_events(before, after)
        windows = report_windows(before, after)
        if windows is not None:
            yield windows

    def serve(self, is_served: bool) -> None:
        AUDITS_SERVED.set(is_served)

    def rank_key(self, metadata: ObjectMeta) -> str:
        return f"audit/{metadata.key}"


def audit_of(job: Name) -> Name | None:
    """The audit whose CronJob has this name; None when no audit's can."""
    namespace, name = job
    audit = name.removesuffix(audit_job_name(""))
    return None if audit in {"", name} else (namespace, audit)


def _find_owner(change: ObjectChange) -> set[Name]:
    owner = audit_of(change.name)
    return set() if owner is None else {owner}


def _keep_job(job: Manifest) -> Manifest | None:
    """The CronJob that an audit may own; of somebody else's only the metadata."""
    if audit_of(name_of(job)) is None:
        return None
    bare = without_managers(job)
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
        log.info("cannot clear what the audit recorded: %s", error)
