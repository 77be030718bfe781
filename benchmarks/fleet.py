"""Thousands of StreamConsumerGroups, each with workers of its own, declared and watched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from local_cluster.audit import AuditTrail, Request, writes
from local_cluster.plane import ControlPlane
from local_cluster.progress import Step
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.kube.client import NAMESPACE, STREAM_CONSUMER_GROUP, KubeApi, Manifest

PER_NAMESPACE = 500
CONNECTIONS = 16
QUIET_S = 10.0  # twice the pace at which a small fleet's groups are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many resources, and on which Redis servers: they take turns."""

    size: int
    redis_urls: Sequence[str]

    @property
    def namespaces(self) -> list[str]:
        return [f"shop-{number}" for number in range(-(-self.size // PER_NAMESPACE))]

    def sizes(self) -> dict[str, int]:
        """How many resources each namespace has; only the last may have fewer than the others."""
        full = dict.fromkeys(self.namespaces, PER_NAMESPACE)
        return full | {self.namespaces[-1]: (self.size - 1) % PER_NAMESPACE + 1}

    def namespace(self, number: int) -> str:
        """Where a resource is."""
        return self.namespaces[number // PER_NAMESPACE]

    def keys(self, number: int) -> GroupKeys:
        """The keys of a resource in Redis."""
        return derive_keys(f"orders:events:{number}", resource_name(number))

    def manifests(self) -> Iterator[Manifest]:
        """Each resource has a stream of its own and asks for one worker from a template."""
        for number in range(self.size):
            yield {
                "apiVersion": STREAM_CONSUMER_GROUP.api_version,
                "kind": STREAM_CONSUMER_GROUP.kind,
                "metadata": {
                    "name": resource_name(number),
                    "namespace": self.namespace(number),
                },
                "spec": {
                    "redis": {"url": self.redis_urls[number % len(self.redis_urls)]},
                    "stream": self.keys(number).stream,
                    "template": _template(),
                    "replicas": 1,
                },
            }


def resource_name(number: int) -> str:
    """What a resource is called, and its group."""
    return f"orders-{number}"


def _template() -> Manifest:
    container = {"name": "worker", "image": "local/worker", "command": ["worker"]}
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}


async def declare(plane: ControlPlane, fleet: Fleet) -> None:
    """Create all of it, as fast as the API server takes it."""
    api = await KubeApi.connect(str(plane.kubeconfig))
    try:
        for name in fleet.namespaces:
            # A namespace is created like an object without one.
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await api.create(NAMESPACE, "", body)
        manifests = fleet.manifests()  # shared: each takes the next
        await asyncio.gather(*(_create_each(api, manifests) for _ in range(CONNECTIONS)))
    finally:
        await api.close()


async def _create_each(api: KubeApi, manifests: Iterable[Manifest]) -> None:
    for manifest in manifests:
        await api.create(STREAM_CONSUMER_GROUP, manifest["metadata"]["namespace"], manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """How far it came."""

    ready: int
    writes: list[Request]
    is_quiet: bool  # all Ready and nothing written for as long as was asked
    last_write: datetime | None


def await_convergence(
    plane: ControlPlane, fleet: Fleet, trail: AuditTrail, shown: Step, *, timeout_s: float
) -> Convergence:
    """Wait until every resource is Ready and the operator has written nothing for `QUIET_S`."""
    until = time.monotonic() + timeout_s
    roll = _Roll(plane, fleet)
    written: list[Request] = []
    while True:
        roll.call_missing()
        written += writes(trail.read())
        shown.detail = f"at least {roll.ready} of {fleet.size} Ready, {len(written)} writes"
        last = written[-1].answered if written else None
        is_quiet = last is not None and _age_s(last) >= QUIET_S and roll.is_complete()
        if is_quiet or time.monotonic() >= until:
            return Convergence(ready=roll.ready, writes=written, is_quiet=is_quiet, last_write=last)
        time.sleep(max(0.5, fleet.size / 1000))


class _Roll:
    """How many resources are Ready, namespace by namespace.

    Listing thousands of resources keeps the API server from the work that others wait for. So a
    namespace is listed again only while a resource is missing, and once more at the end.
    """

    def __init__(self, plane: ControlPlane, fleet: Fleet) -> None:
        self._plane = plane
        self._fleet = fleet
        self._ready = dict.fromkeys(fleet.namespaces, 0)

    @property
    def ready(self) -> int:
        return sum(self._ready.values())

    def call_missing(self) -> None:
        """Look at one namespace after the other, up to the first one that has unready resources.

        The others would be listed without success, while the API server has other work.
        """
        for namespace, wanted in self._fleet.sizes().items():
            if self._ready[namespace] < wanted:
                self._call(namespace)
            if self._ready[namespace] < wanted:
                return

    def is_complete(self) -> bool:
        """Whether everything is Ready now."""
        if self.ready < self._fleet.size:
            return False
        for namespace in self._ready:
            self._call(namespace)
        return self.ready == self._fleet.size

    def _call(self, namespace: str) -> None:
        # Version 0: from the API server's memory, and not from etcd. One that is too busy to
        # answer in time is asked again at the next call.
        with contextlib.suppress(OSError):
            path = f"{STREAM_CONSUMER_GROUP.path(namespace)}?resourceVersion=0"
            listed = json.loads(self._plane.get(path))["items"]
            self._ready[namespace] = sum(map(_is_ready, listed))


def _age_s(instant: datetime) -> float:
    return (datetime.now(UTC) - instant).total_seconds()


def _is_ready(manifest: Manifest) -> bool:
    conditions = manifest.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
