"""One operator replica: its connections, the kinds that it manages, its health, and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from aiohttp import web

from pelops.controller.audit.kind import AuditKind
from pelops.controller.group.kind import GroupKind
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.connections import Connections, Secrets
from pelops.controller.runtime.http import start_serving
from pelops.controller.runtime.kind import Services
from pelops.controller.runtime.membership import ANSWER_S, Members
from pelops.controller.runtime.process import Heap, cancel_all, until_stopped
from pelops.controller.runtime.runtime import AnyKind, Runtime
from pelops.controller.runtime.settings import ReplicaSettings
from pelops.errors import Forbidden, KubernetesError, NotFound
from pelops.kube.client import Address, KubeApi
from pelops.kube.resources import NAMESPACE, Kind
from pelops.redis_core.pool import ServerPool

log = logging.getLogger(__name__)

HOUSEKEEPING_S: Final = 60
STARTUP_RETRY_S: Final = 2.0
STUCK_S: Final = 60.0

Result = TypeVar("Result")


def build_kinds(services: Services, *, cluster: str) -> Sequence[AnyKind]:
    """All kinds that the operator manages. `cluster` identifies this Kubernetes cluster."""
    audits = AuditKind(services)
    return GroupKind(services, cluster=cluster, notices=audits.index.notices), audits


class ReplicaHealth(Protocol):
    """What readiness follows."""

    def problem(self) -> str:
        """What is not well; empty: nothing."""


class Replica:
    """Watches, reconciles and serves until told to stop."""

    def __init__(self, settings: ReplicaSettings, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._pool = ServerPool()
        self._runner: web.AppRunner | None = None
        self._apis: list[KubeApi] = []
        self._members: Members | None = None
        self._problem = "the API server was not yet asked"
        self._beat = self._clock()
        self._health: ReplicaHealth | None = None

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
        for api in self._apis:
            await api.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def run(self) -> None:
        """Run until the stop event. Raises KubernetesUnavailable without a way to the cluster."""
        settings, clock = self._settings, self._clock
        api = await self._connect()
        # A client of its own: requests of a busy replica would delay its renewals.
        member_api = await self._connect(timeout_s=ANSWER_S)
        members = self._members = Members(
            member_api, identity=settings.identity, namespace=settings.member_namespace
        )
        services = Services(
            api=api,
            cache=Cache(),
            members=members,
            connections=Connections(self._pool, Secrets(api, clock)),
            settings=settings,
            clock=clock,
        )
        cluster = await self._begin_with(lambda: _cluster_identity(api))
        if cluster is None:
            return
        runtime = Runtime(services, build_kinds(services, cluster=cluster))
        kinds = await self._begin_with(lambda: _prepare(runtime, members))
        if kinds is None:
            return
        loops = (
            *runtime.loops(),
            members.run(),
            self._keep_house(runtime, services.connections),
            Heap().run(),
        )
        self.begin(runtime)
        log.info("ready", extra={"kinds": [kind.plural for kind in kinds]})
        # A loop that breaks takes the process along: better started anew than half alive.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await self._stop.wait()
            await cancel_all(tasks)

    def begin(self, health: ReplicaHealth) -> None:
        """Be ready from now on, as long as nothing is wrong with this."""
        self._health = health
        self._problem = ""

    async def _connect(self, *, timeout_s: float = 30.0) -> KubeApi:
        api = await KubeApi.connect(self._settings.kubeconfig, timeout_s=timeout_s)
        self._apis.append(api)
        return api

    async def _begin_with(self, work: Callable[[], Awaitable[Result]]) -> Result | None:
        """The result of the work, repeated until it works; None when the stop came first."""

        async def repeat() -> Result:
            while True:
                try:
                    return await work()
                except KubernetesError as error:
                    self._problem = str(error)
                    log.warning("cannot start yet: %s", error)
                    await asyncio.sleep(STARTUP_RETRY_S)

        result = await until_stopped(repeat(), self._stop)
        return None if self._stop.is_set() else result

    async def _keep_house(self, runtime: Runtime, connections: Connections) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(1)
            self._beat = self._clock()
            ticks += 1
            if ticks % HOUSEKEEPING_S == 0:
                runtime.tidy()
                await connections.tidy()

    def why_not_ready(self) -> str:
        """Name what is not yet well, and each watched kind that is silent; empty: nothing."""
        if self._problem or self._health is None:
            return self._problem
        return self._health.problem()

    def why_not_alive(self) -> str:
        """Name what only a restart mends; empty: nothing. The API server plays no part."""
        if self._problem == "" and self._clock() - self._beat > STUCK_S:
            return "the event loop or its housekeeping stands still"
        return ""


async def _prepare(runtime: Runtime, members: Members) -> tuple[Kind, ...]:
    """Fill the cache, and meet the other members: else every new replica would write."""
    kinds = await runtime.prepare()
    await members.try_beat()
    return kinds


async def _cluster_identity(api: KubeApi) -> str:
    """The uid of kube-system, which names a cluster for life; empty when it may not be read."""
    try:
        manifest = await api.get(Address(kind=NAMESPACE, namespace=None, name="kube-system"))
    except (Forbidden, NotFound):
        return ""
    return str(manifest["metadata"]["uid"])
