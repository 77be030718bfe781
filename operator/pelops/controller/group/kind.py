"""StreamConsumerGroups in one replica: their passes, and the loops that recover and scale."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.api.meta import ObjectMeta
from pelops.controller.group.actions import FINALIZER, GroupActions
from pelops.controller.group.deletion import GroupDeletion, report_abandoned
from pelops.controller.group.memory import GroupMemories, GroupMemory, OwnedGroup, identify
from pelops.controller.group.observation import GroupObserver, GroupPart, ObservedGroup
from pelops.controller.group.status import compare, measure_resource, render_status
from pelops.controller.group.upkeep import UpkeepActions
from pelops.controller.group.workload import BudgetActions, WorkloadActions
from pelops.controller.recovery.clock_skew import NodeClocks
from pelops.controller.recovery.lock_expiry import Listening
from pelops.controller.recovery.loop import ScanLoop
from pelops.controller.recovery.pod_evidence import LivenessEvidence
from pelops.controller.recovery.scanner import ScanAdapters, Scanner
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.kind import (
    Difference,
    Finalizer,
    ManagedKind,
    Pass,
    PassIntervals,
    PlannedAction,
    Services,
    Status,
    StatusDecision,
)
from pelops.controller.scaling.loop import Scaling, ScalingParts
from pelops.controller.workload.cache import WorkloadCache
from pelops.controller.workload.pods import PodChange
from pelops.controller.workload.targets import Targets
from pelops.domain.recovery import Trigger
from pelops.errors import InvalidSpec, PelopsError
from pelops.kube.client import Manifest
from pelops.kube.events import Happening
from pelops.kube.resources import STREAM_AUDIT, STREAM_CONSUMER_GROUP, Kind
from pelops.metrics import QUEUE_DEPTH, RESOURCES, forget_group
from pelops.policy.audit.notices import AuditNotice
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS
from pelops.redis_streams.group.provisioning import release_group

log = logging.getLogger(__name__)

RELEASE_AFTER_S: Final = 1.0

GroupPass = Pass[StreamConsumerGroup, GroupMemory]
Notices = Callable[[Name], tuple[AuditNotice, ...]]


class GroupKind(ManagedKind[StreamConsumerGroup, ObservedGroup, GroupMemory]):
    """Groups, their workers, their recovery and their scaling."""

    api = STREAM_CONSUMER_GROUP
    alarms = (*ALARMS, *AUDIT_ALARMS)  # audits report theirs of the groups concerned as well
    is_required = True
    workers = 64  # passes mostly wait; one Redis that hangs must not hold up the others

    def __init__(self, services: Services, *, cluster: str, notices: Notices) -> None:
        """`cluster` identifies this Kubernetes cluster; `notices` is what audits say of a group."""
        memories = GroupMemories()
        super().__init__(services.clock, memories)
        api, clock, settings = services.api, services.clock, services.settings
        self._settings = settings
        self._notices = notices
        cache = self._cache = WorkloadCache(clock, services.cache)
        targets = Targets(api, cache, clock)
        observer = GroupObserver(cache, services.connections, targets, cluster=cluster)
        reporter = Reporter(api, self.api, identity=settings.identity)
        self.finalizer = Finalizer(api, services.cache, self.api, FINALIZER)
        self._observer = observer
        self._deletion = GroupDeletion(observer)
        self._actions = GroupActions(
            self.finalizer,
            WorkloadActions(api, cache, targets),
            UpkeepActions(api, cache, identity=settings.identity),
            BudgetActions(api, cache),
        )
        self._listening = Listening(observer.connect, self._wake)
        self._clocks = NodeClocks(api, clock)
        parts = ScanAdapters(
            cache=cache,
            observer=observer,
            members=services.members,
            evidence=LivenessEvidence(api, cache, cluster=cluster, clocks=self._clocks),
            targets=targets,
            skew=timedelta(seconds=settings.skew_s),
            reporter=reporter,
            hears=self._listening.problem,
            identity=settings.identity,
        )
        self._scans = ScanLoop(Scanner(parts, clock), cache, services.members, clock)
        scaling_parts = ScalingParts(
            api=api,
            cache=cache,
            members=services.members,
            observer=observer,
            targets=targets,
            reporter=reporter,
            make_due=self.queue.add,
            note=memories.note,
        )
        self._scaling = Scaling(scaling_parts, clock)

    # --- a pass

    def parse(self, manifest: Manifest) -> StreamConsumerGroup:
        return StreamConsumerGroup.parse(manifest)

    async def observe(self, one: GroupPass) -> ObservedGroup:
        """What is known, with what audits say, and what this replica has decided if it scales."""
        observed = await self._observer.observe(one.resource)
        scaling = observed.facts.scaling
        if scaling is None and one.rank == 0:
            scaling = self._scaling.decision(one.name)
        audits = self._notices(one.name)
        observed = replace(observed, facts=replace(observed.facts, scaling=scaling, audits=audits))
        server, keys, memory = observed.server, observed.facts.keys, one.memory
        if server is not None and keys is not None:
            if observed.facts.is_group_ready:
                memory.owned = OwnedGroup(server, keys, observed.owner, one.resource.spec.redis)
            memory.look_at(identify(one.resource, server, keys))
        return observed

    def next_action(self, observation: ObservedGroup, one: GroupPass) -> PlannedAction | None:
        return self._actions.next_action(observation, one.memory)

    def blame(
        self, observation: ObservedGroup, part: str | None, error: PelopsError
    ) -> ObservedGroup:
        return observation.with_problem(GroupPart(part or GroupPart.WORKLOAD), error)

    def decide_status(
        self, observation: ObservedGroup, one: GroupPass, now: datetime
    ) -> StatusDecision:
        facts = observation.facts
        conditions = decide_conditions(facts)
        return StatusDecision(
            status=render_status(facts, conditions, one.previous, now),
            conditions=conditions,
            problem=facts.redis_problem or facts.workload_problem,
        )

    def intervals(self, known: int) -> PassIntervals:
        """Longer with very many resources, so that one replica keeps up."""
        return PassIntervals(
            observe_s=max(self._settings.observe_s, known * 0.01),
            status_s=max(self._settings.status_s, known * 0.02),
        )

    # --- the end of a resource

    async def clean_up(self, one: GroupPass, now: datetime) -> Happening | None:
        return await self._deletion.clean_up(one.resource, one.memory, now)

    def abandon(self, problem: str) -> Happening:
        return report_abandoned(problem)

    async def release(self, name: Name, manifest: Manifest | None) -> float | None:
        """Let go of the group of a resource that is gone, so that another may act on it soon.

        Every replica tries; when none can, the hold runs out by itself.
        """
        memory = self.memories[name]
        owned = memory.owned
        if owned is None or (manifest and manifest["metadata"]["uid"] == owned.owner.uid):
            return None
        if not memory.is_leaving:
            # A replica that has not heard of the deletion yet would take the hold again.
            memory.is_leaving = True
            return RELEASE_AFTER_S
        memory.owned, memory.is_leaving = None, False
        try:
            await release_group(owned.server, owned.keys, owned.owner)
        except PelopsError as error:
            log.info("cannot let go of the group: %s", error, extra={"resource": "/".join(name)})
        return None

    def forget(self, name: Name) -> None:
        forget_group(*name)

    # --- how it is reported

    def compare(self, wished: Status, live: Mapping[str, Any]) -> Difference:
        return compare(wished, live)

    def measure(self, observation: ObservedGroup, decision: StatusDecision) -> None:
        measure_resource(observation.facts, is_ready=decision.conditions[0].is_true)

    def count(self, *, waiting: int, known: int) -> None:
        QUEUE_DEPTH.set(waiting)
        RESOURCES.set(known)

    # --- what runs beside the passes

    def rank_key(self, metadata: ObjectMeta) -> str:
        """Without the kind: scans and scaling rank for the same key."""
        return metadata.key

    def heed(self, kind: Kind, names: set[Name]) -> None:
        if kind == STREAM_AUDIT:
            return  # what audits say is shown, and changes nothing else
        for name in names:
            self._scans.notice(name)
            self._scaling.notice(kind, name)

    def loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        self._cache.listen(self._hear_pod)
        return (
            self._scans.run(),
            self._scaling.run(),
            self._listening.run(self._listeners),
        )

    def tidy(self) -> None:
        self._clocks.prune()

    def _hear_pod(self, change: PodChange) -> None:
        if change.is_end:
            for name in change.concerned:
                self._wake(name, Trigger.POD_DEATH)

    def _wake(self, name: Name, trigger: str) -> None:
        self._scans.wake(name, Trigger(trigger))

    def _listeners(self) -> Iterator[StreamConsumerGroup]:
        """The resources that ask for their locks' expiry to be listened for."""
        for manifest in list(self._cache.resources.values()):
            locks = ((manifest.get("spec") or {}).get("recovery") or {}).get("locks") or {}
            if locks.get("keyspaceNotifications"):
                with contextlib.suppress(InvalidSpec):
                    yield StreamConsumerGroup.parse(manifest)
