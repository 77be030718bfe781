"""StreamConsumerGroups in one replica: their actions, deletion, passes, and the loops beside these.

`GroupActions` chooses the next action for a group, one at a time. `GroupDeletion` destroys or keeps
the group when its resource goes; deletion never hangs. `GroupKind` is what the runtime calls; it
starts the loops that recover and scale.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup, StreamConsumerGroupSpec
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
from pelops.controller.group.upkeep import UpkeepActions, find_before
from pelops.controller.group.workload_actions import BudgetActions, WorkloadActions
from pelops.controller.inspection.inspector import InspectionParts, Inspector
from pelops.controller.recovery.lock_expiry import ExpiryListener
from pelops.controller.recovery.pod_evidence import LivenessEvidence, NodeClocks
from pelops.controller.recovery.scanner import ScanAdapters, ScanLoop, Scanner
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
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
from pelops.controller.scaling.loop import ScalingLoop, ScalingParts
from pelops.controller.workload.pods import PodChange
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.ledger import CreationReason, GroupCreation
from pelops.domain.naming import GroupKeys
from pelops.domain.quantities import render_count
from pelops.domain.recovery import Trigger
from pelops.errors import InvalidSpec, NotFound, PelopsError
from pelops.kube.client import STREAM_AUDIT, STREAM_CONSUMER_GROUP, Kind, Manifest
from pelops.kube.event_recorder import EventContent
from pelops.metrics import GROUP_FACTS, RESOURCES, forget_group, forget_group_facts
from pelops.policy.audit.notices import AuditNotice
from pelops.policy.group.losses import find_vanished
from pelops.policy.group.position import report_creation
from pelops.policy.group.provisioning import (
    CleanupAction,
    CleanupDecision,
    Lack,
    decide_cleanup,
    decide_finalizer,
    needs_offer_stream,
    needs_retry_stream,
    plan_provisioning,
)
from pelops.policy.recovery.dry_run import read_dry_run
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.health import shows_nothing_pending, stays_as_it_is
from pelops.policy.status.reasons import ALARMS, AUDIT_ALARMS, Reason
from pelops.redis_streams.group.lifecycle import (
    DestroyVerdict,
    destroy_group,
    provision_group,
    release_group,
)

log = logging.getLogger(__name__)


FINALIZER = "pelops.dev/group"


class GroupActions:
    """Finds what is missing of an observed group."""

    def __init__(
        self,
        finalizer: Finalizer,
        workload: WorkloadActions,
        upkeep: UpkeepActions,
        budget: BudgetActions,
    ) -> None:
        self._finalizer = finalizer
        self._workload = workload
        self._upkeep = upkeep
        self._budget = budget

    def missing(self, observed: ObservedGroup, memory: GroupMemory) -> Iterator[PlannedAction]:
        """What is not as it should be, in the order in which it is done. Raises InvalidSpec.

        Nothing in a dry run: here decisions become writes.
        """
        facts = observed.facts
        if facts.resource.spec.suspend or facts.is_dry or facts.redis_problem is not None:
            return
        first = self._settle_finalizer(observed) or self._provision(observed, memory)
        if first is not None:
            yield first
        elif facts.is_group_ready:
            # Workers first: what keeps a group safe must not keep it waiting.
            # No part reads what the actions of another part change.
            for part in (self._workload, self._upkeep, self._budget):
                action = part.next_action(observed, memory)
                if action is not None:
                    yield action

    def _settle_finalizer(self, observed: ObservedGroup) -> PlannedAction | None:
        resource = observed.facts.resource
        wanted = decide_finalizer(
            deletes_group=resource.spec.deletion_policy == "Delete",
            has_finalizer=self._finalizer.is_on(resource.metadata),
        )
        if wanted is None:
            return None

        async def write() -> None:
            change = self._finalizer.add if wanted else self._finalizer.remove
            await change(resource.metadata)

        what = "add the finalizer" if wanted else "remove the finalizer"
        return PlannedAction(part=GroupPart.RESOURCE, what=what, do=write)

    def _provision(self, observed: ObservedGroup, memory: GroupMemory) -> PlannedAction | None:
        facts, server = observed.facts, observed.server
        if facts.stream is None or facts.keys is None or server is None:
            return None
        existed = was_created(observed)
        plan = plan_provisioning(
            facts.resource.spec, facts.stream, observed.owner, was_created=existed
        )
        if not plan.lacks:
            return None
        keys, spec = facts.keys, facts.resource.spec
        ownership = facts.stream.ownership
        is_ours = existed or (ownership is not None and ownership.owner.is_same_as(observed.owner))
        before = find_before(observed, memory) if is_ours else None
        loss = find_vanished(before, facts.stream)

        async def write() -> EventContent | None:
            provisioned = await provision_group(
                server,
                keys,
                start=plan.start,
                owner=observed.owner,
                with_retry=needs_retry_stream(spec),
                with_offers=needs_offer_stream(spec),
                existed=existed,
                newest=before.last_delivered_id if before else None,
                loss=loss,
            )
            if provisioned.creation is not None:
                memory.holders = None
                memory.last_seen = None  # a group that was made anew has not gone back
            return build_creation_event(provisioned.creation)

        return PlannedAction(
            part=GroupPart.GROUP,
            what=plan.message,
            do=write,
            is_routine=plan.lacks == (Lack.OWNERSHIP,),
        )


def build_creation_event(creation: GroupCreation | None) -> EventContent | None:
    """A group that was there is made by one replica alone, and that one tells."""
    if creation is None:
        return None
    is_first = creation.why is CreationReason.FIRST
    return EventContent(
        type="Normal" if is_first else "Warning",
        reason=Reason.GROUP_CREATED if is_first else Reason.GROUP_RECREATED,
        action="Provision",
        note=report_creation(creation),
        occurrence=str(creation.position),
    )


def was_created(observed: ObservedGroup) -> bool:
    """Whether the group existed before, as the resource's status remembers."""
    status = observed.facts.resource.status
    return bool(status and status.group and status.group.last_delivered_id)


