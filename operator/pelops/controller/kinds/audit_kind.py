"""StreamAudits in one replica: their passes, and their end.

The next action for an audit brings its job to the desired state, then acknowledges its conditions.
The job is a CronJob (`AuditActions`) or an object of a Spark operator (`SparkActions`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pelops.api.audit.stream_audit import StreamAudit
from pelops.controller.audit.audit_actions import AuditActions, AuditMemory
from pelops.controller.audit.audit_index import AuditIndex
from pelops.controller.audit.audit_observer import (
    AuditObserver,
    AuditPart,
    ObservedAudit,
)
from pelops.controller.audit.audit_status import measure_audit, render_audit_status, report_windows
from pelops.controller.runtime.cache import (
    Name,
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
from pelops.controller.runtime.namespaces import NamespaceLevels
from pelops.domain.naming import GroupKeys
from pelops.errors import PelopsError
from pelops.kube.client import (
    STREAM_AUDIT,
    Manifest,
)
from pelops.kube.event_recorder import EventContent
from pelops.metrics import AUDITS_SERVED
from pelops.metrics import forget_audit as forget_series
from pelops.policy.audit.audit_conditions import decide_audit_conditions
from pelops.policy.status.reasons import AUDIT_ALARMS
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import forget_audit, forget_groups

log = logging.getLogger(__name__)

SLOWER: Final = 3.0

AuditPass = Pass[StreamAudit, AuditMemory]


@dataclass(frozen=True, slots=True)
class _AuditedGroups:
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
        self._recorded: dict[Name, _AuditedGroups] = {}

    def parse(self, manifest: Manifest) -> StreamAudit:
        return StreamAudit.parse(manifest)

    async def observe(self, current: AuditPass) -> ObservedAudit:
        level = await self._levels.level(current.name[0])
        observed = replace(await self._observer.observe(current.resource), level=level)
        if observed.server is not None:
            uid, spec = current.resource.metadata.uid, current.resource.spec
            has_index = spec.stream_pattern is not None
            self._recorded[current.name] = _AuditedGroups(
                uid, observed.server, observed.keys, has_index
            )
        return observed

    def actions(self, observation: ObservedAudit, current: AuditPass) -> Iterator[PlannedAction]:
        action = self._actions.next_action(observation, current.memory)
        if action is not None:
            yield action

    def add_problem(
        self, observation: ObservedAudit, part: str | None, error: PelopsError
    ) -> ObservedAudit:
        return observation.with_problem(AuditPart(part or AuditPart.JOB), error)

    def decide_status(
        self, observation: ObservedAudit, current: AuditPass, now: datetime
    ) -> StatusDecision:
        facts = observation.facts
        conditions = decide_audit_conditions(facts, now=now)
        return StatusDecision(
            status=render_audit_status(facts, conditions, current.previous, now),
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
            await _delete_records(forget_audit(server, keys, recorded_as))
        if recorded.has_index:
            await _delete_records(forget_groups(server, recorded_as))
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


async def _delete_records(clearing: Awaitable[object]) -> None:
    try:
        await clearing
    except PelopsError as error:
        log.info("Could not delete the records of the audit in Redis: %s", error)
