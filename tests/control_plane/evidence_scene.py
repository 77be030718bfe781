"""Pods as their kubelets report them, and what a replica knows and says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from local_cluster.plane import ControlPlane
from pelops.controller.recovery.pod_evidence import (
    ConsumerLiveness,
    LivenessEvidence,
    LivenessQuestion,
)
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.workload import Target, WorkloadObservation
from pelops.kube.client import POD, STREAM_CONSUMER_GROUP, Address, KubeApi

Manifest = dict[str, Any]
SKEW = timedelta(seconds=2)
NODE_NAME = "evidence-node"


def text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def running(at: datetime, **more: Any) -> Manifest:
    return {"state": {"running": {"startedAt": text(at)}}, **more}


def ended(at: datetime) -> Manifest:
    return {"terminated": {"exitCode": 1, "finishedAt": text(at), "startedAt": text(at)}}


def restarted(at: datetime) -> Manifest:
    return running(at, lastState=ended(at - timedelta(seconds=1)), restartCount=1)


def record_of(manifest: Manifest, **changes: Any) -> str:
    metadata = manifest["metadata"]
    fields = {
        "uid": metadata["uid"],
        "name": metadata["name"],
        "node": NODE_NAME,
        "grace_s": 30.0,
        "namespace": metadata["namespace"],
        "cluster": "here",
    }
    return json.dumps(fields | changes, separators=(",", ":"))


class ReplaceableApi:
    """A client in place of which another one can be put."""

    def __init__(self, api: KubeApi) -> None:
        self.api = api

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api, name)


class Scene:
    """A namespace with one workload, what a replica knows of it, and its evidence."""

    def __init__(self, plane: ControlPlane, api: KubeApi, namespace: str) -> None:
        self.plane = plane
        self.api = api
        self.namespace = namespace
        self.now_s = 1000.0
        self.cache = WorkloadCache(lambda: self.now_s)
        self.asked = ReplaceableApi(api)
        self.evidence = LivenessEvidence(cast(KubeApi, self.asked), self.cache, cluster="here")
        target = Target(api_version="apps/v1", kind="StatefulSet", namespace=namespace, name="web")
        self.workload = WorkloadObservation(target=target, exists=True, selector="app=web")
        spec = {"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}}
        metadata = {"name": "orders", "namespace": namespace, "uid": "uid-orders"}
        self.cache.put(STREAM_CONSUMER_GROUP, {"metadata": metadata, "spec": spec})

    async def pod(self, name: str = "web-0", **container: Any) -> Manifest:
        """A pod on the node, as its kubelet would report it."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {
                "nodeName": NODE_NAME,
                "containers": [{"name": "worker", "image": "worker:1"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        await self.api.create(POD, self.namespace, body)
        phase = container.pop("phase", "Running")
        return await self.report(name, phase=phase, **container)

    async def report(self, name: str = "web-0", *, phase: str, **container: Any) -> Manifest:
        """Write a status of the one container."""
        named = {"name": "worker", "image": "", "imageID": "", "ready": True, "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [{**named, **container}]}
        address = replace(self.address(name), subresource="status")
        return await self.api.merge(address, {"status": status})

    def address(self, name: str) -> Address:
        return Address(kind=POD, namespace=self.namespace, name=name)

    def remove(self, name: str = "web-0") -> None:
        """Take the pod away as a kubelet does at the very end."""
        force = ("--grace-period=0", "--force", "--wait=true")
        self.plane.kubectl("-n", self.namespace, "delete", "pod", name, *force)

    def bury(self, manifest: Manifest) -> None:
        """Let the cache hear of the deletion."""
        metadata = manifest["metadata"]
        name = (self.namespace, metadata["name"])
        self.cache.remove(POD, name, metadata["uid"], last=manifest)

    async def find_liveness(
        self, consumer: str, *, evidence: LivenessEvidence | None = None, **records: str
    ) -> ConsumerLiveness:
        question = LivenessQuestion(
            workload=self.workload,
            consumers=[consumer],
            records={f"{field}:{consumer}": value for field, value in records.items()},
            server_time=datetime.now(UTC),
            skew=SKEW,
        )
        return (await (evidence or self.evidence).find_liveness(question))[consumer]
