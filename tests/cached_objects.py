"""Objects of the API server in the namespace shop, and a cache that knows two resources there."""

from __future__ import annotations

from typing import Any

from pelops.controller.runtime.cache import Name
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.workload import Target, WorkloadObservation
from pelops.kube.client import DEPLOYMENT, STREAM_CONSUMER_GROUP

Manifest = dict[str, Any]
ORDERS: Name = ("shop", "orders")
RETURNS: Name = ("shop", "returns")
WORKERS = Target(api_version="apps/v1", kind="Deployment", namespace="shop", name="workers")


def build(name: str, *, version: int = 1, uid: str = "", **more: Any) -> Manifest:
    """An object in the namespace shop; `labels` and `namespace` belong to its metadata."""
    metadata = {
        "name": name,
        "namespace": more.pop("namespace", "shop"),
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "labels": more.pop("labels", {}),
    }
    return {"metadata": metadata, **more}


def resource(name: str, target: str | None = None, **more: Any) -> Manifest:
    """A resource with a target, or with a template of its own."""
    spec = {"template": {}} if target is None else {"targetRef": {"name": target}}
    return build(name, spec=spec, **more)


def deployment(name: str, labels: dict[str, str], **more: Any) -> Manifest:
    """A Deployment whose pods have these labels."""
    spec = {"replicas": 1, "selector": {"matchLabels": labels}}
    return build(name, spec=spec, status={"readyReplicas": 1}, **more)


def pod(name: str, labels: dict[str, str], phase: str = "Running", **more: Any) -> Manifest:
    spec = {"nodeName": "node-1", "containers": [{"name": "worker"}]}
    return build(name, labels=labels, spec=spec, status={"phase": phase}, **more)


def node(name: str, ready: str, *, version: int = 1) -> Manifest:
    conditions = [{"type": "Ready", "status": ready}]
    return build(name, namespace="", version=version, status={"conditions": conditions})


def autoscaler(name: str, target: str, *, api: str = "apps/v1", version: int = 1) -> Manifest:
    reference = {"apiVersion": api, "kind": "Deployment", "name": target}
    return build(name, version=version, spec={"scaleTargetRef": reference})


def shop() -> WorkloadCache:
    """orders adopts the Deployment workers; returns owns one of its own."""
    cache = WorkloadCache()
    cache.put(STREAM_CONSUMER_GROUP, resource("orders", "workers"))
    cache.put(STREAM_CONSUMER_GROUP, resource("returns"))
    cache.put(DEPLOYMENT, deployment("workers", {"app": "w"}))
    return cache


def known(cache: WorkloadCache, target: Target) -> WorkloadObservation:
    """A workload that the cache knows."""
    workload = cache.workload(target)
    assert workload is not None
    return workload
