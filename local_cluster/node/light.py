"""Pods without processes: they turn Ready, and end when deleted. For thousands of them."""

import asyncio
import logging
from datetime import UTC, datetime

from local_cluster.node.api import ApiError, ApiUnavailable
from local_cluster.node.container_state import ContainerReport, Running, State, Terminated
from local_cluster.node.fields import KubeObject
from local_cluster.node.pod_status import PodState, build_status
from local_cluster.node.sandbox import Host

log = logging.getLogger(__name__)

_WORKERS = 16
_RETRY_S = 0.5


def build_light_status(
    pod: KubeObject, pod_ip: str, now: datetime, *, ended: bool = False
) -> KubeObject:
    """The status of a pod all of whose containers run since now, or ended now."""
    state: State = Running(started_at=now)
    if ended:
        state = Terminated(exit_code=0, reason="Completed", started_at=now, finished_at=now)
    reports = [
        ContainerReport(
            name=spec["name"],
            image=spec.get("image", ""),
            state=state,
            ready=not ended,
            started=not ended,
            container_id=f"process://light-{pod['metadata']['uid']}",
        )
        for spec in pod["spec"]["containers"]
    ]
    started = PodState(pod_ip=pod_ip, started_at=now, init=(), containers=reports, ended=ended)
    return build_status(pod, started, now)


def is_pod_ready(pod: KubeObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class LightPods:
    """All pods of a light node: a few workers bring each to what the API server asks."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pods: dict[str, KubeObject] = {}
        self._addresses: dict[str, str] = {}
        self._due: asyncio.Queue[str] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work())

    def sync(self, pods: list[KubeObject]) -> None:
        for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._forget(uid)
        for pod in pods:
            self.observe(pod)

    def observe(self, pod: KubeObject) -> None:
        uid = pod["metadata"]["uid"]
        self._pods[uid] = pod
        if pod["metadata"].get("deletionTimestamp") or not is_pod_ready(pod):
            self._due.put_nowait(uid)

    def vanish(self, pod: KubeObject) -> None:
        self._forget(pod["metadata"]["uid"])

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        if uid in self._addresses:
            self._host.addresses.release(self._addresses.pop(uid), uid)

    async def _work(self) -> None:
        while True:
            uid = await self._due.get()
            pod = self._pods.get(uid)
            if pod is None:
                continue
            try:
                await self._bring_about(pod)
            except ApiUnavailable:
                await asyncio.sleep(_RETRY_S)
                self._due.put_nowait(uid)
            except ApiError as error:
                if error.status not in {404, 409}:
                    log.warning("light pod %s: %s", pod["metadata"]["name"], error)

    async def _bring_about(self, pod: KubeObject) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            # As a kubelet does: the end of a process is proven by its pod's last status.
            await self._report(path, pod, ended=True)
            preconditions = {"uid": meta["uid"]}
            await self._host.api.delete(
                path, {"gracePeriodSeconds": 0, "preconditions": preconditions}
            )
        elif not is_pod_ready(pod):
            # The answer's version is kept, so that an older event asks for no second patch.
            self._pods[meta["uid"]] = await self._report(path, pod, ended=False)

    async def _report(self, path: str, pod: KubeObject, *, ended: bool) -> KubeObject:
        """Write the status; the pod as it is then."""
        status = build_light_status(pod, self._address(pod), datetime.now(UTC), ended=ended)
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        return await self._host.api.patch(f"{path}/status", body)

    def _address(self, pod: KubeObject) -> str:
        uid = pod["metadata"]["uid"]
        if uid not in self._addresses:
            self._addresses[uid] = self._host.addresses.take(uid)
        return self._addresses[uid]
