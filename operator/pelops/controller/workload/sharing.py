"""Which resources have the same workers, and the role of each in scaling them."""

from __future__ import annotations

import heapq
from operator import attrgetter
from typing import Final

from pelops.api.group.scaling import DEFAULT_SCALING_MODE, ScalingMode
from pelops.controller.runtime.cache import Name, Recent
from pelops.controller.workload.workload_cache import MOST_SHARING, WorkloadCache, target_of
from pelops.domain.workload import Target
from pelops.kube.client import Manifest
from pelops.policy.scaling.sharing import Claim, Sharing, decide_sharing

REMEMBERED: Final = 10_000  # workloads


class SharedWorkloads:
    """Finds who shares a workload, from the cache of the replica."""

    def __init__(self, cache: WorkloadCache) -> None:
        self._cache = cache
        self._claims: Recent[Target, tuple[int, tuple[Claim, ...]]] = Recent(REMEMBERED)
        self._read: Recent[Name, tuple[Manifest, Claim]] = Recent(REMEMBERED)

    def sharing(self, name: Name) -> Sharing | None:
        """The role of a resource in scaling its workers; None if it is deleted."""
        manifest = self._cache.resources.get(name)
        if manifest is None:
            return None
        own, target = self._claim(name, manifest), target_of(manifest)
        return decide_sharing(own, [own] if target.is_undeclared else self._claims_of(target))

    def version(self, name: Name) -> int:
        """Another number after each change of who shares the workers of a resource."""
        manifest = self._cache.resources.get(name)
        return 0 if manifest is None else self._cache.sharing_version(target_of(manifest))

    def key(self, name: Name) -> str:
        """What replicas rank by: the same for all resources with the same workers."""
        manifest = self._cache.resources.get(name)
        target = None if manifest is None else target_of(manifest)
        if target is None or target.is_undeclared:
            return "/".join(name)
        return "/".join(target.identity)

    def _claims_of(self, target: Target) -> tuple[Claim, ...]:
        version, known = self._cache.sharing_version(target), self._claims.get(target)
        if known is not None and known[0] == version:
            return known[1]
        candidates = (
            self._claim(name, manifest)
            for name in self._cache.resources_of(target)
            if (manifest := self._cache.resources.get(name)) is not None
        )
        claims = tuple(heapq.nsmallest(MOST_SHARING, candidates, key=attrgetter("rank")))
        self._claims[target] = (version, claims)
        return claims

    def _claim(self, name: Name, manifest: Manifest) -> Claim:
        known = self._read.get(name)
        if known is None or known[0] is not manifest:
            known = self._read[name] = (manifest, _claim(manifest))
        return known[1]


def _claim(manifest: Manifest) -> Claim:
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    return Claim(
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata.get("creationTimestamp") or "",
        is_guest=not spec.get("template"),
        mode=_mode(spec.get("scaling")),
        is_suspended=bool(spec.get("suspend")),
        is_dry=bool((spec.get("recovery") or {}).get("dryRun")),
        is_ending=bool(metadata.get("deletionTimestamp")),
    )


def _mode(scaling: object) -> ScalingMode | None:
    if not isinstance(scaling, dict):
        return None
    try:
        return ScalingMode(scaling.get("mode", DEFAULT_SCALING_MODE))
    except ValueError:
        return None
