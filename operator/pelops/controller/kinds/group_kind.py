"""StreamConsumerGroups in one replica: their passes, and the loops that recover and scale them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_actions import GroupActions
from pelops.controller.group.group_deletion import GroupDeletion, report_abandoned
from pelops.controller.group.group_observer import (
    GroupMemories,
    GroupMemory,
    GroupObserver,
    GroupPart,
    ObservedGroup,
    OwnedGroup,
    identify,
)
from pelops.controller.group.group_status import compare, measure_resource, render_status
from pelops.controller.group.settled_groups import SettledGroups
from pelops.controller.inspection.inspector import Inspector
from pelops.controller.recovery.dry_runs import DryRuns
from pelops.controller.recovery.lock_expiry import ExpiryListener
from pelops.controller.recovery.pod_evidence import NodeClocks
from pelops.controller.recovery.scan_loop import ScanLoop
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.kind import (
    Difference,
    Finalizer,
    Loop,
    ManagedKind,
    Pass,
    PassIntervals,
    PlannedAction,
    Services,
    Status,
    StatusDecision,
)
from pelops.controller.runtime.namespaces import NamespaceLevels
from pelops.controller.scaling.loop import ScalingLoop
from pelops.controller.workload.pods import PodChange
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.recovery import Trigger
from pelops.errors import InvalidSpec, PelopsError
from pelops.kube.client import STREAM_AUDIT, STREAM_CONSUMER_GROUP, Kind, Manifest
from pelops.kube.event_recorder import EventContent
from pelops.metrics import GROUP_FACTS, RESOURCES, forget_group, forget_group_facts
from pelops.policy.audit.notices import AuditNotice
from pelops.policy.recovery.dry_run import read_dry_run
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.health import shows_nothing_pending, stays_as_it_is
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, Reason
from pelops.redis_streams.group.lifecycle import release_group

log = logging.getLogger(__name__)

RELEASE_AFTER_S: Final = 1.0

GroupPass = Pass[StreamConsumerGroup, GroupMemory]
Notices = Callable[[Name], tuple[AuditNotice, ...]]


class GroupKind(ManagedKind[StreamConsumerGroup, ObservedGroup, GroupMemory]):
    """Groups, their workers, their recovery and their scaling."""

    api = STREAM_CONSUMER_GROUP
    alarms = (*ALARMS, *AUDIT_ALARMS)  # audits report theirs of the groups concerned as well
    is_required = True
    is_shared_out = True

    def __init__(
        self,
        services: Services,
        memories: GroupMemories,
        cache: WorkloadCache,
        observer: GroupObserver,
        actions: GroupActions,
        *,
        finalizer: Finalizer,
        inspector: Inspector,
        clocks: NodeClocks,
        listener: ExpiryListener,
        settled: SettledGroups,
        dry_runs: DryRuns,
        scans: ScanLoop,
        scaling: ScalingLoop,
        notices: Notices,
    ) -> None:
        """Use `build_group_kind`. `notices` returns the messages of audits about a group."""
        super().__init__(services.clock, memories)
        self.finalizer = finalizer
        self.inspector = inspector
        self._settings = services.settings
        self._members = services.members
        self._cache = cache
        self._shared = SharedWorkloads(cache)
        self._levels = NamespaceLevels(services.api, services.clock)
        self._observer = observer
        self._deletion = GroupDeletion(observer)
        self._actions = actions
        self._clocks = clocks
        self._listener = listener
        self._settled = settled
        self._dry_runs = dry_runs
        self._scans = scans
        self._scaling = scaling
        self._notices = notices

    # --- a pass

    def parse(self, manifest: Manifest) -> StreamConsumerGroup:
        return StreamConsumerGroup.parse(manifest)

    async def observe(self, current: GroupPass) -> ObservedGroup:
        """What is known, with what audits say, and what this replica has decided if it scales."""
        self._settled.drop(current.name)
        observed = await self._observer.observe(current.resource)
        scaling = observed.facts.scaling
        if scaling is None and current.rank == 0:
            scaling = self._scaling.decision(current.name)
        sharing, demands = observed.facts.sharing, None
        leader = sharing.leader if sharing is not None and sharing.is_shared else None
        if leader is not None and current.rank == 0:
            demands = self._scaling.demands((current.name[0], leader.name))
        changes: dict[str, Any] = {
            "scaling": scaling,
            "audits": self._notices(current.name),
            "demands": demands,
        }
        if observed.facts.is_dry and observed.facts.recovers:
            status = current.resource.status
            reported = read_dry_run(status.recovery if status else None)
            changes["dry_run"] = self._dry_runs.get(current.resource.metadata) or reported
        observed = replace(observed, facts=replace(observed.facts, **changes))
        if current.resource.spec.template is not None:
            observed = replace(observed, level=await self._levels.level(current.name[0]))
        server, keys, memory = observed.server, observed.facts.keys, current.memory
        if server is not None and keys is not None:
            if observed.facts.is_group_ready:
                if memory.owned is None and current.rank == 0:
                    self._scans.wake(current.name, Trigger.START_UP)
                memory.owned = OwnedGroup(server, keys, observed.owner, current.resource.spec.redis)
            memory.switch_to(identify(current.resource, server, keys))
        return observed

    def actions(self, observation: ObservedGroup, current: GroupPass) -> Iterator[PlannedAction]:
        return self._actions.missing(observation, current.memory)

    def add_problem(
        self, observation: ObservedGroup, part: str | None, error: PelopsError
    ) -> ObservedGroup:
        return observation.with_problem(GroupPart(part or GroupPart.WORKLOAD), error)

    def decide_status(
        self, observation: ObservedGroup, current: GroupPass, now: datetime
    ) -> StatusDecision:
        facts = observation.facts
        conditions, problem = decide_conditions(facts), facts.redis_problem
        is_newer = problem is not None and problem.reason == Reason.NEWER_FORMAT
        return StatusDecision(
            status=render_status(facts, conditions, current.previous, now),
            conditions=conditions,
            problem=problem or facts.workload_problem,
            # Side by side during an upgrade, the two would write their views by turns.
            is_left_to_newer=is_newer and self._members.is_outdated(),
        )

    def intervals(self, known: int) -> PassIntervals:
        """Longer with very many resources, so that one replica keeps up."""
        return PassIntervals(
            observe_s=max(self._settings.observe_s, known * 0.01),
            status_s=max(self._settings.status_s, known * 0.02),
            together_s=max(1.0, known * 0.001),
            seldom=max(10, min(30, known // 50)),
        )

    def rest_s(
        self, observation: ObservedGroup, current: GroupPass, decision: StatusDecision
    ) -> float | None:
        if not stays_as_it_is(decision.conditions[0]):
            return None
        observe_s = self.intervals(len(self._cache.resources)).observe_s
        fresh_for = self._settled.add(current.name, observation, every_s=observe_s)
        return None if fresh_for is None else max(observe_s, fresh_for.total_seconds())

    # --- the end of a resource

    async def clean_up(self, current: GroupPass, now: datetime) -> EventContent | None:
        return await self._deletion.clean_up(current.resource, current.memory, now)

    def abandon(self, problem: str) -> EventContent:
        return report_abandoned(problem)

    async def release(self, name: Name, manifest: Manifest | None) -> float | None:
        """Remove the ownership record of a deleted resource, so that another can use the group.

        Every replica tries it. If none succeeds, the record expires.
        """
        memory = self.memories[name]
        owned = memory.owned
        if owned is None or (manifest and manifest["metadata"]["uid"] == owned.owner.uid):
            return None
        if not memory.is_leaving:
            # A replica that does not know of the deletion yet would write the record again.
            memory.is_leaving = True
            return RELEASE_AFTER_S
        memory.owned, memory.is_leaving = None, False
        try:
            await release_group(owned.server, owned.keys, owned.owner)
        except PelopsError as error:
            log.info(
                "Could not remove the ownership record of the group: %s",
                error,
                extra={"resource": "/".join(name)},
            )
        return None

    def forget(self, name: Name) -> None:
        self._settled.drop(name)
        forget_group(*name)
        self._dry_runs.forget(name)

    # --- how it is reported

    def compare(self, wished: Status, live: Mapping[str, Any]) -> Difference:
        return compare(wished, live)

    def measure(self, observation: ObservedGroup, decision: StatusDecision) -> None:
        measure_resource(observation.facts, is_ready=decision.conditions[0].is_true)

    def measure_failure(self, name: Name) -> None:
        self._settled.drop(name)
        GROUP_FACTS["ready"].set(0, *name)

    def stand_by(self, name: Name) -> None:
        self._settled.drop(name)
        forget_group_facts(*name)

    def count(self, known: int) -> None:
        RESOURCES.set(known)

    # --- what runs beside the passes

    def rank_key(self, name: Name) -> str:
        """The workers, as for scaling: who decides about them knows what each group asks for."""
        return self._shared.key(name)

    def notice(self, kind: Kind, names: set[Name]) -> None:
        if kind == STREAM_AUDIT:
            return  # what audits say is shown, and changes nothing else
        for name in names:
            self._scans.notice(name)
            self._scaling.notice(kind, name)

    def loops(self) -> Mapping[str, Loop]:
        self._cache.listen(self._notice_pod)
        return {
            "scan": self._scans.run,
            "scaling": self._scaling.run,
            "settled groups": self._settled.run,
            "lock expiry": partial(
                self._listener.run, lambda: with_lock_expiry(self._cache.resources.values())
            ),
        }

    def is_settled(self, name: Name) -> bool:
        """Whether nothing of a group is pending, as was read or, by another replica, reported."""
        manifest = self._cache.resources.get(name)
        if manifest is None or self._members.place(self.rank_key(name)) == 0:
            return self._settled.is_settled(name)
        generation = manifest["metadata"].get("generation", 0)
        return shows_nothing_pending(manifest.get("status") or {}, generation)

    def prune(self) -> None:
        self._clocks.prune()

    def _notice_pod(self, change: PodChange) -> None:
        if change.is_end:
            for name in change.concerned:
                self._scans.wake(name, Trigger.POD_DEATH)


def with_lock_expiry(manifests: Iterable[Manifest]) -> Iterator[StreamConsumerGroup]:
    """The resources that ask for the expiry of their locks, and whose entries are recovered."""
    for manifest in list(manifests):
        # Without the schema of the CRD, any field may be missing or of another type.
        with contextlib.suppress(InvalidSpec, KeyError, TypeError):
            if manifest["spec"]["recovery"]["tuning"]["keyspaceNotifications"]:
                resource = StreamConsumerGroup.parse(manifest)
                if resource.spec.recovery.is_enabled and not resource.spec.suspend:
                    yield resource
