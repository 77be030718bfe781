"""The operator process: one replica with its connections, kinds, HTTP endpoint, and end.

`main` starts it. The HTTP endpoint serves `/livez`, `/readyz` and `/metrics`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import platform
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from pelops.build import revision, version
from pelops.controller.handlers import run_operator
from pelops.controller.inspection.inspection_server import (
    AUDIENCE,
    PATH,
    Handler,
    InspectionServer,
    default_socket,
    listen_on_socket,
)
from pelops.controller.inspection.inspector import Inspector
from pelops.controller.kinds.audit_kind import AuditKind
from pelops.controller.kinds.group_kind import GroupKind
from pelops.controller.kinds.group_wiring import build_group_kind
from pelops.controller.kinds.redrive_kind import RedriveKind
from pelops.controller.runtime.access import OK, UNAUTHORIZED, UNAVAILABLE, TokenAccess
from pelops.controller.runtime.cache import Cache
from pelops.controller.runtime.connections import Connections, Secrets
from pelops.controller.runtime.gate import Progress
from pelops.controller.runtime.kind import Services
from pelops.controller.runtime.leases import ANSWER_S, Members
from pelops.controller.runtime.names import ReplicaEventLoop
from pelops.controller.runtime.runtime import AnyKind, Runtime
from pelops.controller.runtime.settings import ReplicaSettings, parse_settings
from pelops.errors import Forbidden, KubernetesError, NotFound, PelopsError
from pelops.kube.client import NAMESPACE, Address, Kind, KubeApi
from pelops.logs import configure_logging
from pelops.metrics import BUILD_INFO, measure_script
from pelops.redis_core.pool import ServerPool

log = logging.getLogger(__name__)


Result = TypeVar("Result")
# What is not yet well; empty when all is.
Check = Callable[[], str]
# The HTTP status for the value of an Authorization header; 200 lets the request pass.
Access = Callable[[str], Awaitable[int]]

METRICS: Final = "/metrics"

FILES: Final = 65_536  # open at once, of which sockets are the most


class MetricsAccess:
    """Allows `/metrics` for tokens that the API server accepts and whose rights include it."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._tokens = TokenAccess(api, clock)

    async def __call__(self, authorization: str) -> int:
        """The HTTP status for this header: 200, 401, 403, 429 or 503."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return UNAUTHORIZED
        right = {"nonResourceAttributes": {"path": METRICS, "verb": "get"}}
        return await self._tokens.check(token.strip(), right, what=METRICS)


async def start_serving(
    *,
    host: str,
    port: int,
    is_alive: Check,
    is_ready: Check,
    access: Access | None = None,
    inspection: Handler | None = None,
) -> tuple[web.AppRunner, int]:
    """A server that answers from now on, and its port. The caller cleans the runner up.

    `access` decides who may read `/metrics`; without it everybody who reaches the port may.
    `inspection` answers questions about entries; without it there is no such path.
    """
    app = web.Application()
    if inspection is not None:
        app.router.add_post(PATH, inspection)
    app.router.add_get("/livez", _answer(is_alive))
    app.router.add_get("/readyz", _answer(is_ready))
    app.router.add_get(METRICS, _metrics if access is None else _guarded(access))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    return runner, int(runner.addresses[0][1])


def _answer(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")

    return answer


def _guarded(access: Access) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        status = await access(request.headers.get("Authorization", ""))
        if status != OK:
            headers = {"WWW-Authenticate": "Bearer"} if status == UNAUTHORIZED else None
            return web.Response(status=status, headers=headers)
        return await _metrics(request)

    return answer


async def _metrics(request: web.Request) -> web.Response:
    """All metrics, or those that the parameter `name[]` names, as other exporters take it."""
    names = request.query.getall("name[]", [])
    asked = REGISTRY.restricted_registry(names) if names else REGISTRY
    return web.Response(body=generate_latest(asked), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def until_stopped(work: Coroutine[Any, Any, Result], stop: asyncio.Event) -> Result | None:
    """The result of the work, or None when the stop came first."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for pending in (task, stopped):
        if not pending.done():
            pending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pending
    return None if task.cancelled() else task.result()


