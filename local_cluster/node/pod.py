"""One pod of this node, from its first observation to the removal of its object."""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from local_cluster.node.api import ApiError, ApiUnavailable
from local_cluster.node.container_state import parse_report, parse_time
from local_cluster.node.containers import Container
from local_cluster.node.environment import ConfigError
from local_cluster.node.fields import KubeObject
from local_cluster.node.pod_object import PodObject
from local_cluster.node.pod_status import PodState
from local_cluster.node.sandbox import Host, Sandbox
from local_cluster.node.settings import HOST_IP

log = logging.getLogger(__name__)

_RETRY_S = 0.5
# Changes come in twos (started, ready; ended, all ended): one write reports both.
_SETTLE_S = 0.01
_REFRESH_S = 10.0


class Pod:
    """Level-triggered: `observe` and `vanish` say what the API server has, `run` acts on it."""

    def __init__(self, host: Host, pod: KubeObject) -> None:
        self.uid = str(pod["metadata"]["uid"])
        self._host = host
        self._object = PodObject(host.api, pod)
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._deleted = asyncio.Event()
        self.stopped = asyncio.Event()  # every process has ended
        self._is_over = False  # nothing will change any more
        self._failure: dict[str, str] = {}
        self._kill_at: asyncio.TimerHandle | None = None
        self._started_at = parse_time(self._object.status.get("startTime")) or datetime.now(UTC)
        self._sandbox = Sandbox(host, self._object, _take_address(host, pod))
        self._sidecars = frozenset(_sidecar_names(pod["spec"]))
        self._init = [
            self._build(spec, init=True) for spec in pod["spec"].get("initContainers") or []
        ]
        self._containers = [self._build(spec, init=False) for spec in pod["spec"]["containers"]]
        self._resume(self._object.status)

    def _build(self, spec: KubeObject, *, init: bool) -> Container:
        policy = self._object.spec.get("restartPolicy") or "Always"
        if init:
            policy = "Never" if policy == "Never" else "OnFailure"
        policy = spec.get("restartPolicy") or policy
        return Container(spec, self._sandbox, policy=policy, changed=self._changed.set)

    def _resume(self, status: KubeObject) -> None:
        reports = [
            *(status.get("initContainerStatuses") or []),
            *(status.get("containerStatuses") or []),
        ]
        known = {report["name"]: parse_report(report) for report in reports}
        for container in self._all():
            if container.name in known:
                container.resume(known[container.name])
        for container in self._containers if self._init else []:
            container.wait_for("PodInitializing")

    def _all(self) -> Iterator[Container]:
        yield from self._init
        yield from self._containers

    def find_container(self, name: str) -> Container | None:
        return next((one for one in self._all() if one.name == name), None)

    @property
    def key(self) -> tuple[str, str]:
        return self._object.namespace, self._object.name

    @property
    def log_directory_name(self) -> str:
        return self._sandbox.logs.name

    # What the API server has.

    def observe(self, pod: KubeObject) -> None:
        """Take a version of the object; an old one does nothing."""
        if not self._object.observe(pod):
            return
        if self._object.is_deleted:
            self._deleted.set()
            self._begin_stop(self._object.grace_s)
        self._changed.set()

    def vanish(self) -> None:
        """The object was deleted, perhaps by force: its processes still get their grace."""
        self._object.vanished = True
        self._deleted.set()
        self._begin_stop(self._object.grace_s)

    def _begin_stop(self, grace_s: float) -> None:
        self._stopping.set()
        due = self._loop.time() + grace_s
        if self._kill_at is None or due < self._kill_at.when():
            if self._kill_at is not None:
                self._kill_at.cancel()
            self._kill_at = self._loop.call_at(due, self._kill)

    def _kill(self) -> None:
        for container in self._all():
            container.kill()

    async def shut_down(self, grace_s: float) -> None:
        """End every process, for a node that ends; nothing is reported."""
        self._begin_stop(grace_s)
        await self.stopped.wait()

    # What is done about it.

    async def run(self) -> None:
        """Run the pod to its end and, once it is deleted, remove its object."""
        reporting = asyncio.create_task(self._report_changes())
        expiring = asyncio.create_task(self._expire())
        try:
            if not self._object.is_finished:
                await self._live_until_stopped()
            self.stopped.set()
            await self._deleted.wait()
            # Not cancelled: a write that is given up may still arrive, after the last one.
            self._is_over = True
            self._changed.set()
            await reporting
        finally:
            await _cancel(reporting, expiring)
            self._kill()
            self.stopped.set()
            self._host.addresses.release(self._sandbox.pod_ip, self.uid)
        if self._kill_at is not None:
            self._kill_at.cancel()
        await self._object.delete()

    async def _live_until_stopped(self) -> None:
        living = asyncio.create_task(self._live())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                await self._stop_containers()
            await living
        finally:
            await _cancel(living, stopping)
        for container in self._all() if self._stopping.is_set() else ():
            container.close()
        self._sandbox.remove()
        self.stopped.set()
        self._changed.set()

    async def _live(self) -> None:
        if not await self._prepare():
            return
        refreshing = asyncio.create_task(self._refresh())
        async with asyncio.TaskGroup() as sidecars:
            try:
                if await self._initialize(sidecars):
                    await asyncio.gather(*(one.run() for one in self._containers))
            finally:
                refreshing.cancel()
                await self._stop_sidecars()

    async def _prepare(self) -> bool:
        while not self._stopping.is_set():
            try:
                await self._sandbox.prepare()
            except (ConfigError, ApiError, ApiUnavailable, OSError) as error:
                for container in self._all():
                    container.wait_for("ContainerCreating", str(error))
                await self._pause(_RETRY_S)
                continue
            return True
        return False

    async def _initialize(self, sidecars: asyncio.TaskGroup) -> bool:
        """Whether every init container has completed."""
        for container in self._init:
            if container.name in self._sidecars:
                sidecars.create_task(container.run())
                await self._unless_stopped(container.started.wait())
            else:
                ended = await container.run()
                if ended is None or ended.exit_code:
                    return False
        for container in self._containers:
            container.wait_for("ContainerCreating")
        return not self._stopping.is_set()

    async def _stop_containers(self) -> None:
        mains = [one for one in self._all() if one.name not in self._sidecars]
        await asyncio.gather(*(one.stop() for one in mains))
        await self._stop_sidecars()

    async def _stop_sidecars(self) -> None:
        for container in reversed(self._init):
            if container.name in self._sidecars:
                await container.stop()

    async def _refresh(self) -> None:
        while self._sandbox.is_refreshable:
            await asyncio.sleep(_REFRESH_S)
            try:
                await self._sandbox.refresh()
            except (ConfigError, ApiError, ApiUnavailable, OSError) as error:
                log.debug("volumes of %s stay as they are: %s", self.key, error)

    async def _expire(self) -> None:
        """Fail the pod when it outlives activeDeadlineSeconds."""
        while not self.stopped.is_set():
            limit_s = self._object.spec.get("activeDeadlineSeconds")
            age_s = (datetime.now(UTC) - self._started_at).total_seconds()
            if limit_s is not None and age_s >= limit_s:
                message = "Pod was active on the node longer than the specified deadline"
                self._failure = {"reason": "DeadlineExceeded", "message": message}
                self._begin_stop(self._object.usual_grace_s)
                return
            # The deadline of a running pod may be shortened: check it periodically.
            await asyncio.sleep(5 if limit_s is None else min(limit_s - age_s, 5))

    async def _report_changes(self) -> None:
        """Report what changed, one write after the other, until the pod is over."""
        is_last = False
        while not is_last:
            await self._changed.wait()
            await asyncio.sleep(_SETTLE_S)
            self._changed.clear()
            is_last = self._is_over
            await self._object.report(self._state)

    def _state(self) -> PodState:
        return PodState(
            pod_ip=self._sandbox.pod_ip,
            started_at=self._started_at,
            init=[one.report for one in self._init],
            containers=[one.report for one in self._containers],
            sidecars=self._sidecars,
            restart_policy=self._object.spec.get("restartPolicy") or "Always",
            ended=self.stopped.is_set() and self._stopping.is_set(),
            **self._failure,
        )

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _unless_stopped(self, awaited: Awaitable[Any]) -> None:
        tasks = {asyncio.ensure_future(awaited), asyncio.create_task(self._stopping.wait())}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(*tasks)


def _take_address(host: Host, pod: KubeObject) -> str:
    if pod["spec"].get("hostNetwork"):
        return HOST_IP
    last = (pod.get("status") or {}).get("podIP") or ""
    return host.addresses.take(pod["metadata"]["uid"], last)


def _sidecar_names(spec: KubeObject) -> Iterator[str]:
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            yield str(container["name"])


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
