"""The resources that this replica scales, and what it keeps about each between observations.

Only one replica decides for a resource (`policy/membership.py`). A replica that no longer decides
drops what it kept, so that outdated data is not used later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.leases import Members
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.condition import Finding
from pelops.errors import InvalidSpec
from pelops.kube.client import Manifest
from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.decision import ScalingDecision, is_measured
from pelops.policy.scaling.demand import GroupDemand
from pelops.policy.scaling.sharing import Claim, Role, Sharing


@dataclass(slots=True, kw_only=True)
class Scaled:
    """One resource, and what was seen and done of it. Losing it costs time, nothing else."""

    resource: StreamConsumerGroup
    manifest: Manifest  # what the resource was read from
    autoscaler: Autoscaler = field(default_factory=Autoscaler)
    backlog: Backlog | None = None  # as it was seen last
    decision: ScalingDecision | None = None  # the last one; None: another field has the reason
    sharing: Sharing = field(default_factory=lambda: Sharing(role=Role.LEADS))
    demand: GroupDemand | None = None  # of one that follows
    counts_until: float = -math.inf  # when that demand is too old
    is_foreign: bool = False  # another resource acts on the group, and is the one to count it
    direction: int = 0  # of the last write: 1 up, -1 down, 0 none yet
    idle_observations: int = 0  # in a row that found nothing to do
    failures: int = 0  # of writes in a row
    problem: Finding | None = None  # why the last write failed
    write_after: float = -math.inf  # no further attempt before
    deep_after: float = -math.inf  # no observation that counts further ahead before
    repair_after: float = -math.inf  # no repair of the server's own lag before

    @property
    def name(self) -> Name:
        """Its namespace and name."""
        return self.resource.metadata.namespace, self.resource.metadata.name

    @property
    def min_replicas(self) -> int:
        """The fewest replicas that the spec allows."""
        scaling = self.resource.spec.scaling
        return 0 if scaling is None else scaling.min_replicas

    @property
    def endpoint_queue(self) -> str:
        """Names the Redis it lives in: resources of a namespace with equal names share one.

        Namespaces share none, so that nothing in one delays the observations of another.
        """
        redis, metadata = self.resource.spec.redis, self.resource.metadata
        return f"{metadata.namespace}/{redis.model_dump_json(exclude_none=True)}"


class ScaledResources:
    """The resources that this replica scales."""

    def __init__(
        self, cache: WorkloadCache, members: Members, forget: Callable[[Name], None]
    ) -> None:
        """`forget` is called for each resource that this replica no longer scales."""
        self._cache = cache
        self._members = members
        self._on_forget = forget
        self._shared = SharedWorkloads(cache)
        self._scaled: dict[Name, Scaled] = {}

    def admit(self, name: Name) -> Scaled | None:
        """The resource with its current spec, if this replica scales it."""
        manifest = self._cache.resources.get(name)
        known, sharing = self._scaled.get(name), self._shared.sharing(name)
        resource = self._read(name, manifest, known)
        is_observed = sharing is not None and sharing.is_counted and sharing.leader is not None
        if manifest is None or resource is None or sharing is None or not is_observed:
            self._drop(name)
            return None
        if known is None or known.resource.metadata.uid != resource.metadata.uid:
            self._drop(name)
            known = self._scaled[name] = Scaled(resource=resource, manifest=manifest)
        if known.sharing.role is not sharing.role:
            known.decision, known.demand = None, None
        known.resource, known.manifest, known.sharing = resource, manifest, sharing
        return known

    def get(self, name: Name) -> Scaled | None:
        """What is remembered of a resource that was admitted and not dropped since."""
        return self._scaled.get(name)

    def forget(self, name: Name) -> None:
        """Have everything forgotten that is kept of a resource elsewhere."""
        self._on_forget(name)

    def is_current(self, scaled: Scaled) -> bool:
        """Whether the decision may still be written: the spec has not changed.

        False in a dry run.
        """
        if scaled.resource.spec.recovery.dry_run:
            return False
        if self._scaled.get(scaled.name) is not scaled or not self._decides(scaled.name):
            return False
        sharing = self._shared.sharing(scaled.name)
        if sharing is None or sharing.role is not Role.LEADS:
            return False
        metadata = self._cache.resources.get(scaled.name, {}).get("metadata", {})
        mine = scaled.resource.metadata
        seen = (metadata.get("uid"), metadata.get("generation"))
        return seen == (mine.uid, mine.generation) and not metadata.get("deletionTimestamp")

    def leader_of(self, scaled: Scaled) -> Scaled | None:
        """The resource that decides for one that follows; None while that is not known."""
        leader = scaled.sharing.leader
        return None if leader is None else self._scaled.get((scaled.name[0], leader.name))

    def demands_of_others(self, scaled: Scaled, *, now: float) -> tuple[GroupDemand, ...]:
        """The demands of the groups that follow this resource. An old demand is not known."""
        demands = (self._demand(scaled, claim, now) for claim in scaled.sharing.followers)
        return tuple(demand for demand in demands if demand is not None)

    def _demand(self, leader: Scaled, claim: Claim, now: float) -> GroupDemand | None:
        """The demand of one group; None when another resource acts on it."""
        if claim.is_suspended:
            return GroupDemand(name=claim.name, unknown="it is suspended")
        scaled = self._scaled.get((leader.name[0], claim.name))
        if scaled is None or scaled.resource.metadata.uid != claim.uid:
            return GroupDemand(name=claim.name, unknown="it has not been observed yet")
        if scaled.is_foreign:
            return None
        if scaled.demand is None or now >= scaled.counts_until:
            return GroupDemand(name=claim.name, unknown="its last observation is too old")
        return scaled.demand

    def left_s(self) -> float:
        """How long a write of what was decided may take: then another replica may decide."""
        return self._members.left_s()

    def _read(
        self, name: Name, manifest: Manifest | None, known: Scaled | None
    ) -> StreamConsumerGroup | None:
        """The resource, unless it is none that this replica scales."""
        if manifest is None or not manifest.get("spec", {}).get("scaling"):
            return None
        if not self._decides(name):
            return None
        if known is not None and known.manifest is manifest:
            return known.resource
        try:
            resource = StreamConsumerGroup.parse(manifest)
        except InvalidSpec:
            return None
        spec = resource.spec
        is_ended = spec.suspend or resource.metadata.is_being_deleted
        return None if is_ended or not is_measured(spec) else resource

    def _decides(self, name: Name) -> bool:
        return self._members.decides(self._shared.key(name))

    def _drop(self, name: Name) -> None:
        if self._scaled.pop(name, None) is not None:
            self.forget(name)
