"""One operator replica, put together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Self

from aiohttp import web

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.audit.loop import Audits
from pelops.controller.group.deletion import Deletion
from pelops.controller.group.memory import Memories
from pelops.controller.group.observation import Observer
from pelops.controller.group.reconcile import Doors, Reconciler
from pelops.controller.group.steps import Steps
from pelops.controller.group.targets import Targets
from pelops.controller.group.upkeep import UpkeepSteps
from pelops.controller.group.workload import WorkloadSteps
from pelops.controller.recovery.clock_skew import NodeClocks
from pelops.controller.recovery.lock_expiry import Listening
from pelops.controller.recovery.loop import SweepLoop
from pelops.controller.recovery.pod_evidence import Evidence
from pelops.controller.recovery.scanner import SweepDoors, Sweeper
from pelops.controller.runtime.cache import WATCHED, Cache
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.http import start_serving
from pelops.controller.runtime.loop import ReconcileLoop, Resync
from pelops.controller.runtime.membership import ANSWER_S, Members
from pelops.controller.runtime.passes import Pace
from pelops.controller.runtime.pods import PodChange
from pelops.controller.runtime.process import Heap, cancel_all, until_stopped
from pelops.controller.runtime.queue import KeyedQueue
from pelops.controller.runtime.secrets import Secrets
from pelops.controller.runtime.settings import Settings
from pelops.controller.runtime.versions import Name
from pelops.controller.runtime.watch import Watch
from pelops.controller.scaling.loop import Scaling, ScalingDoors
from pelops.domain.recovery import Trigger
from pelops.errors import Forbidden, InvalidSpec, KubernetesError, KubernetesUnavailable, NotFound
from pelops.kube.client import Address, KubeApi, Manifest
from pelops.kube.resources import NAMESPACE, NODE, Kind
from pelops.metrics import QUEUE_DEPTH, RESOURCES
from pelops.redis_core.pool import ServerPool

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
        self._cache = Cache(self._clock)
        self._cluster = ""  # identity of this Kubernetes cluster; empty when unknown
        self._queue: KeyedQueue[Name] = KeyedQueue(self._clock)
        self._memories = Memories()
        self._audits = Audits(self._cache, self._queue.add, self._clock)
        self._pool = ServerPool()
        self._runner: web.AppRunner | None = None
        self._api: KubeApi | None = None
        self._member_api: KubeApi | None = None
        self._members: Members | None = None
        self._problem = "the API server was not yet asked"
        self._beat = self._clock()
        self._sweeps: SweepLoop | None = None
        self._watch: Watch | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        self._runner, port = await start_serving(
            host=settings.http_host,
            port=settings.http_port,
            is_alive=self.why_not_alive,
            is_ready=self.why_not_ready,
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
        for api in (self._api, self._member_api):
            if api is not None:
                await api.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def run(self) -> None:
        """Run until the stop event. Raises KubernetesUnavailable without a way to the cluster."""
        settings = self._settings
        api = self._api = await KubeApi.connect(settings.kubeconfig)
        # A client of its own: requests of a busy replica would delay its renewals.
        self._member_api = await KubeApi.connect(settings.kubeconfig, timeout_s=ANSWER_S)
        self._resync = Resync(api, self._cache, self._concern, settings.namespaces)
        watch = Watch(api, self._resync, self._hear, self._clock)
        self._members = Members(
            self._member_api, identity=settings.identity, namespace=settings.member_namespace
        )
        kinds, cluster = await until_stopped(self._prepare(api, self._members), self._stop) or (
            (),
            "",
        )
        if self._stop.is_set():
            return
        self._cluster = cluster
        observer = self._observer(api, cluster)
        reporter = Reporter(api, identity=settings.identity)
        scaling = self._scaling = self._build_scaling(api, observer, reporter)
        reconciler = self._build(api, observer, reporter)
        listening = Listening(observer.connect, self._wake)
        self._sweeps = self._build_sweeps(api, observer, reporter, listening)
        self._cache.listen(self._hear_pod)
        loops = (
            watch.run(kinds),
            ReconcileLoop(reconciler, self._queue, measure=self._measure).run(),
            self._resync.run(kinds, every_s=settings.resync_s),
            *self._audits.loops(api, settings, self._members, observer),
            self._sweeps.run(),
            scaling.run(),
            listening.run(self._listeners),
            self._members.run(),
            self._keep_house(),
            Heap().run(),
        )
        self.begin(watch)
        log.info("ready", extra={"kinds": [kind.plural for kind in kinds]})
        # A loop that breaks takes the process along: better started anew than half alive.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await self._stop.wait()
            await cancel_all(tasks)

    def begin(self, watch: Watch) -> None:
        """Be ready from now on, as long as the watch gives signs of life."""
        self._watch = watch
        self._problem = ""

    def _observer(self, api: KubeApi, cluster: str) -> Observer:
        self._secrets = Secrets(api, self._clock)
        self._targets = Targets(api, self._cache, self._clock)
        return Observer(self._cache, self._pool, self._secrets, self._targets, cluster=cluster)

    def _build_sweeps(
        self, api: KubeApi, observer: Observer, reporter: Reporter, listening: Listening
    ) -> SweepLoop:
        assert self._members is not None
        clocks = self._clocks = NodeClocks(api, self._clock)
        doors = SweepDoors(
            cache=self._cache,
            observer=observer,
            members=self._members,
            evidence=Evidence(api, self._cache, cluster=self._cluster, clocks=clocks),
            targets=self._targets,
            skew=timedelta(seconds=self._settings.skew_s),
            reporter=reporter,
            hears=listening.problem,
            identity=self._settings.identity,
        )
        return SweepLoop(Sweeper(doors, self._clock), self._cache, self._members, self._clock)

    def _build_scaling(self, api: KubeApi, observer: Observer, reporter: Reporter) -> Scaling:
        assert self._members is not None
        doors = ScalingDoors(
            api=api,
            cache=self._cache,
            members=self._members,
            observer=observer,
            targets=self._targets,
            reporter=reporter,
            tell=self._queue.add,
            note=self._memories.note,
        )
        return Scaling(doors, self._clock)

    def _build(self, api: KubeApi, observer: Observer, reporter: Reporter) -> Reconciler:
        settings, members = self._settings, self._members
        assert members is not None
        workload = WorkloadSteps(api, self._cache, self._targets)
        upkeep = UpkeepSteps(api, self._cache, identity=settings.identity)
        doors = Doors(
            api=api,
            cache=self._cache,
            members=members,
            observer=observer,
            steps=Steps(api, self._cache, workload, upkeep),
            deletion=Deletion(api, self._cache, observer, reporter),
            reporter=reporter,
            decision=self._scaling.decision,
            notices=self._audits.cache.notices,
        )
        pace = Pace(observe_s=settings.observe_s, status_s=settings.status_s)
        return Reconciler(doors, pace, self._clock, self._memories)

    async def _prepare(self, api: KubeApi, members: Members) -> tuple[tuple[Kind, ...], str]:
        """Fill the cache by a first LIST of everything: the kinds that may be read, the cluster.

        The other members are known before the first turn, or every new replica would write.
        """
        while True:
            try:
                kinds = await self._list_all()
                await self._audits.prepare(api, self._settings)
                await members.try_beat()
                return kinds, await _cluster_identity(api)
            except KubernetesError as error:
                self._problem = str(error)
                log.warning("cannot start yet: %s", error)
                await asyncio.sleep(STARTUP_RETRY_S)

    async def _list_all(self) -> tuple[Kind, ...]:
        kinds = []
        for kind in WATCHED:
            try:
                await self._resync.resync(kind)
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
            concerned = self._cache.remove(kind, name, metadata["uid"], last=manifest)
        else:
            concerned = self._cache.put(kind, manifest)
        self._concern(kind, concerned)

    def _concern(self, kind: Kind, names: set[Name]) -> None:
        for name in names:
            self._queue.add(name)
            self._audits.hear_group(name)
            if self._sweeps is not None:
                self._sweeps.notice(name)
                self._scaling.notice(kind, name)

    def _measure(self) -> None:
        QUEUE_DEPTH.set(len(self._queue))
        RESOURCES.set(len(self._cache.resources))

    def _hear_pod(self, change: PodChange) -> None:
        if change.is_end:
            for name in change.concerned:
                self._wake(name, Trigger.POD_DEATH)

    def _listeners(self) -> Iterator[StreamConsumerGroup]:
        """The resources that ask for their locks' expiry to be listened for."""
        for manifest in list(self._cache.resources.values()):
            locks = ((manifest.get("spec") or {}).get("recovery") or {}).get("locks") or {}
            if locks.get("keyspaceNotifications"):
                with contextlib.suppress(InvalidSpec):
                    yield StreamConsumerGroup.parse(manifest)

    def _wake(self, name: Name, trigger: str) -> None:
        if self._sweeps is not None:
            self._sweeps.wake(name, Trigger(trigger))

    async def _keep_house(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(1)
            self._beat = self._clock()
            ticks += 1
            if ticks % HOUSEKEEPING_S == 0:
                self._secrets.prune()
                self._clocks.prune()
                await self._pool.close_unused(UNUSED)

    def why_not_ready(self) -> str:
        """Name what is not yet well, and each watched kind that is silent; empty: nothing."""
        if self._problem or self._watch is None:
            return self._problem
        return "; ".join(filter(None, (self._watch.problem(), self._audits.problem())))

    def why_not_alive(self) -> str:
        """Name what only a restart mends; empty: nothing. The API server plays no part."""
        if self._problem == "" and self._clock() - self._beat > STUCK_S:
            return "the event loop or its housekeeping stands still"
        return ""


async def _cluster_identity(api: KubeApi) -> str:
    """The uid of kube-system, which names a cluster for life; empty when it may not be read."""
    try:
        manifest = await api.get(Address(kind=NAMESPACE, namespace=None, name="kube-system"))
    except (Forbidden, NotFound):
        return ""
    return str(manifest["metadata"]["uid"])
