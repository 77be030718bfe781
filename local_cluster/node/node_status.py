"""The Node object and its Lease: what this node says of itself, and that it lives."""

import asyncio
import logging
import platform
from contextlib import suppress
from datetime import UTC, datetime

from local_cluster.node.api import MERGE, Api, ApiError, ApiUnavailable, Listed
from local_cluster.node.container_state import render_time
from local_cluster.node.exec_server import FEATURE
from local_cluster.node.fields import KubeObject
from local_cluster.node.settings import HOST_IP, NodeSettings

log = logging.getLogger(__name__)

_RETRY_S = 0.5
_STATUS_S = 120
_RETIRE_S = 1
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_KUBELET_VERSION = "v1.36.0-processes"


def allocatable_of(settings: NodeSettings) -> dict[str, str]:
    """What the scheduler may give away. Not this machine's truth: requests reserve nothing here."""
    cpu, memory = ("4000", "16Ti") if settings.light else ("64", "256Gi")
    return {
        "cpu": cpu,
        "memory": memory,
        "ephemeral-storage": "1Ti",
        "pods": str(settings.max_pods),
    }


def build_node(settings: NodeSettings, *, log_port: int, now: datetime) -> KubeObject:
    """The Node as it is registered."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/hostname": settings.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": settings.name, "labels": labels},
        "status": build_node_status(settings, log_port=log_port, now=now),
    }


def build_node_status(settings: NodeSettings, *, log_port: int, now: datetime) -> KubeObject:
    allocatable = allocatable_of(settings)
    return {
        "capacity": allocatable,
        "allocatable": allocatable,
        "conditions": [_condition(kind, wanted, now) for kind, wanted in _CONDITIONS.items()],
        # No Hostname: the API server would try to resolve it before the address.
        "addresses": [{"type": "InternalIP", "address": HOST_IP}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
        "declaredFeatures": [FEATURE],
        "nodeInfo": _node_info(settings),
    }


_CONDITIONS = {
    "Ready": ("True", "KubeletReady", "this node runs pods as processes"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "not measured"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "not measured"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "not measured"),
}


_SHUTTING_DOWN = ("False", "KubeletNotReady", "node is shutting down")


def _condition(kind: str, wanted: tuple[str, str, str], now: datetime) -> KubeObject:
    status, reason, message = wanted
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": render_time(now),
        "lastTransitionTime": render_time(now),
    }


def _node_info(settings: NodeSettings) -> dict[str, str]:
    return {
        "machineID": settings.name,
        "systemUUID": settings.name,
        "bootID": settings.name,
        "kernelVersion": platform.release(),
        "osImage": "processes of this machine",
        "containerRuntimeVersion": "process://" + ("light" if settings.light else "1"),
        "kubeletVersion": _KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }


def is_ready(node: KubeObject) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def build_lease(settings: NodeSettings, now: datetime) -> KubeObject:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": settings.name, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": settings.name,
            "leaseDurationSeconds": int(settings.lease_s),
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


class NodeHeartbeat:
    """Keeps the Node registered and Ready, and its Lease fresh."""

    def __init__(self, api: Api, settings: NodeSettings, log_port: int) -> None:
        self._api = api
        self._settings = settings
        self._log_port = log_port
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Renew now, not at the next beat."""
        self._hurry.set()

    async def register(self) -> None:
        """Create the Node, or bring the one of an earlier run up to date."""
        node = build_node(self._settings, log_port=self._log_port, now=datetime.now(UTC))
        while True:
            try:
                await self._api.post("/api/v1/nodes", node)
            except ApiUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            except ApiError as error:
                if error.status != 409:
                    raise
                await self._report_status(transition=True)
            return

    async def keep_lease(self) -> None:
        """Renew for ever."""
        while True:
            try:
                await self._renew()
            except (ApiError, ApiUnavailable) as error:
                log.debug("lease not renewed: %s", error)
            self._hurry.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._settings.renew_s)

    async def retire(self) -> None:
        """Say once that the node is shutting down, so that no pod is sent to it any more."""
        condition = _condition("Ready", _SHUTTING_DOWN, datetime.now(UTC))
        path = f"/api/v1/nodes/{self._settings.name}/status"
        with suppress(ApiError, ApiUnavailable, TimeoutError):
            async with asyncio.timeout(_RETIRE_S):
                await self._api.patch(path, {"status": {"conditions": [condition]}})

    async def _renew(self) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        lease = build_lease(self._settings, datetime.now(UTC))
        try:
            await self._api.patch(f"{leases}/{self._settings.name}", lease, kind=MERGE)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._api.post(leases, lease)

    async def keep_ready(self) -> None:
        """Say Ready whenever the control plane no longer believes it, and rarely otherwise."""
        await asyncio.gather(self._correct(), self._repeat())

    async def _correct(self) -> None:
        own = {"fieldSelector": f"metadata.name={self._settings.name}"}
        async for change in self._api.follow("/api/v1/nodes", own):
            nodes = change.items if isinstance(change, Listed) else [change.item]
            if any(not is_ready(node) for node in nodes):
                while not await self._try_report(transition=True):
                    await asyncio.sleep(_RETRY_S)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_STATUS_S)
            await self._try_report(transition=False)

    async def _try_report(self, *, transition: bool) -> bool:
        try:
            await self._report_status(transition=transition)
        except (ApiError, ApiUnavailable) as error:
            log.debug("node status not reported: %s", error)
            return False
        return True

    async def _report_status(self, *, transition: bool) -> None:
        now = datetime.now(UTC)
        status = build_node_status(self._settings, log_port=self._log_port, now=now)
        if not transition:
            # A strategic merge keeps what is left out: nothing has changed but the heartbeat.
            for condition in status["conditions"]:
                del condition["lastTransitionTime"]
        path = f"/api/v1/nodes/{self._settings.name}/status"
        await self._api.patch(path, {"status": status})
