"""The resources that this replica scales, and what it remembers of each between two looks.

Only one replica decides for a resource (`policy/membership.py`). Whoever does no longer forgets, so
that nothing old decides when the turn comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.leases import Members
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.condition import Finding
from pelops.errors import InvalidSpec
from pelops.kube.client import Manifest
from pelops.policy.scaling.decision import ScalingDecision, ScalingMemory, is_automatic
from pelops.policy.scaling.measurement import Backlog


@dataclass(slots=True, kw_only=True)
class Scaled:
    """One resource, and what was seen and done of it. Losing it costs time, nothing else."""

    resource: StreamConsumerGroup
    manifest: Manifest  # what the resource was read from
    memory: ScalingMemory = field(default_factory=ScalingMemory)
    backlog: Backlog | None = None  # as it was seen last
    decision: ScalingDecision | None = None  # the last one; None: others tell why there is none
    direction: int = 0  # of the last write: 1 up, -1 down, 0 none yet
    idle_observations: int = 0  # in a row that found nothing to do
    failures: int = 0  # of writes in a row
    problem: Finding | None = None  # why the last write failed
    write_after: float = -math.inf  # no further attempt before
    deep_after: float = -math.inf  # no look that counts further ahead before
    repair_after: float = -math.inf  # no repair of the server's own lag before

    @property
    def name(self) -> Name:
        """Its namespace and name."""
        return self.resource.metadata.namespace, self.resource.metadata.name

    @property
    def endpoint_queue(self) -> str:
        """Names the Redis it lives in: resources of a namespace with equal names share one.

        Namespaces share none, so that nothing in one delays the looks of another.
        """
        redis, metadata = self.resource.spec.redis, self.resource.metadata
        return f"{metadata.namespace}/{redis.model_dump_json(exclude_none=True)}"


class ScaledResources:
    """Finds what this replica scales."""

    def __init__(
        self, cache: WorkloadCache, members: Members, forget: Callable[[Name], None]
    ) -> None:
        """`forget` is informed of each resource that is not scaled here any more."""
        self._cache = cache
        self._members = members
        self._forget = forget
        self._scaled: dict[Name, Scaled] = {}

    def admit(self, name: Name) -> Scaled | None:
        """The resource as it is asked for now, if it is this replica's to scale."""
        manifest = self._cache.resources.get(name)
        known = self._scaled.get(name)
        resource = self._read(name, manifest, known)
        if manifest is None or resource is None:
            self._drop(name)
            return None
        if known is None or known.resource.metadata.uid != resource.metadata.uid:
            self._drop(name)
            known = self._scaled[name] = Scaled(resource=resource, manifest=manifest)
        known.resource, known.manifest = resource, manifest
        return known

    def get(self, name: Name) -> Scaled | None:
        """What is remembered of a resource that was admitted and not dropped since."""
        return self._scaled.get(name)

    def is_current(self, scaled: Scaled) -> bool:
        """Whether what was decided may still be written: nobody else asks for anything else.

        In a dry run nothing is.
        """
        if scaled.resource.spec.recovery.dry_run:
            return False
        if self._scaled.get(scaled.name) is not scaled or not self._decides(scaled.name):
            return False
        metadata = self._cache.resources.get(scaled.name, {}).get("metadata", {})
        mine = scaled.resource.metadata
        seen = (metadata.get("uid"), metadata.get("generation"))
        return seen == (mine.uid, mine.generation) and not metadata.get("deletionTimestamp")

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
        return None if is_ended or not is_automatic(spec) else resource

    def _decides(self, name: Name) -> bool:
        return self._members.decides("/".join(name))

    def _drop(self, name: Name) -> None:
        if self._scaled.pop(name, None) is not None:
            self._forget(name)
