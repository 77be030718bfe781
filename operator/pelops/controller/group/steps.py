"""The next write for a resource: one at a time, then a fresh look."""

from __future__ import annotations

from pelops.api.meta import ObjectMeta
from pelops.controller.group.disruption_budget import BudgetSteps
from pelops.controller.group.memory import Memory
from pelops.controller.group.observation import View
from pelops.controller.group.upkeep import UpkeepSteps, find_before
from pelops.controller.group.workload import WorkloadSteps
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.passes import Part, Step
from pelops.domain.ledger import CreationReason, GroupCreation
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.events import Happening
from pelops.kube.resources import STREAM_CONSUMER_GROUP
from pelops.policy.group.losses import find_vanished
from pelops.policy.group.position import tell_creation
from pelops.policy.group.provisioning import (
    Lack,
    decide_finalizer,
    needs_handover_stream,
    needs_retry_stream,
    plan_provisioning,
)
from pelops.policy.status.reasons import Reason
from pelops.redis_streams.group.provisioning import provision_group

FINALIZER = "pelops.dev/group"
FINALIZER_MANAGER = "pelops-finalizer"


class Steps:
    """Finds the next step for a view."""

    def __init__(
        self, api: KubeApi, cache: Cache, workload: WorkloadSteps, upkeep: UpkeepSteps
    ) -> None:
        self._api = api
        self._cache = cache
        self._workload = workload
        self._upkeep = upkeep
        self._budget = BudgetSteps(api, cache)

    def next_step(self, view: View, memory: Memory) -> Step | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        facts = view.facts
        if facts.resource.spec.suspend or facts.redis_problem is not None:
            return None
        step = self._finalizer(view) or self._group(view, memory)
        if step is None and facts.is_group_ready:
            # Workers first: what keeps a group safe must not keep it waiting.
            return (
                self._workload.next_step(view, memory)
                or self._upkeep.next_step(view, memory)
                or self._budget.next_step(view, memory)
            )
        return step

    def _finalizer(self, view: View) -> Step | None:
        resource = view.facts.resource
        wanted = decide_finalizer(
            deletes_group=resource.spec.deletion_policy == "Delete",
            has_finalizer=FINALIZER in resource.metadata.finalizers,
        )
        if wanted is None:
            return None

        async def write() -> None:
            change = add_finalizer if wanted else remove_finalizer
            await change(self._api, self._cache, resource.metadata)

        what = "adding the finalizer" if wanted else "removing the finalizer"
        return Step(part=Part.RESOURCE, what=what, do=write)

    def _group(self, view: View, memory: Memory) -> Step | None:
        facts, server = view.facts, view.server
        if facts.stream is None or facts.keys is None or server is None:
            return None
        existed = was_created(view)
        plan = plan_provisioning(facts.resource.spec, facts.stream, view.owner, was_created=existed)
        if not plan.lacks:
            return None
        keys, spec = facts.keys, facts.resource.spec
        hold = facts.stream.hold
        is_ours = existed or (hold is not None and hold.owner.is_same_as(view.owner))
        before = find_before(view, memory) if is_ours else None
        loss = find_vanished(before, facts.stream)

        async def write() -> Happening | None:
            provisioned = await provision_group(
                server,
                keys,
                start=plan.start,
                owner=view.owner,
                with_retry=needs_retry_stream(spec),
                with_handover=needs_handover_stream(spec),
                existed=existed,
                newest=before.last_delivered_id if before else None,
                loss=loss,
            )
            if provisioned.creation is not None:
                memory.holders = None
                memory.last_seen = None  # a group that was made anew has not gone back
            return _tell_creation(provisioned.creation)

        return Step(
            part=Part.GROUP,
            what=plan.message,
            do=write,
            is_routine=plan.lacks == (Lack.HOLD,),
        )


def _tell_creation(creation: GroupCreation | None) -> Happening | None:
    """A group that was there is made by one replica alone, and that one tells."""
    if creation is None:
        return None
    is_first = creation.why is CreationReason.FIRST
    return Happening(
        type="Normal" if is_first else "Warning",
        reason=Reason.GROUP_CREATED if is_first else Reason.GROUP_RECREATED,
        action="Provision",
        note=tell_creation(creation),
        occurrence=str(creation.position),
    )


async def add_finalizer(api: KubeApi, cache: Cache, metadata: ObjectMeta) -> None:
    """Add our finalizer and nothing else. Repeats safely.

    The uid keeps an apply from bringing a deleted resource back.
    """
    body: Manifest = {
        "apiVersion": STREAM_CONSUMER_GROUP.api_version,
        "kind": STREAM_CONSUMER_GROUP.kind,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "finalizers": [FINALIZER],
        },
    }
    answer = await api.apply(_address(metadata), body, manager=FINALIZER_MANAGER)
    cache.put(STREAM_CONSUMER_GROUP, answer)


async def remove_finalizer(api: KubeApi, cache: Cache, metadata: ObjectMeta) -> None:
    """Remove our finalizer, whoever else claims it, and no other.

    An apply would leave it to a co-owner (whoever applied an exported manifest), and the resource
    would never go. Raises Conflict when the resource has changed meanwhile: look again.
    """
    others = [name for name in metadata.finalizers if name != FINALIZER]
    body: Manifest = {
        "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "finalizers": others,
        }
    }
    answer = await api.merge(_address(metadata), body, manager=FINALIZER_MANAGER)
    cache.put(STREAM_CONSUMER_GROUP, answer)


def _address(metadata: ObjectMeta) -> Address:
    return Address(kind=STREAM_CONSUMER_GROUP, namespace=metadata.namespace, name=metadata.name)


def was_created(view: View) -> bool:
    """Whether the group existed before, as the resource's status remembers."""
    status = view.facts.resource.status
    return bool(status and status.group and status.group.last_delivered_id)
