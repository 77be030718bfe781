"""The actions that are missing of a group, in the order in which they are done."""

from __future__ import annotations

from collections.abc import Iterator

from pelops.controller.group.group_observer import GroupMemory, GroupPart, ObservedGroup
from pelops.controller.group.upkeep import UpkeepActions, find_before
from pelops.controller.group.workload_actions import BudgetActions, WorkloadActions
from pelops.controller.runtime.kind import Finalizer, PlannedAction
from pelops.domain.records.ledger import CreationReason, GroupCreation
from pelops.kube.event_recorder import EventContent
from pelops.policy.group.losses import find_vanished
from pelops.policy.group.position import report_creation
from pelops.policy.group.provisioning import (
    MissingPart,
    decide_finalizer,
    needs_offer_stream,
    needs_retry_stream,
    plan_provisioning,
)
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.group.lifecycle import provision_group


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
        first = self._ensure_finalizer(observed) or self._provision(observed, memory)
        if first is not None:
            yield first
        elif facts.is_group_ready:
            # Workers first: what keeps a group safe must not keep it waiting.
            # No part reads what the actions of another part change.
            for part in (self._workload, self._upkeep, self._budget):
                action = part.next_action(observed, memory)
                if action is not None:
                    yield action

    def _ensure_finalizer(self, observed: ObservedGroup) -> PlannedAction | None:
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
        if not plan.missing:
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
                memory.last_seen = (
                    None  # the position of a new group cannot be compared with the former one
                )
            return build_creation_event(provisioned.creation)

        return PlannedAction(
            part=GroupPart.GROUP,
            what=plan.message,
            do=write,
            is_routine=plan.missing == (MissingPart.OWNERSHIP,),
        )


def build_creation_event(creation: GroupCreation | None) -> EventContent | None:
    """The Event for the group that this replica has created."""
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
