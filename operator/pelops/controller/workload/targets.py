"""The workers' target: a Deployment from the cache, anything else through its scale subresource."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.cache import Recent
from pelops.controller.workload.workload_cache import WorkloadCache, target_of
from pelops.domain.condition import Finding
from pelops.domain.workload import Target, WorkloadObservation
from pelops.errors import Forbidden, KubernetesError, NotFound
from pelops.kube.client import DEPLOYMENT, Address, Kind, KubeApi, Manifest
from pelops.kube.worker_deployment import SCALE_MANAGER
from pelops.kube.workload_observation import observe_scale
from pelops.policy.status.reasons import Reason

FRESH_S = 5.0  # a scale subresource is not watched
LAGGING_S = 5.0  # a watch that has not reported a write for so long may be broken
REMEMBERED = 10_000  # writes


@dataclass(frozen=True, slots=True)
class _Written:
    at: float
    version: int  # of the target after it
    replicas: int


class Targets:
    """Observes and scales whatever runs the workers."""

    def __init__(self, api: KubeApi, cache: WorkloadCache, clock: Callable[[], float]) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        # What most name is known, so that the first write of a process needs no discovery.
        self._kinds: dict[tuple[str, str], Kind] = {
            (DEPLOYMENT.api_version, DEPLOYMENT.kind): DEPLOYMENT
        }
        self._scales: dict[Target, tuple[float, WorkloadObservation]] = {}
        self._written: Recent[Target, _Written] = Recent(REMEMBERED)

    async def observe(
        self, resource: StreamConsumerGroup
    ) -> tuple[WorkloadObservation, Finding | None]:
        """The workload, and why it cannot be observed if so. Raises KubernetesUnavailable."""
        target = target_of(
            {
                "metadata": resource.metadata.model_dump(),
                "spec": resource.spec.model_dump(by_alias=True, include={"target_ref", "template"}),
            }
        )
        if target.is_undeclared:
            return WorkloadObservation(target=target, exists=False), None
        if target.kind == DEPLOYMENT.kind and target.api_version == DEPLOYMENT.api_version:
            workload = self._cache.workload(target)
            if workload is None:
                return WorkloadObservation(target=target, exists=False), None
            return await self._catch_up(workload), None
        return await self._observe_foreign(target)

    async def scale(self, target: Target, replicas: int) -> None:
        """Write the number through the scale subresource. Repeats safely.

        `observe` returns it also before the cache has it.

        Raises:
            KubernetesError: Forbidden when the role does not allow it for this kind.
        """
        body: Manifest = {"spec": {"replicas": replicas}}
        answer = await self._api.merge(await self._address(target), body, manager=SCALE_MANAGER)
        self._scales.pop(target, None)
        self._remember(target, answer, replicas)

    async def _catch_up(self, workload: WorkloadObservation) -> WorkloadObservation:
        """The workload with the own last write, which the watch may not have reported yet."""
        target = workload.target
        written = self._written.get(target)
        if written is None:
            return workload
        known = self._cache.version(DEPLOYMENT, (target.namespace, target.name))
        if known >= written.version:
            del self._written[target]
            return workload
        if self._clock() - written.at > LAGGING_S:
            # Scans observe workloads as well, and go on without an API server.
            with contextlib.suppress(KubernetesError):
                manifest = await self._api.get(await self._address(target))
                live = observe_scale(target, manifest)
                written = self._remember(target, manifest, live.wished or 0)
        return replace(workload, wished=written.replicas)

    def _remember(self, target: Target, scale: Manifest, replicas: int) -> _Written:
        version = int(scale["metadata"].get("resourceVersion") or 0)
        self._written[target] = _Written(self._clock(), version, replicas)
        return self._written[target]

    async def _observe_foreign(self, target: Target) -> tuple[WorkloadObservation, Finding | None]:
        try:
            workload = await self._read_scale(target)
        except Forbidden as error:
            absent = WorkloadObservation(target=target, exists=False)
            return absent, scale_forbidden(target, error)
        if not workload.exists:
            return workload, None
        filled = self._cache.with_pods(workload)
        return replace(filled, ready=sum(pod.is_ready for pod in filled.pods)), None

    async def _read_scale(self, target: Target) -> WorkloadObservation:
        known = self._scales.get(target)
        if known is not None and self._clock() - known[0] < FRESH_S:
            return known[1]
        workload = WorkloadObservation(target=target, exists=False)
        with contextlib.suppress(NotFound):
            workload = observe_scale(target, await self._api.get(await self._address(target)))
        self._scales[target] = (self._clock(), workload)
        return workload

    async def _address(self, target: Target) -> Address:
        kind = await self._kind(target)
        return Address(kind=kind, namespace=target.namespace, name=target.name, subresource="scale")

    async def _kind(self, target: Target) -> Kind:
        """The plural of a kind, by discovery. Raises NotFound when the server does not know it."""
        kind = self._kinds.get((target.api_version, target.kind))
        if kind is None:
            kind = await self._discover(target)
            self._kinds[target.api_version, target.kind] = kind
        return kind

    async def _discover(self, target: Target) -> Kind:
        group, _, version = target.api_version.rpartition("/")
        listed: Manifest = await self._api.discover(group, version)
        for resource in listed.get("resources") or []:
            if resource["kind"] == target.kind and "/" not in resource["name"]:
                return Kind(group=group, version=version, kind=target.kind, plural=resource["name"])
        raise NotFound(
            f"the API server does not serve the kind {target.kind} of {target.api_version}"
        )


def scale_forbidden(target: Target, error: Forbidden) -> Finding:
    """The operator's role does not cover the scale subresource of the target."""
    group = target.api_version.rpartition("/")[0]
    return Finding(
        reason=Reason.TARGET_FORBIDDEN,
        message=(
            f"The operator may not scale {target}: {error}. Grant get and patch on the scale "
            f"subresource of API group {group!r} in a ClusterRole that is bound to the operator's "
            "ServiceAccount"
        ),
        is_terminal=True,
    )
