"""The division of work: each resource is observed by the replica that ranks first for it.

The others are standbys. They observe a resource after a change if its status does not show in time
that the first replica has acted. They also observe it periodically, in case the first one cannot.
When the members change, the replica that now ranks first begins at once. If replicas disagree about
the ranks, an observation is late or repeated, and nothing worse happens.
"""

from __future__ import annotations

import random
from typing import Any, Final

from pelops.clock import with_jitter
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.kind import ManagedKind, PassIntervals, Services
from pelops.controller.runtime.leases import follow_standing
from pelops.kube.client import Kind, Manifest
from pelops.metrics import CONDITIONS
from pelops.policy.membership import LONG_STEP
from pelops.policy.status.health import is_attended

TAKEN_OVER_S: Final = 0.005  # per resource that is taken over; a pass takes half of that


class Standby:
    """Decides which resources of a kind this replica observes, and when it checks the others."""

    def __init__(self, kind: ManagedKind[Any, Any, Any], services: Services) -> None:
        self._kind = kind
        self._members = services.members
        self._resources = services.cache.objects(kind.api)
        self._known: dict[Name, tuple[object, ...]] = {}  # by `_spec_version`, at the last event

    def stands_by(self, name: Name) -> bool:
        """Whether another replica observes the resource."""
        return self._kind.is_shared_out and self._members.place(self._kind.rank_key(name)) > 0

    def handle_change(self, changed: Kind, name: Name) -> None:
        """Make a resource due that a change of an object of this kind concerns."""
        manifest = self._resources.get(name)
        delay_s = 0.0 if changed == self._kind.api else self._intervals().together_s
        if manifest is None:
            self._known.pop(name, None)
        elif self.stands_by(name):
            asked, before = _spec_version(manifest), self._known.get(name)
            self._known[name] = asked
            if changed == self._kind.api and asked == before:  # its status alone
                if is_attended(
                    manifest.get("status") or {}, manifest["metadata"].get("generation", 0)
                ):
                    rest_s = with_jitter(self.rest_s())
                    self._kind.queue.postpone(name, delay_s=rest_s)
                return
            delay_s = self._members.rank(self._kind.rank_key(name)) * LONG_STEP.total_seconds()
        elif changed == self._kind.api and version_of(manifest) == self._written(name):
            return  # the event of its own write
        self._kind.queue.add(name, delay_s=delay_s)

    def _written(self, name: Name) -> str | None:
        memory = self._kind.memories.get(name)
        return None if memory is None else memory.written

    async def follow_members(self) -> None:
        """After each change of the members, take over resources and give up others.

        Runs until cancelled.
        """
        members = None
        async for standing in follow_standing(self._members):
            if standing.members != members:
                members = standing.members
                self._divide()

    def _divide(self) -> None:
        ours = []
        for name, manifest in list(self._resources.items()):
            if self.stands_by(name):
                self._known[name] = _spec_version(manifest)
                self._kind.queue.add(name, delay_s=random.uniform(0, self.rest_s()))
                self.give_up(name)
            else:
                ours.append(name)
        for name in ours:
            self._kind.queue.add(name, delay_s=random.uniform(0, TAKEN_OVER_S * len(ours)))

    def give_up(self, name: Name) -> None:
        """Drop the series of a resource that another replica observes and exports."""
        self._kind.stand_by(name)
        CONDITIONS.forget(self._kind.api.kind, *name)

    def rest_s(self) -> float:
        """Seconds between two passes of a standby, without changes."""
        intervals = self._intervals()
        return intervals.seldom * intervals.observe_s

    def _intervals(self) -> PassIntervals:
        return self._kind.intervals(len(self._resources))


def version_of(manifest: Manifest) -> str:
    """The resourceVersion of an object."""
    return str(manifest["metadata"].get("resourceVersion", ""))


def _spec_version(manifest: Manifest) -> tuple[object, ...]:
    """A value that changes with the spec or a deletion, and not with the status."""
    metadata = manifest["metadata"]
    return metadata["uid"], metadata.get("generation"), metadata.get("deletionTimestamp")
