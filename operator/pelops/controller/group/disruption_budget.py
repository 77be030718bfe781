"""The next write to the budget that keeps a drain from taking too many workers at once.

An eviction fails for a pod that two budgets count for. So where somebody else's budget selects the
workers, the operator's own gives way, and comes back when that one goes.
"""

from __future__ import annotations

import logging
from typing import Final

from pelops.controller.group.memory import Memory
from pelops.controller.group.observation import View
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.passes import Part, Step
from pelops.controller.runtime.versions import Name
from pelops.errors import Forbidden, Rejected
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.disruption_budget import Budget, build_budget, is_as_built
from pelops.kube.events import Happening
from pelops.kube.resources import DISRUPTION_BUDGET
from pelops.kube.worker_deployment import deployment_name, fingerprint_of, worker_labels
from pelops.policy.status.reasons import Reason

log = logging.getLogger(__name__)

REFUSED_S: Final = 600.0  # how long a refusal is accepted; workers run without a budget too


class BudgetSteps:
    """Finds the next step for the disruption budget of a view whose workers are owned."""

    def __init__(self, api: KubeApi, cache: Cache) -> None:
        self._api = api
        self._cache = cache

    def next_step(self, view: View, memory: Memory) -> Step | None:
        """What is not as it should be, or None. Raises InvalidSpec."""
        resource = view.facts.resource
        metadata = resource.metadata
        name = (metadata.namespace, deployment_name(metadata.name))
        known = self._cache.budgets.get(name)
        is_ours = known is not None and known.controller_uid == metadata.uid
        if resource.spec.template is None:
            why = "for which there is no template any more"
            return self._remove(name, known, why) if known and is_ours else None
        other = self._cache.budgets.find_other(
            *(metadata.namespace, metadata.name, worker_labels(resource)), besides=metadata.uid
        )
        if other is not None:
            return self._give_way(name, known, other) if known and is_ours else None
        if view.facts.workload_problem is not None or (known and not is_ours):
            return None
        return self._apply(name, build_budget(resource), known, memory)

    def _apply(
        self, name: Name, body: Manifest, known: Budget | None, memory: Memory
    ) -> Step | None:
        if known is not None and (
            is_as_built(body, known) or memory.budget_settled == _settled(known, body)
        ):
            return None
        if self._cache.clock() < memory.budget_refused_until:
            return None

        async def write() -> Happening | None:
            try:
                answer = await self._api.apply(_address(name), body)
            except (Forbidden, Rejected) as error:
                if known is not None and isinstance(error, Rejected):
                    # Somebody's minAvailable stands in the way, for example: it is made anew.
                    await self._delete(name, known)
                    return None
                memory.budget_refused_until = self._cache.clock() + REFUSED_S
                log.warning("%s was refused: %s", name[1], error)
                return _refused(name, error)
            self._cache.put(DISRUPTION_BUDGET, answer)
            live = self._cache.budgets.get(name)
            if live is not None and not is_as_built(body, live):
                # Somebody changes what is written on its way; a second write would change as much.
                memory.budget_settled = _settled(live, body)
            return None

        what = f"{'applying' if known else 'creating'} PodDisruptionBudget {name[1]}"
        return Step(part=Part.WORKLOAD, what=what, do=write)

    def _give_way(self, name: Name, known: Budget, other: str) -> Step:
        return self._remove(
            name,
            known,
            f"since PodDisruptionBudget {other} selects the same pods",
            Happening(
                type="Normal",
                reason=Reason.BUDGET_GIVES_WAY,
                action="Protect",
                note=f"PodDisruptionBudget {other} selects the workers, and an eviction fails for "
                f"a pod that two budgets select: {name[1]} is removed",
                occurrence=known.uid,
            ),
        )

    def _remove(
        self, name: Name, known: Budget, why: str, happening: Happening | None = None
    ) -> Step:
        async def write() -> Happening | None:
            await self._delete(name, known)
            return happening

        what = f"removing PodDisruptionBudget {name[1]}, {why}"
        return Step(part=Part.WORKLOAD, what=what, do=write)

    async def _delete(self, name: Name, known: Budget) -> None:
        await self._api.delete(_address(name), uid=known.uid)
        self._cache.remove(DISRUPTION_BUDGET, name, known.uid)


def _refused(name: Name, error: Exception) -> Happening:
    return Happening(
        type="Warning",
        reason=Reason.BUDGET_REFUSED,
        action="Protect",
        note=f"PodDisruptionBudget {name[1]} was refused, so that a drain may take all workers at "
        f"once: {error}",
    )


def _address(name: Name) -> Address:
    return Address(kind=DISRUPTION_BUDGET, namespace=name[0], name=name[1])


def _settled(live: Budget, body: Manifest) -> tuple[str, int, str]:
    return live.uid, live.generation, fingerprint_of(body)
