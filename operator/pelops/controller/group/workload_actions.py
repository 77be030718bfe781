"""The next action for the workers: their Deployment, its replicas, their PodDisruptionBudget."""

from __future__ import annotations

import logging
from typing import Final

from pelops.controller.group.group_observer import (
    GroupMemory,
    GroupObserver,
    GroupPart,
    ObservedGroup,
)
from pelops.controller.group.victims import GroupWorkers, Victims
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.kind import PlannedAction
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import Deployment, WorkloadCache
from pelops.domain.records.packed_parts import unpack
from pelops.errors import Forbidden, InvalidSpec, Rejected
from pelops.kube.client import DEPLOYMENT, DISRUPTION_BUDGET, Address, KubeApi, Manifest
from pelops.kube.disruption_budget import DisruptionBudget, build_budget, is_as_built
from pelops.kube.event_recorder import EventContent
from pelops.kube.pod_security import hold_template
from pelops.kube.worker_deployment import (
    build_deployment,
    deployment_name,
    fingerprint_of,
    is_applied,
    worker_labels,
)
from pelops.policy.scaling.decision import is_automatic
from pelops.policy.status.reasons import Reason

log = logging.getLogger(__name__)

REFUSED_S: Final = 600.0  # how long a refusal is accepted; workers run without a budget too


class WorkloadActions:
    """Finds the next action for the workers of a group that is ready."""

    def __init__(
        self, api: KubeApi, cache: WorkloadCache, targets: Targets, observer: GroupObserver
    ) -> None:
        self._api = api
        self._cache = cache
        self._targets = targets
        self._victims = Victims(api, cache, observer)

    def next_action(self, observed: ObservedGroup, memory: GroupMemory) -> PlannedAction | None:
        """The first thing that is not as it should be, or None. Raises InvalidSpec."""
        has_template = observed.facts.resource.spec.template is not None
        # What is no longer asked for goes, whatever keeps the new target from being used.
        action = None if has_template else self._remove_former(observed)
        if action is not None or observed.facts.workload_problem is not None:
            return action
        if has_template:
            action = self._apply_deployment(observed, memory)
        return action or self._scale(observed)

    def _apply_deployment(
        self, observed: ObservedGroup, memory: GroupMemory
    ) -> PlannedAction | None:
        resource, keys = observed.facts.resource, observed.facts.keys
        if keys is None:
            raise InvalidSpec("the group's keys are not known")
        metadata = resource.metadata
        name = (metadata.namespace, deployment_name(metadata.name))
        known = self._cache.deployments.get(name)
        live = known.manifest if known else None
        version = _version(live) if live else ""
        seen = (metadata.uid, metadata.generation, observed.access, observed.level, version)
        if memory.confirmed == seen:
            return None
        body = build_deployment(resource, keys, observed.access)
        hold_template(body, observed.level, "spec", "template")
        fingerprint = fingerprint_of(body)  # without the replicas, which are not compared
        if live is not None and (
            is_applied(body, unpack(live))
            or memory.unchanged_apply == _apply_key(live, fingerprint)
        ):
            memory.confirmed = seen
            return None
        if known is None or known.replicas_owner is None:
            # No other field manager owns the number: an apply without it would reset it to 1.
            body["spec"]["replicas"] = _replicas(observed)

        async def write() -> None:
            answer = await self._api.apply(_address(name), body)
            if live is not None and _version(answer) == _version(live):
                memory.unchanged_apply = _apply_key(answer, fingerprint)
            self._cache.put(DEPLOYMENT, answer)

        what = f"update Deployment {name[1]}" if live else f"create Deployment {name[1]}"
        spec = resource.spec
        return PlannedAction(
            part=GroupPart.WORKLOAD,
            what=what,
            do=write,
            secrets=(*spec.redis.secret_refs, spec.worker_secret_ref),
        )

    def _remove_former(self, observed: ObservedGroup) -> PlannedAction | None:
        """The Deployment of a `template` that the resource no longer has."""
        metadata = observed.facts.resource.metadata
        name = (metadata.namespace, deployment_name(metadata.name))
        known = self._cache.deployments.get(name)
        if known is None or not _belongs_to(known, metadata.uid):
            return None
        uid = known.observation.uid

        async def write() -> None:
            await self._api.delete(_address(name), uid=uid)
            self._cache.remove(DEPLOYMENT, name, uid)

        what = f"delete Deployment {name[1]}, because spec.template was removed"
        return PlannedAction(part=GroupPart.WORKLOAD, what=what, do=write)

    def _scale(self, observed: ObservedGroup) -> PlannedAction | None:
        facts = observed.facts
        if facts.scaling is None or is_automatic(facts.resource.spec):
            return None  # the scale loop observes more often
        replicas, workload = facts.scaling.replicas, facts.workload
        if replicas is None or not workload.exists or workload.wished == replicas:
            return None

        async def write() -> None:
            await self._name_victims(observed, replicas)
            await self._targets.scale(workload.target, replicas)

        what = f"scale {workload.target} from {workload.wished} to {replicas} replicas"
        return PlannedAction(part=GroupPart.WORKLOAD, what=what, do=write)

    async def _name_victims(self, observed: ObservedGroup, replicas: int) -> None:
        facts = observed.facts
        leaving = (facts.workload.wished or 0) - replicas
        if replicas == 0 or leaving <= 0 or observed.server is None or facts.keys is None:
            return
        workers = GroupWorkers(
            resource=facts.resource,
            server=observed.server,
            keys=facts.keys,
            workload=facts.workload,
        )
        await self._victims.name_victims(workers, leaving)


