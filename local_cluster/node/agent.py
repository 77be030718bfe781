"""The node's loop: follows the pods that are bound to it, and runs one task for each."""

import asyncio
import logging
import shutil
from dataclasses import replace

from local_cluster.node.addresses import PodAddresses
from local_cluster.node.api import Api, Endpoint, Listed
from local_cluster.node.containers import Container
from local_cluster.node.fields import KubeObject
from local_cluster.node.light import LightPods
from local_cluster.node.log_server import start_log_server
from local_cluster.node.node_status import NodeHeartbeat, allocatable_of
from local_cluster.node.pod import Pod
from local_cluster.node.references import References
from local_cluster.node.sandbox import Host
from local_cluster.node.settings import NodeSettings

log = logging.getLogger(__name__)

_SHUTDOWN_GRACE_S = 3.0
_KEPT_LOGS = 200


class Pods:
    """The pods of a node that runs processes."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pods: dict[str, Pod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def sync(self, pods: list[KubeObject]) -> None:
        """Take a full list: what is not in it has vanished."""
        for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._pods[uid].vanish()
        for pod in pods:
            self.observe(pod)

    def observe(self, pod: KubeObject) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            self._pods[uid].observe(pod)
            return
        self._pods[uid] = known = Pod(self._host, pod)
        known.observe(pod)
        self._tasks[uid] = asyncio.create_task(self._run(known))

    def vanish(self, pod: KubeObject) -> None:
        """The object was deleted."""
        known = self._pods.get(pod["metadata"]["uid"])
        if known is None:
            return
        known.vanish()
        task = self._tasks[known.uid]
        if task.done():
            self._forget(known.uid)
        else:
            task.add_done_callback(lambda _: self._forget(known.uid))

    async def _run(self, pod: Pod) -> None:
        try:
            await pod.run()
        except Exception:
            # A fault in one pod's course must not end the node.
            log.exception("pod %s is left as it is", pod.key)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._tasks.pop(uid, None)
        self._drop_old_logs()

    def _drop_old_logs(self) -> None:
        used = {pod.log_directory_name for pod in self._pods.values()}
        kept = [one for one in self._host.settings.sandboxes.glob("*_*_*") if one.name not in used]
        if len(kept) > _KEPT_LOGS:
            kept.sort(key=lambda path: path.stat().st_mtime)
            for old in kept[:-_KEPT_LOGS]:
                shutil.rmtree(old, ignore_errors=True)

    def find_container(self, namespace: str, name: str, container: str) -> Container | None:
        """The container of the newest pod of that name."""
        found = [pod for pod in self._pods.values() if pod.key == (namespace, name)]
        return found[-1].find_container(container) if found else None

    async def shut_down(self) -> None:
        """End every process."""
        await asyncio.gather(*(pod.shut_down(_SHUTDOWN_GRACE_S) for pod in self._pods.values()))
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Agent:
    """One node. `run` ends only by cancellation; `shut_down` then ends the processes."""

    def __init__(self, settings: NodeSettings, endpoint: Endpoint) -> None:
        self._settings = replace(settings, api_host=endpoint.host, api_port=endpoint.port)
        self._api = Api(endpoint)
        host = Host(
            settings=self._settings,
            api=self._api,
            references=References(self._api),
            addresses=PodAddresses(settings.name),
            allocatable=allocatable_of(settings),
        )
        self._pods = Pods(host)
        self._light = LightPods(host)
        self._heartbeat: NodeHeartbeat | None = None

    async def run(self) -> None:
        runner, port = await start_log_server(self._settings.state, self._pods.find_container)
        self._heartbeat = heartbeat = NodeHeartbeat(self._api, self._settings, port)
        try:
            await heartbeat.register()
            log.info("node %s is registered, logs on port %d", self._settings.name, port)
            async with asyncio.TaskGroup() as loops:
                loops.create_task(heartbeat.keep_lease())
                loops.create_task(heartbeat.keep_ready())
                loops.create_task(self._follow_pods())
                if self._settings.light:
                    loops.create_task(self._light.run())
        finally:
            await runner.cleanup()

    async def _follow_pods(self) -> None:
        pods = self._light if self._settings.light else self._pods
        bound = {"fieldSelector": f"spec.nodeName={self._settings.name}"}
        async for change in self._api.follow("/api/v1/pods", bound):
            if isinstance(change, Listed):
                pods.sync(change.items)
            elif change.kind == "DELETED":
                pods.vanish(change.item)
            else:
                pods.observe(change.item)

    def fail(self) -> None:
        """Play dead: nothing is reported any more, the processes go on."""
        log.warning("node %s fails", self._settings.name)
        self._api.cut()

    def recover(self) -> None:
        """Report again."""
        log.warning("node %s recovers", self._settings.name)
        self._api.restore()
        if self._heartbeat is not None:
            self._heartbeat.hurry()

    async def shut_down(self) -> None:
        """End all processes; of pods nothing is reported, so that they come back with the node."""
        if self._heartbeat is not None:
            await self._heartbeat.retire()
        self._api.cut()
        await self._pods.shut_down()
        await self._api.close()