async def cancel_all(tasks: Collection[asyncio.Task[None]]) -> None:
    """End tasks, however often they must be asked.

    `asyncio.wait_for`, which redis-py uses, may swallow a cancellation on Python 3.11
    (https://github.com/python/cpython/issues/86296).
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)


FIRST_COLLECTION_S: Final = 10.0  # after the start, when the cache is filled
COLLECT_EVERY_S: Final = 60.0
CHECK_EVERY_S: Final = 2.0
MUCH: Final = 10  # collections of the middle generation, each after up to 7,000 new objects
MUCH_GARBAGE: Final = 20_000  # objects
THOROUGH_EVERY: Final = 60  # collections
_NEVER: Final = 2**31 - 1


class Heap:
    """Garbage collection of this process, without repeated walks over long-lived objects.

    A full collection walks all live objects and blocks the event loop. With a thousand resources
    that took 0.3 s of processor time every ten to fifteen seconds, and seconds on a busy machine.
    A group at zero had to wait as long for its first worker. So long-lived objects are excluded
    (`gc.freeze`), and full collections run here only, over new objects. Excluded objects are still
    freed when their last reference ends. Only cycles among them wait for a thorough collection.
    """

    def __init__(self) -> None:
        self._collections = 0

    async def run(self) -> None:
        """Collect periodically until cancelled."""
        await asyncio.sleep(FIRST_COLLECTION_S)
        while True:
            self.collect()
            for _ in range(round(COLLECT_EVERY_S / CHECK_EVERY_S)):
                await asyncio.sleep(CHECK_EVERY_S)
                self.free_early()

    def free_early(self) -> None:
        """Free the cycles among new objects if there may be many, as after many failures."""
        if gc.get_count()[2] >= MUCH and gc.collect() < MUCH_GARBAGE:
            gc.freeze()  # most of them live, and are excluded from the next collection

    def collect(self) -> None:
        """Free the cycles among new objects, and exclude live ones. To be called regularly."""
        gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
        if self._collections % THOROUGH_EVERY == 0:
            gc.unfreeze()
        self._collections += 1
        gc.collect()
        gc.freeze()


HOUSEKEEPING_S: Final = 60
STARTUP_RETRY_S: Final = 2.0
STUCK_S: Final = 60.0


def build_kinds(services: Services, *, cluster: str) -> Sequence[AnyKind]:
    """All kinds that the operator manages. `cluster` identifies this Kubernetes cluster."""
    audits = AuditKind(services)
    groups = build_group_kind(services, cluster=cluster, notices=audits.index.notices)
    return groups, audits, RedriveKind(services)


class ReplicaHealth(Protocol):
    """The state that readiness depends on."""

    def problem(self) -> str:
        """The problem; empty: none."""


class Replica:
    """Watches, reconciles and serves until it is stopped."""

    def __init__(self, settings: ReplicaSettings, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._pool = ServerPool(measure_script)
        self._runner: web.AppRunner | None = None
        self._apis: list[KubeApi] = []
        self._members: Members | None = None
        self._access: MetricsAccess | None = None
        self._inspection_access: TokenAccess | None = None
        self._inspector: Inspector | None = None
        self._socket_runner: web.AppRunner | None = None
        self._problem = "no request to the API server has completed yet"
        self._housekept_at = self._clock()
        self._health: ReplicaHealth | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        inspections = InspectionServer(lambda: self._inspector)
        self._runner, port = await start_serving(
            host=settings.http_host,
            port=settings.http_port,
            is_alive=self.why_not_alive,
            is_ready=self.why_not_ready,
            access=self._may_read_metrics if settings.guards_metrics else None,
            inspection=inspections.guarded(lambda: self._inspection_access)
            if settings.serves_inspection
            else None,
        )
        log.info("Serving metrics and probes on %s:%s", settings.http_host, port)
        path = settings.inspection_socket or default_socket(port)
        self._socket_runner = await listen_on_socket(inspections, path)
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
        for runner in (self._socket_runner, self._runner):
            if runner is not None:
                await runner.cleanup()

    async def run(self) -> None:
        """Run until the stop event. Raises KubernetesUnavailable without a way to the cluster."""
        BUILD_INFO.labels(version(), revision(), platform.python_version()).set(1)
        settings, clock = self._settings, self._clock
        api = await self._connect()
        # A client of its own: requests of a busy replica would delay its renewals.
        member_api = await self._connect(timeout_s=ANSWER_S)
        self._access = MetricsAccess(api, clock)
        self._inspection_access = TokenAccess(api, clock, audience=AUDIENCE)
        members = self._members = Members(
            member_api, identity=settings.identity, namespace=settings.member_namespace
        )
        services = Services(
            api=api,
            cache=Cache(),
            members=members,
            connections=Connections(self._pool, Secrets(api, clock), settings.address_rules),
            settings=settings,
            clock=clock,
        )
        cluster = await self._begin_with(lambda: _cluster_identity(api))
        if cluster is None:
            return
        managed = build_kinds(services, cluster=cluster)
        runtime = Runtime(services, managed, run_operator)
        kinds = await self._begin_with(lambda: _prepare(runtime, members))
        if kinds is None:
            return
        keep_running = services.progress.keep_running
        loops = (
            *runtime.loops(),
            keep_running("members", members.run),
            keep_running(
                "housekeeping",
                partial(self._run_housekeeping, runtime, services.connections, services.progress),
            ),
            keep_running("heap", Heap().run),
        )
        self._inspector = next(one.inspector for one in managed if isinstance(one, GroupKind))
        self.begin(runtime)
        log.info("The operator is ready", extra={"kinds": [kind.plural for kind in kinds]})
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop) for loop in loops]
            await self._stop.wait()
            await cancel_all(tasks)

    def begin(self, health: ReplicaHealth) -> None:
        """Be ready from now on, as long as nothing is wrong with this."""
        self._health = health
        self._problem = ""

    async def _may_read_metrics(self, authorization: str) -> int:
        return UNAVAILABLE if self._access is None else await self._access(authorization)

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
                    log.warning("Could not start: %s; retrying in %g s", error, STARTUP_RETRY_S)
                    await asyncio.sleep(STARTUP_RETRY_S)

        result = await until_stopped(repeat(), self._stop)
        return None if self._stop.is_set() else result

    async def _run_housekeeping(
        self, runtime: Runtime, connections: Connections, progress: Progress
    ) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(1)
            self._housekept_at = self._clock()
            ticks += 1
            if ticks % HOUSEKEEPING_S == 0:
                runtime.prune()
                await connections.prune()
            progress.measure()

    def why_not_ready(self) -> str:
        """The problems, with each watched kind without answers; empty: none."""
        if self._problem or self._health is None:
            return self._problem
        return self._health.problem()

    def why_not_alive(self) -> str:
        """The problem that requires a restart; empty: none. Independent of the API server."""
        if self._problem == "" and self._clock() - self._housekept_at > STUCK_S:
            return f"the event loop has not run its housekeeping for more than {STUCK_S:g} s"
        return ""


async def _prepare(runtime: Runtime, members: Members) -> tuple[Kind, ...]:
    """Fill the cache, and meet the other members: else every new replica would write."""
    kinds = await runtime.prepare()
    await members.try_renew()
    return kinds


async def _cluster_identity(api: KubeApi) -> str:
    """The uid of kube-system, which names a cluster for life; empty when it may not be read."""
    try:
        manifest = await api.get(Address(kind=NAMESPACE, namespace=None, name="kube-system"))
    except (Forbidden, NotFound):
        return ""
    return str(manifest["metadata"]["uid"])


def raise_file_limit() -> None:
    """Take as many file descriptors as are allowed: container runtimes give 1,024 unless asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the operator until SIGTERM or SIGINT; exits 1 with a message when it cannot start."""
    settings = parse_settings(sys.argv[1:] if argv is None else argv, os.environ)
    configure_logging(settings.log_format, settings.log_level)
    build = {"version": version(), "revision": revision(), "python": platform.python_version()}
    log.info("Starting pelops-operator %s", version(), extra=build)
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=ReplicaEventLoop) as runner:
            runner.run(_run(settings))
    except PelopsError as error:
        log.error("Could not start: %s", error)
        sys.exit(1)


async def _run(settings: ReplicaSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Replica(settings, stop) as replica:
        await replica.run()
    log.info("The operator has stopped")
