"""One operator replica, put together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from pelops.controller.cache import WATCHED, Cache, Name
from pelops.controller.deletion import Deletion
from pelops.controller.loop import ReconcileLoop, Resync
from pelops.controller.members import Members
from pelops.controller.observe import Observer
from pelops.controller.queue import KeyedQueue
from pelops.controller.reconcile import Doors, Pace, Reconciler
from pelops.controller.reporter import Reporter
from pelops.controller.secrets import Secrets
from pelops.controller.serving import start_serving
from pelops.controller.settings import Settings
from pelops.controller.steps import Steps
from pelops.controller.targets import Targets
from pelops.controller.watch import run_watch
from pelops.controller.workload_steps import WorkloadSteps
from pelops.errors import Forbidden, KubernetesError, KubernetesUnavailable, NotFound
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import NAMESPACE, NODE, Kind
from pelops.redis_streams.connection import ServerPool

log = logging.getLogger(__name__)

HOUSEKEEPING_S = 60.0
STARTUP_RETRY_S = 2.0
STUCK_S = 60.0
UNUSED = timedelta(minutes=5)


class Replica:
    """Watches, reconciles and serves until told to stop."""

    def __init__(self, settings: Settings, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._cache = Cache()
        self._queue: KeyedQueue[Name] = KeyedQueue(self._clock)
        self._pool = ServerPool()
        self._runner: web.AppRunner | None = None
        self._api: KubeApi | None = None
        self._members: Members | None = None
        self._problem = "the API server was not yet asked"
        self._beat = self._clock()

    async def __aenter__(self) -> Self:
        settings = self._settings
        self._runner, port = await start_serving(
            host=settings.http_host,
            port=settings.http_port,
            is_alive=self._why_not_alive,
            is_ready=lambda: self._problem,
        )
        log.info("serving on %s:%s", settings.http_host, port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._problem = "ending"
        if self._members is not None:
            await self._members.leave()
        await self._pool.close()
        if self._api is not None:
            await self._api.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def run(self) -> None:
        """Run until the stop event. Raises KubernetesUnavailable without a way to the cluster."""
        settings = self._settings
        api = self._api = await KubeApi.connect(settings.kubeconfig)
        self._members = Members(
            api, identity=settings.identity, namespace=settings.member_namespace
        )
        kinds, cluster = await self._until_stopped(self._prepare(api, self._members)) or ((), "")
        if self._stop.is_set():
            return
        reconciler = self._build(api, self._members, cluster)
        resync = Resync(api, self._cache, self._queue, settings.namespaces)
        loops = (
            ReconcileLoop(reconciler, self._queue, self._cache).run(),
            resync.run(kinds, every_s=settings.resync_s),
            self._members.run(),
            self._keep_house(),
        )
        self._problem = ""
        log.info("ready", extra={"kinds": [kind.plural for kind in kinds]})
        # A loop that breaks takes the process along: better started anew than half alive.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await run_watch(
                api, kinds, namespaces=settings.namespaces, listener=self._hear, stop=self._stop
            )
            for task in tasks:
                task.cancel()

    def _build(self, api: KubeApi, members: Members, cluster: str) -> Reconciler:
        settings = self._settings
        secrets = self._secrets = Secrets(api, self._clock)
        targets = Targets(api, self._cache, self._clock)
        observer = Observer(self._cache, self._pool, secrets, targets, cluster=cluster)
        reporter = Reporter(api, identity=settings.identity)
        doors = Doors(
            api=api,
            cache=self._cache,
            members=members,
            observer=observer,
            steps=Steps(api, self._cache, WorkloadSteps(api, self._cache, targets)),
            deletion=Deletion(api, self._cache, observer, reporter),
            reporter=reporter,
        )
        pace = Pace(observe_s=settings.observe_s, status_s=settings.status_s)
        return Reconciler(doors, pace, self._clock)

    async def _prepare(self, api: KubeApi, members: Members) -> tuple[tuple[Kind, ...], str]:
        """Fill the cache by a first LIST of everything: the kinds that may be read, the cluster.

        The other members are known before the first turn, or every new replica would write.
        """
        while True:
            try:
                kinds = await self._list_all(api)
                await members.try_beat()
                return kinds, await _cluster_identity(api)
            except KubernetesError as error:
                self._problem = str(error)
                log.warning("cannot start yet: %s", error)
                await asyncio.sleep(STARTUP_RETRY_S)

    async def _list_all(self, api: KubeApi) -> tuple[Kind, ...]:
        resync = Resync(api, self._cache, self._queue, self._settings.namespaces)
        kinds = []
        for kind in WATCHED:
            try:
                await resync.resync(kind)
            except NotFound as error:
                raise KubernetesUnavailable(
                    f"the API server serves no {kind.plural}: install the CRDs of Pelops first"
                ) from error
            except Forbidden as error:
                if kind is not NODE:
                    raise
                # A namespaced install may not read nodes: less is told, nothing else changes.
                log.info("nodes are not watched: %s", error)
                continue
            kinds.append(kind)
        return tuple(kinds)

    def _hear(self, kind: Kind, manifest: Manifest, is_gone: bool) -> None:
        if is_gone:
            metadata = manifest["metadata"]
            name = (metadata.get("namespace", ""), metadata["name"])
            concerned = self._cache.remove(kind, name, metadata["uid"])
        else:
            concerned = self._cache.put(kind, manifest)
        for name in concerned:
            self._queue.add(name)

    async def _keep_house(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(1)
            self._beat = self._clock()
            ticks += 1
            if ticks % HOUSEKEEPING_S == 0:
                self._secrets.prune()
                await self._pool.close_unused(UNUSED)

    def _why_not_alive(self) -> str:
        if self._problem == "" and self._clock() - self._beat > STUCK_S:
            return "the event loop or its housekeeping stands still"
        return ""

    async def _until_stopped(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of the work, or None when the stop came first."""
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for pending in (task, stopped):
            if not pending.done():
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await pending
        return None if task.cancelled() else task.result()


async def _cluster_identity(api: KubeApi) -> str:
    """The uid of kube-system, which names a cluster for life; empty when it may not be read."""
    try:
        manifest = await api.get(Address(kind=NAMESPACE, namespace=None, name="kube-system"))
    except (Forbidden, NotFound):
        return ""
    return str(manifest["metadata"]["uid"])
