"""One turn for one resource: look, decide, take the next step, tell. Level-triggered.

Creation, update, a timer and a replica's start all end up here; only deletion has a way of its own.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.meta import ObjectMeta
from pelops.controller.group.deletion import Deletion
from pelops.controller.group.memory import Hold, Memories, Memory, identify
from pelops.controller.group.observation import Observer, View
from pelops.controller.group.status import Difference, compare, render_refusal, render_status
from pelops.controller.group.steps import Steps
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.membership import Members
from pelops.controller.runtime.passes import STATUS, Pace, Part, Step, Teller, Turn, previous_status
from pelops.controller.runtime.versions import Name
from pelops.errors import InvalidSpec, PelopsError
from pelops.kube.client import KubeApi, Manifest
from pelops.kube.resources import STREAM_CONSUMER_GROUP
from pelops.metrics import forget_group
from pelops.policy.audit.notices import AuditNotice
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.status.conditions import decide_conditions, refused
from pelops.policy.status.diagnosis import diagnose
from pelops.redis_streams.group.provisioning import release_group

log = logging.getLogger(__name__)

RELEASE_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What a turn works with."""

    api: KubeApi
    cache: Cache
    members: Members
    observer: Observer
    steps: Steps
    deletion: Deletion
    reporter: Reporter
    decision: Callable[[Name], ScalingDecision | None]  # of the scale loop of this replica
    notices: Callable[[Name], tuple[AuditNotice, ...]]  # what audits say about a resource


GroupTurn: TypeAlias = Turn[StreamConsumerGroup]


class Reconciler:
    """Brings resources toward what is asked."""

    def __init__(
        self, doors: Doors, pace: Pace, clock: Callable[[], float], memories: Memories
    ) -> None:
        self._doors = doors
        self._pace = pace
        self._clock = clock
        self._memories = memories
        cache = doors.cache
        self._teller = Teller(doors.api, STREAM_CONSUMER_GROUP, doors.reporter, cache.put, clock)

    async def reconcile(self, name: Name) -> float | None:
        """One turn: seconds until the next, or None when the resource is gone.

        Raises:
            KubernetesError: the API server could not be used; repeat.
        """
        manifest = self._doors.cache.resources.get(name)
        wait = await self._release_former(name, manifest)
        if wait is not None:
            return wait
        if manifest is None:
            self._memories.pop(name, None)
            forget_group(*name)
            return None
        memory = self._memories[name]
        try:
            resource = StreamConsumerGroup.parse(manifest)
        except InvalidSpec as error:
            return await self._refuse(manifest, error, memory)
        if resource.metadata.is_being_deleted:
            return await self._doors.deletion.proceed(resource, memory)
        rank = self._doors.members.rank(resource.metadata.key)
        return await self._proceed(
            Turn(resource=resource, manifest=manifest, memory=memory, rank=rank)
        )

    async def _release_former(self, name: Name, manifest: Manifest | None) -> float | None:
        """Let go of the group of a resource that is gone, so that another may act on it soon.

        Seconds to wait for that, or None when nothing is left to do. Every replica tries; when
        none can, the hold runs out by itself.
        """
        memory = self._memories[name]
        held = memory.held
        if held is None or (manifest and manifest["metadata"]["uid"] == held.owner.uid):
            return None
        if not memory.is_leaving:
            # A replica that has not heard of the deletion yet would take the hold again.
            memory.is_leaving = True
            return RELEASE_AFTER_S
        memory.held, memory.is_leaving = None, False
        try:
            await release_group(held.server, held.keys, held.owner)
        except PelopsError as error:
            log.info("cannot let go of the group: %s", error, extra={"resource": "/".join(name)})
        return None

    async def _proceed(self, turn: GroupTurn) -> float:
        view = self._complete(await self._doors.observer.observe(turn.resource), turn)
        turn.memory.held = _held(view) or turn.memory.held
        if view.server is not None and view.facts.keys is not None:
            turn.memory.look_at(identify(turn.resource, view.server, view.facts.keys))
        step, view = self._find_step(view, turn.memory)
        turn.memory.sees_only(STATUS, *([step.what] if step else []))
        if step is not None and turn.wait_s(step.what) <= 0:
            if step.reads_secrets and self._doors.observer.forget_stale_secrets(turn.resource):
                # A replica that still holds the old Secret would undo what the others wrote.
                return 0.0
            error = await self._teller.take(step, turn)
            if error is None:
                return 0.0
            view = _with_problem(view, step.part, error)
        return await self._tell(view, turn, has_step=step is not None)

    def _complete(self, view: View, turn: GroupTurn) -> View:
        """The view with what audits say, and what this replica has decided if it scales."""
        scaling = view.facts.scaling
        if scaling is None and turn.rank == 0:
            scaling = self._doors.decision(turn.name)
        audits = self._doors.notices(turn.name)
        return replace(view, facts=replace(view.facts, scaling=scaling, audits=audits))

    def _find_step(self, view: View, memory: Memory) -> tuple[Step | None, View]:
        try:
            return self._doors.steps.next_step(view, memory), view
        except InvalidSpec as error:
            return None, _with_problem(view, Part.WORKLOAD, error)

    async def _tell(self, view: View, turn: GroupTurn, *, has_step: bool) -> float:
        """Write the status if it is worth it: seconds until the next look."""
        now = datetime.now(UTC)
        facts, memory = view.facts, turn.memory
        conditions = decide_conditions(facts)
        self._doors.reporter.measure(facts, is_ready=conditions[0].is_true)
        wished = render_status(facts, conditions, previous_status(turn.manifest), now)
        problem = facts.redis_problem or facts.workload_problem
        if has_step or problem is not None:
            again = memory.retry_s(is_terminal=problem is not None and problem.is_terminal)
        else:
            again = self._settle(memory)
        difference = compare(wished, turn.manifest.get("status") or {})
        numbers_s = self._stretched_pace().status_s
        wait = await self._teller.write(turn, wished, difference, numbers_s=numbers_s)
        again *= random.uniform(0.8, 1.2)
        return again if wait is None else min(again, wait)

    def _settle(self, memory: Memory) -> float:
        memory.failures = 0
        return self._stretched_pace().observe_s

    def _stretched_pace(self) -> Pace:
        return self._pace.stretched(len(self._doors.cache.resources))

    async def _refuse(self, manifest: Manifest, error: InvalidSpec, memory: Memory) -> float | None:
        """Tell that the spec cannot be read; nothing else is done."""
        now = datetime.now(UTC)
        wished = render_refusal(refused(diagnose(error)), previous_status(manifest), now)
        if compare(wished, manifest.get("status") or {}) is not Difference.NONE:
            await self._teller.put_status(manifest, wished)
        metadata = ObjectMeta.model_validate(manifest["metadata"])
        if metadata.is_being_deleted:
            return await self._doors.deletion.give_up(metadata, str(error))
        return memory.retry_s(is_terminal=True)


def _held(view: View) -> Hold | None:
    facts = view.facts
    if not facts.is_group_ready or view.server is None or facts.keys is None:
        return None
    return Hold(view.server, facts.keys, view.owner, facts.resource.spec.redis)


def _with_problem(view: View, part: Part, error: PelopsError) -> View:
    problem = diagnose(error)
    changes: dict[str, Any] = (
        {"workload_problem": problem} if part is Part.WORKLOAD else {"redis_problem": problem}
    )
    return replace(view, facts=replace(view.facts, **changes))