def _belongs_to(deployment: Deployment, uid: str) -> bool:
    return deployment.observation.controller_uid == uid


def _address(name: Name) -> Address:
    return Address(kind=DEPLOYMENT, namespace=name[0], name=name[1])


def _replicas(observed: ObservedGroup) -> int:
    facts = observed.facts
    if facts.workload.exists and facts.workload.wished is not None:
        return facts.workload.wished
    spec = facts.resource.spec
    if spec.scaling is not None and is_automatic(spec):
        return spec.scaling.min_replicas
    return spec.replicas


def _apply_key(live: Manifest, fingerprint: str) -> tuple[str, int, str]:
    metadata = live["metadata"]
    return metadata["uid"], metadata.get("generation", 0), fingerprint


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])


class BudgetActions:
    """Finds the next action for the disruption budget of a group whose workers are owned.

    An eviction fails for a pod that two budgets select. So if a budget of a user selects the
    workers, the operator's own is removed, and created again when that one is deleted.
    """

    def __init__(self, api: KubeApi, cache: WorkloadCache) -> None:
        self._api = api
        self._cache = cache

    def next_action(self, observed: ObservedGroup, memory: GroupMemory) -> PlannedAction | None:
        """What is not as it should be, or None. Raises InvalidSpec."""
        resource = observed.facts.resource
        metadata = resource.metadata
        name = (metadata.namespace, deployment_name(metadata.name))
        known = self._cache.budgets.get(name)
        is_ours = known is not None and known.controller_uid == metadata.uid
        if resource.spec.template is None:
            why = "because spec.template was removed"
            return self._remove(name, known, why) if known and is_ours else None
        other = self._cache.budgets.find_other(
            *(metadata.namespace, metadata.name, worker_labels(resource)), besides=metadata.uid
        )
        if other is not None:
            return self._resolve_conflict(name, known, other) if known and is_ours else None
        if observed.facts.workload_problem is not None or (known and not is_ours):
            return None
        return self._apply(name, build_budget(resource), known, memory)

    def _apply(
        self, name: Name, body: Manifest, known: DisruptionBudget | None, memory: GroupMemory
    ) -> PlannedAction | None:
        if known is not None and (
            is_as_built(body, known)
            or memory.unchanged_budget_apply == _budget_apply_key(known, body)
        ):
            return None
        if self._cache.clock() < memory.budget_refused_until:
            return None

        async def write() -> EventContent | None:
            try:
                answer = await self._api.apply(_budget_address(name), body)
            except (Forbidden, Rejected) as error:
                if known is not None and isinstance(error, Rejected):
                    # For example, another field manager has set minAvailable: create it again.
                    await self._delete(name, known)
                    return None
                memory.budget_refused_until = self._cache.clock() + REFUSED_S
                log.warning("Could not apply PodDisruptionBudget %s: %s", name[1], error)
                return report_budget_refused(name[1], error)
            self._cache.put(DISRUPTION_BUDGET, answer)
            live = self._cache.budgets.get(name)
            if live is not None and not is_as_built(body, live):
                # An admission webhook changes it: another write would have the same result.
                memory.unchanged_budget_apply = _budget_apply_key(live, body)
            return None

        what = f"{'update' if known else 'create'} PodDisruptionBudget {name[1]}"
        return PlannedAction(part=GroupPart.WORKLOAD, what=what, do=write)

    def _resolve_conflict(self, name: Name, known: DisruptionBudget, other: str) -> PlannedAction:
        return self._remove(
            name,
            known,
            f"because PodDisruptionBudget {other} selects the same pods",
            report_budget_conflict(name[1], other, occurrence=known.uid),
        )

    def _remove(
        self, name: Name, known: DisruptionBudget, why: str, event: EventContent | None = None
    ) -> PlannedAction:
        async def write() -> EventContent | None:
            await self._delete(name, known)
            return event

        what = f"delete PodDisruptionBudget {name[1]}, {why}"
        return PlannedAction(part=GroupPart.WORKLOAD, what=what, do=write)

    async def _delete(self, name: Name, known: DisruptionBudget) -> None:
        await self._api.delete(_budget_address(name), uid=known.uid)
        self._cache.remove(DISRUPTION_BUDGET, name, known.uid)


def report_budget_conflict(name: str, other: str, *, occurrence: str) -> EventContent:
    """The Event for a PodDisruptionBudget that was deleted because of another one."""
    return EventContent(
        type="Normal",
        reason=Reason.POD_DISRUPTION_BUDGET_CONFLICT,
        action="Protect",
        note=f"Deleted PodDisruptionBudget {name}: PodDisruptionBudget {other} selects the same "
        "pods, and Kubernetes does not evict a pod that two PodDisruptionBudgets select",
        occurrence=occurrence,
    )


def report_budget_refused(name: str, error: Exception) -> EventContent:
    """The Event for a PodDisruptionBudget that Kubernetes refuses."""
    return EventContent(
        type="Warning",
        reason=Reason.POD_DISRUPTION_BUDGET_REFUSED,
        action="Protect",
        note=f"Could not create PodDisruptionBudget {name}: {error}. The workers run without "
        "it: draining nodes can evict all of them at once. Correct the RBAC rules, the quota or "
        "the admission policy that refuses it; Pelops retries automatically",
    )


def _budget_address(name: Name) -> Address:
    return Address(kind=DISRUPTION_BUDGET, namespace=name[0], name=name[1])


def _budget_apply_key(live: DisruptionBudget, body: Manifest) -> tuple[str, int, str]:
    return live.uid, live.generation, fingerprint_of(body)
