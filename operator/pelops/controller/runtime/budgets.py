"""The PodDisruptionBudgets that this replica knows: which of them count for which workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pelops.kube.client import Manifest
from pelops.kube.disruption_budget import Budget, observe_budget

Name = tuple[str, str]  # namespace and name
Owner = tuple[str, str | None]  # namespace and resource; None: any resource there


class Budgets:
    """Budgets by name, and by the resource whose workers alone they may select."""

    def __init__(self) -> None:
        self._known: dict[Name, Budget] = {}
        self._near: dict[Owner, dict[Name, Budget]] = defaultdict(dict)

    def get(self, name: Name) -> Budget | None:
        """The budget of this name."""
        return self._known.get(name)

    def put(self, name: Name, manifest: Manifest) -> set[Owner]:
        """Take in a budget: whose workers it is about, if more than its status has changed."""
        budget, before = observe_budget(manifest), self._known.get(name)
        if budget == before:
            return set()
        concerned = self.drop(name)
        self._known[name] = budget
        self._near[name[0], budget.resource][name] = budget
        return concerned | {(name[0], budget.resource)}

    def drop(self, name: Name) -> set[Owner]:
        """Forget a budget: whose workers it was about."""
        before = self._known.pop(name, None)
        if before is None:
            return set()
        owner = (name[0], before.resource)
        self._near[owner].pop(name)
        if not self._near[owner]:
            del self._near[owner]
        return {owner}

    def find_other(
        self, namespace: str, resource: str, labels: Mapping[str, str], *, besides: str
    ) -> str | None:
        """The name of a budget that counts for these workers and is not controlled by `besides`."""
        found = (
            name
            for owner in ((namespace, resource), (namespace, None))
            for (_, name), budget in self._near.get(owner, {}).items()
            if budget.controller_uid != besides and budget.selects(labels)
        )
        return min(found, default=None)


def find_owning(resources: Mapping[Name, Manifest], owners: set[Owner]) -> set[Name]:
    """The resources with workers of their own that these are."""
    spaces = {namespace for namespace, name in owners if name is None}
    return {
        name
        for name in (resources if spaces else resources.keys() & owners)
        if (name in owners or name[0] in spaces)
        and (resources[name].get("spec") or {}).get("template")
    }
