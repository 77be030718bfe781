"""The next action for a group: one at a time, then a new observation."""

from __future__ import annotations

from pelops.controller.group.memory import GroupMemory
from pelops.controller.group.observation import GroupPart, ObservedGroup
from pelops.controller.group.upkeep import UpkeepActions, find_before
from pelops.controller.group.workload import BudgetActions, WorkloadActions
from pelops.controller.runtime.kind import Finalizer, PlannedAction
from pelops.domain.ledger import CreationReason, GroupCreation
from pelops.kube.events import Happening
from pelops.policy.group.losses import find_vanished
from pelops.policy.group.position import report_creation
from pelops.policy.group.provisioning import (
    Lack,
    decide_finalizer,
    needs_offer_stream,
    needs_retry_stream,
    plan_provisioning,
)
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.group.provisioning import provision_group

FINALIZER = "pelops.dev/group"


class GroupActions:
    """Finds the next action for an observed group."""

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

    def next_action(self, observed: ObservedGroup, memory: GroupMemory) -> PlannedAction | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        facts = observed.facts
        if facts.resource.spec.suspend or facts.redis_problem is not None:
            return None
        action = self._settle_finalizer(observed) or self._provision(observed, memory)
        if action is None and facts.is_group_ready:
            # Workers first: what keeps a group safe must not keep it waiting.
            return (
                self._workload.next_action(observed, memory)
                or self._upkeep.next_action(observed, memory)
                or self._budget.next_action(observed, memory)
            )
        return action

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

        what = "adding the finalizer" if wanted else "removing the finalizer"
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

        async def write() -> Happening | None:
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
            return _report_creation(provisioned.creation)

        return PlannedAction(
            part=GroupPart.GROUP,
            what=plan.message,
            do=write,
            is_routine=plan.lacks == (Lack.OWNERSHIP,),
        )


def _report_creation(creation: GroupCreation | None) -> Happening | None:
    """A group that was there is made by one replica alone, and that one tells."""
    if creation is None:
        return None
    is_first = creation.why is CreationReason.FIRST
    return Happening(
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
