"""One turn for one audit: look, decide, take the next step, tell. Level-triggered."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeAlias

from pelops.api.audit.stream_audit import StreamAudit
from pelops.api.meta import ObjectMeta
from pelops.controller.audit.cache import AuditCache
from pelops.controller.audit.observation import AuditObserver
from pelops.controller.audit.status import measure_audit, render_audit_status, tell_windows
from pelops.controller.audit.steps import AuditSteps
from pelops.controller.audit.view import AuditView
from pelops.controller.group.memory import Memories, Memory
from pelops.controller.group.observation import Observer
from pelops.controller.group.status import Difference, Status, compare, render_refusal
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.membership import Members
from pelops.controller.runtime.passes import STATUS, Pace, Part, Step, Teller, Turn, previous_status
from pelops.controller.runtime.versions import Name
from pelops.domain.naming import GroupKeys
from pelops.errors import InvalidSpec, PelopsError
from pelops.kube.client import KubeApi, Manifest
from pelops.kube.resources import STREAM_AUDIT
from pelops.metrics import forget_audit as forget_series
from pelops.policy.audit.conditions import decide_audit_conditions
from pelops.policy.status.conditions import refused
from pelops.policy.status.diagnosis import diagnose
from pelops.redis_core.server import Server
from pelops.redis_streams.audit.records import forget_audit, forget_groups

log = logging.getLogger(__name__)

# What an audit records changes by the minute: a look is cheap, and still not worth one each second.
SLOWER: Final = 3.0
AuditTurn: TypeAlias = Turn[StreamAudit]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDoors:
    """What a turn works with."""

    api: KubeApi
    audits: AuditCache
    members: Members
    observer: Observer
    look: AuditObserver
    steps: AuditSteps
    reporter: Reporter


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Where an audit records, to be cleared when it is gone."""

    uid: str
    server: Server
    keys: tuple[GroupKeys, ...]
    has_index: bool  # of the groups that a pattern found


class AuditReconciler:
    """Brings audits toward what is asked, and tells what they found."""

    def __init__(self, doors: AuditDoors, pace: Pace, clock: Callable[[], float]) -> None:
        self._doors = doors
        self._pace = pace
        self._memories = Memories()
        self._recorded: dict[Name, _Recorded] = {}
        audits = doors.audits
        self._teller = Teller(doors.api, STREAM_AUDIT, doors.reporter, audits.put, clock)

    async def reconcile(self, name: Name) -> float | None:
        """One turn: seconds until the next, or None when the audit is gone.

        Raises:
            KubernetesError: the API server could not be used; repeat.
        """
        manifest = self._doors.audits.audits.get(name)
        await self._clear(name, manifest)
        if manifest is None:
            self._memories.pop(name, None)
            forget_series(*name)
            return None
        memory = self._memories[name]
        try:
            audit = StreamAudit.parse(manifest)
        except InvalidSpec as error:
            return await self._refuse(manifest, error, memory)
        if audit.metadata.is_being_deleted:
            return None  # its CronJob is collected with it
        rank = self._doors.members.rank(f"audit/{audit.metadata.key}")
        turn = Turn(resource=audit, manifest=manifest, memory=memory, rank=rank)
        return await self._proceed(turn)

    async def _clear(self, name: Name, manifest: Manifest | None) -> None:
        """Remove what an audit that is gone recorded: the ledgers wait for it no longer.

        Every replica tries; what none can clear is waited for two weeks at most.
        """
        recorded = self._recorded.get(name)
        if recorded is None or (manifest and manifest["metadata"]["uid"] == recorded.uid):
            return
        del self._recorded[name]
        if manifest is not None:
            return  # made anew under its name, and goes on
        server, recorded_as = recorded.server, "/".join(name)
        for keys in recorded.keys:
            await _try(forget_audit(server, keys, recorded_as))
        if recorded.has_index:
            await _try(forget_groups(server, recorded_as))

    async def _proceed(self, turn: AuditTurn) -> float:
        view = await self._doors.look.observe(turn.resource)
        if view.server is not None:
            uid = turn.resource.metadata.uid
            has_index = turn.resource.spec.stream_pattern is not None
            self._recorded[turn.name] = _Recorded(uid, view.server, view.keys, has_index)
        step, view = self._find_step(view, turn.memory)
        turn.memory.sees_only(STATUS, *([step.what] if step else []))
        if step is not None and turn.wait_s(step.what) <= 0:
            if step.reads_secrets and self._forget_stale(view, turn):
                return 0.0
            error = await self._teller.take(step, turn)
            if error is None:
                return 0.0
            view = _with_problem(view, step.part, error)
        return await self._tell(view, turn, has_step=step is not None)

    def _find_step(self, view: AuditView, memory: Memory) -> tuple[Step | None, AuditView]:
        try:
            return self._doors.steps.next_step(view, memory), view
        except InvalidSpec as error:
            return None, _with_problem(view, Part.WORKLOAD, error)

    def _forget_stale(self, view: AuditView, turn: AuditTurn) -> bool:
        """A replica that still holds an old Secret would undo what the others wrote."""
        if view.plan is None:
            return False
        secrets = (view.plan.redis.secret_ref, view.plan.job_secret)
        return self._doors.observer.forget_stale(secrets, turn.name[0])

    async def _tell(self, view: AuditView, turn: AuditTurn, *, has_step: bool) -> float:
        """Write the status if it differs: seconds until the next look."""
        now, facts, memory = datetime.now(UTC), view.facts, turn.memory
        conditions = decide_audit_conditions(facts, now=now)
        measure_audit(facts, conditions)
        live = turn.manifest.get("status") or {}
        wished = render_audit_status(facts, conditions, previous_status(turn.manifest), now)
        problem = facts.plan_problem or facts.job_problem or facts.redis_problem
        if has_step or problem is not None:
            again = memory.retry_s(is_terminal=problem is not None and problem.is_terminal)
        else:
            memory.failures = 0
            again = self._pace.observe_s * SLOWER
        difference = Difference.NONE if wished == live else Difference.FACTS
        wait = await self._teller.write(turn, wished, difference, numbers_s=self._pace.status_s)
        if wait is None and difference is Difference.FACTS:
            await self._tell_windows(turn, live, wished)
        again *= random.uniform(0.8, 1.2)
        return again if wait is None else min(again, wait)

    async def _tell_windows(self, turn: AuditTurn, before: Status, after: Status) -> None:
        happening = tell_windows(before, after)
        if happening is not None:
            await self._doors.reporter.tell(turn.resource.metadata, happening)

    async def _refuse(self, manifest: Manifest, error: InvalidSpec, memory: Memory) -> float | None:
        """Tell that the spec cannot be read; nothing else is done."""
        metadata = ObjectMeta.model_validate(manifest["metadata"])
        if metadata.is_being_deleted:
            return None
        now = datetime.now(UTC)
        wished = render_refusal(refused(diagnose(error)), previous_status(manifest), now)
        if compare(wished, manifest.get("status") or {}) is not Difference.NONE:
            await self._teller.put_status(manifest, wished)
        return memory.retry_s(is_terminal=True)


async def _try(clearing: Awaitable[object]) -> None:
    try:
        await clearing
    except PelopsError as error:
        log.info("cannot clear what the audit recorded: %s", error)


def _with_problem(view: AuditView, part: Part, error: PelopsError) -> AuditView:
    problem = diagnose(error)
    facts = (
        replace(view.facts, job_problem=problem)
        if part is Part.WORKLOAD
        else replace(view.facts, redis_problem=problem)
    )
    return replace(view, facts=facts)