class GroupDeletion:
    """Cleans up after resources that are being deleted and have the finalizer."""

    def __init__(self, observer: GroupObserver) -> None:
        self._observer = observer

    async def clean_up(
        self, resource: StreamConsumerGroup, memory: GroupMemory, now: datetime
    ) -> EventContent | None:
        """Destroy the group if that is asked for: what is reported, None when it was gone.

        Raises PelopsError when it did not work.
        """
        decision = decide_cleanup(
            deletes_group=_deletes_group(resource.spec),
            deleted_at=resource.metadata.deletion_timestamp or now,
            failure=memory.cleanup_failure,
            now=now,
        )
        note, is_loss = decision.message, False
        if decision.action is CleanupAction.DESTROY:
            note, is_loss = await self._destroy(resource, memory.owned)
        return report_removed(decision, note, is_loss=is_loss) if note else None

    async def _destroy(
        self, resource: StreamConsumerGroup, owned: OwnedGroup | None
    ) -> tuple[str, bool]:
        """Destroy the group unless it is another's: what became of it, empty when it was gone, and
        whether entries went with it that nobody acknowledged.
        """
        try:
            server, keys = await self._observer.connect(resource)
        except NotFound:
            # With a whole namespace, the Secret often goes first; the connection is still there.
            if owned is None or owned.redis != resource.spec.redis:
                raise
            server, keys = owned.server, owned.keys
        destroyed = await destroy_group(server, keys, self._observer.owner_of(resource))
        if destroyed.verdict is DestroyVerdict.DESTROYED:
            return describe_destroyed(keys, destroyed.copies), destroyed.copies > 0
        if destroyed.verdict is DestroyVerdict.ABSENT:
            return "", False  # most often another replica was faster, and reports it
        return f"Did not destroy group {keys.group}: another StreamConsumerGroup manages it", False


def _deletes_group(spec: StreamConsumerGroupSpec) -> bool:
    is_asked_for = spec.deletion_policy == "Delete"
    return is_asked_for and not spec.suspend and not spec.recovery.dry_run


def report_abandoned(problem: str) -> EventContent:
    """A resource goes whose spec cannot be read: nobody can say what to destroy."""
    note = (
        "The group stays in Redis (remove it with XGROUP DESTROY), because the spec cannot be "
        f"parsed: {problem}"
    )
    return EventContent(
        type="Warning", reason=Reason.GROUP_NOT_DESTROYED, action="Delete", note=note
    )


def describe_destroyed(keys: GroupKeys, copies: int) -> str:
    """What went with the group, and what stays."""
    note = f"Destroyed group {keys.group}; its stream and its dead letters stay in Redis"
    if not copies:
        return note
    return (
        f"{note}. Its retry stream {keys.retry} was deleted with at least "
        f"{render_count(copies, 'copy', 'copies')} of stuck entries that were not acknowledged. "
        "While the stream contains the originals, a new group with startFrom: Beginning "
        "delivers them again"
    )


def report_removed(decision: CleanupDecision, note: str, *, is_loss: bool) -> EventContent:
    """The Event for a resource that was deleted."""
    is_left = decision.reason is Reason.GROUP_NOT_DESTROYED
    return EventContent(
        type="Warning" if is_left or is_loss else "Normal",
        reason=decision.reason,
        action="Delete",
        note=note,
    )


RELEASE_AFTER_S: Final = 1.0

GroupPass = Pass[StreamConsumerGroup, GroupMemory]
Notices = Callable[[Name], tuple[AuditNotice, ...]]


class GroupKind(ManagedKind[StreamConsumerGroup, ObservedGroup, GroupMemory]):
    """Groups, their workers, their recovery and their scaling."""

    api = STREAM_CONSUMER_GROUP
    alarms = (*ALARMS, *AUDIT_ALARMS)  # audits report theirs of the groups concerned as well
    is_required = True
    is_shared_out = True

    def __init__(self, services: Services, *, cluster: str, notices: Notices) -> None:
        """`cluster` identifies this Kubernetes cluster; `notices` is what audits say of a group."""
        memories = GroupMemories()
        super().__init__(services.clock, memories)
        api, clock, settings = services.api, services.clock, services.settings
        self._settings = settings
        self._members = services.members
        self._notices = notices
        cache = self._cache = WorkloadCache(clock, services.cache)
        self._shared = SharedWorkloads(cache)
        targets = Targets(api, cache, clock)
        observer = GroupObserver(cache, services.connections, targets, cluster=cluster)
        reporter = Reporter(api, self.api, identity=settings.identity)
        self._levels = NamespaceLevels(api, clock)
        self.finalizer = Finalizer(api, services.cache, self.api, FINALIZER)
        self._observer = observer
        self._deletion = GroupDeletion(observer)
        self._actions = GroupActions(
            self.finalizer,
            WorkloadActions(api, cache, targets, observer),
            UpkeepActions(api, cache, identity=settings.identity),
            BudgetActions(api, cache),
        )
        self._listening = ExpiryListener(observer.connect, self._wake)
        self._clocks = NodeClocks(api, clock)
        evidence = LivenessEvidence(api, cache, cluster=cluster, clocks=self._clocks)
        skew = timedelta(seconds=settings.skew_s)
        self.inspector = Inspector(
            InspectionParts(
                cache=cache, observer=observer, evidence=evidence, targets=targets, skew=skew
            )
        )
        self._settled = SettledGroups(
            services.connections, self.queue.add, services.progress, clock
        )
        parts = ScanAdapters(
            cache=cache,
            observer=observer,
            members=services.members,
            evidence=evidence,
            targets=targets,
            skew=skew,
            reporter=reporter,
            hears=self._listening.problem,
            identity=settings.identity,
            make_due=self.queue.add,
            is_settled=self._is_settled,
        )
        scanner = Scanner(parts, clock)
        self._dry_runs = scanner.dry_runs
        self._scans = ScanLoop(scanner, cache, services.members, services.progress, clock)
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
        self._scaling = ScalingLoop(scaling_parts, services.progress, clock)

    # --- a pass

    def parse(self, manifest: Manifest) -> StreamConsumerGroup:
        return StreamConsumerGroup.parse(manifest)

    async def observe(self, one: GroupPass) -> ObservedGroup:
        """What is known, with what audits say, and what this replica has decided if it scales."""
        self._settled.drop(one.name)
        observed = await self._observer.observe(one.resource)
        scaling = observed.facts.scaling
        if scaling is None and one.rank == 0:
            scaling = self._scaling.decision(one.name)
        part, demands = observed.facts.part, None
        if part is not None and part.is_shared and part.leader is not None and one.rank == 0:
            demands = self._scaling.demands((one.name[0], part.leader.name))
        changes: dict[str, Any] = {
            "scaling": scaling,
            "audits": self._notices(one.name),
            "demands": demands,
        }
        if observed.facts.is_dry and observed.facts.recovers:
            status = one.resource.status
            reported = read_dry_run(status.recovery if status else None)
            changes["dry_run"] = self._dry_runs.get(one.resource.metadata) or reported
        observed = replace(observed, facts=replace(observed.facts, **changes))
        if one.resource.spec.template is not None:
            observed = replace(observed, level=await self._levels.level(one.name[0]))
        server, keys, memory = observed.server, observed.facts.keys, one.memory
        if server is not None and keys is not None:
            if observed.facts.is_group_ready:
                if memory.owned is None and one.rank == 0:
                    self._scans.wake(one.name, Trigger.START_UP)
                memory.owned = OwnedGroup(server, keys, observed.owner, one.resource.spec.redis)
            memory.look_at(identify(one.resource, server, keys))
        return observed

    def actions(self, observation: ObservedGroup, one: GroupPass) -> Iterator[PlannedAction]:
        return self._actions.missing(observation, one.memory)

    def blame(
        self, observation: ObservedGroup, part: str | None, error: PelopsError
    ) -> ObservedGroup:
        return observation.with_problem(GroupPart(part or GroupPart.WORKLOAD), error)

    def decide_status(
        self, observation: ObservedGroup, one: GroupPass, now: datetime
    ) -> StatusDecision:
        facts = observation.facts
        conditions, problem = decide_conditions(facts), facts.redis_problem
        is_newer = problem is not None and problem.reason == Reason.NEWER_FORMAT
        return StatusDecision(
            status=render_status(facts, conditions, one.previous, now),
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
        self, observation: ObservedGroup, one: GroupPass, decision: StatusDecision
    ) -> float | None:
        if not stays_as_it_is(decision.conditions[0]):
            return None
        observe_s = self.intervals(len(self._cache.resources)).observe_s
        holds = self._settled.add(one.name, observation, every_s=observe_s)
        return None if holds is None else max(observe_s, holds.total_seconds())

    # --- the end of a resource

    async def clean_up(self, one: GroupPass, now: datetime) -> EventContent | None:
        return await self._deletion.clean_up(one.resource, one.memory, now)

    def abandon(self, problem: str) -> EventContent:
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

    def heed(self, kind: Kind, names: set[Name]) -> None:
        if kind == STREAM_AUDIT:
            return  # what audits say is shown, and changes nothing else
        for name in names:
            self._scans.notice(name)
            self._scaling.notice(kind, name)

    def loops(self) -> Mapping[str, Loop]:
        self._cache.listen(self._hear_pod)
        return {
            "scan": self._scans.run,
            "scaling": self._scaling.run,
            "settled groups": self._settled.run,
            "lock expiry": partial(self._listening.run, self._listeners),
        }

    def tidy(self) -> None:
        self._clocks.prune()

    def _is_settled(self, name: Name) -> bool:
        """Whether nothing of a group is pending, as was read or, by another replica, reported."""
        manifest = self._cache.resources.get(name)
        if manifest is None or self._members.place(self.rank_key(name)) == 0:
            return self._settled.holds(name)
        generation = manifest["metadata"].get("generation", 0)
        return shows_nothing_pending(manifest.get("status") or {}, generation)

    def _hear_pod(self, change: PodChange) -> None:
        if change.is_end:
            for name in change.concerned:
                self._wake(name, Trigger.POD_DEATH)

    def _wake(self, name: Name, trigger: str) -> None:
        self._scans.wake(name, Trigger(trigger))

    def _listeners(self) -> Iterator[StreamConsumerGroup]:
        """The resources that ask for their locks' expiry to be listened for."""
        for manifest in list(self._cache.resources.values()):
            recovery = (manifest.get("spec") or {}).get("recovery") or {}
            if (recovery.get("tuning") or {}).get("keyspaceNotifications"):
                with contextlib.suppress(InvalidSpec):
                    yield StreamConsumerGroup.parse(manifest)
