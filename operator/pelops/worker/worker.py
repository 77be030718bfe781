"""The worker: the entry point of the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from pelops.worker.engine.in_flight import OrderBy
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.retries import RetryPolicy, counted
from pelops.worker.engine.shared import Clock, build_shared, steady
from pelops.worker.engine.worker_session import WorkerSession
from pelops.worker.handlers import Threads, adapt_handler, decode_first, make_handler
from pelops.worker.metrics import build_metrics
from pelops.worker.redaction import Redact
from pelops.worker.server.adapter import GroupAdapter
from pelops.worker.settings import WorkerPlace, WorkerSettings, WrongWorkerSettings, read_place
from pelops.worker.tracing import traced

Given = TypeVar("Given")
MakeAdapter = Callable[[], GroupAdapter]


class WorkerOptions(TypedDict, total=False):
    """Options of a worker; `WorkerSettings` has their meaning and defaults."""

    processing_timeout_ms: int
    field_prefix: str
    concurrency: int
    prefetch: int
    prefetch_bytes: int
    retry: RetryPolicy
    timeout_s: float | None
    grace_s: float
    acknowledge_s: float
    acknowledge_count: int
    blocked_s: float | None
    max_entry_bytes: int
    max_crashes: int | None
    batch_size: int
    redact: Redact | None
    health_port: int | None
    health_host: str | None


class Worker:
    """Handles the entries of one consumer group, as one of its consumers.

        worker = Worker.from_env()

        @worker.handler
        async def handle(entry):
            await ship(entry.json("order"))

        worker.run()

    An entry is acknowledged when its handler returns. When the handler raises, the entry is retried
    in this worker, and becomes a dead letter after too many failures. `Retry` and `Reject` choose
    one of both at once.
    """

    def __init__(
        self,
        place: WorkerPlace | MakeAdapter,
        settings: WorkerSettings | None = None,
        *,
        observer: Observer | None = None,
        order_by: OrderBy | None = None,
        clock: Clock = steady,
    ) -> None:
        """Create a worker.

        Args:
            place: the group and its Redis; or a function that makes adapters, for tests.
            observer: default: Prometheus metrics, if prometheus-client is installed.
            order_by: entries for which it returns the same value run one after another. Default:
                entries run in any order.
        """
        self.settings = settings or WorkerSettings()
        if isinstance(place, WorkerPlace):
            self._make_adapter = _redis_adapters(place)
            self.settings = replace(
                self.settings,
                processing_timeout_ms=place.processing_timeout_ms,
                field_prefix=place.field_prefix,
            )
            observer = observer or build_metrics(place.keys.stream, place.keys.group)
        else:
            self._make_adapter = place
        self.observer = observer or Observer()
        self._order_by = order_by
        self._clock = clock
        self._threads = Threads()
        self._handler: Any = None
        self._serving: WorkerSession | None = None

    @classmethod
    def from_env(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        observer: Observer | None = None,
        order_by: OrderBy | None = None,
        deletes_acknowledged: bool | None = None,
        **options: Unpack[WorkerOptions],
    ) -> Worker:
        """Create a worker from the `PELOPS_*` variables; options override them.

        Raises WrongWorkerSettings, whose message names the variable. If the application does not
        catch it, the process prints only that message and exits with code 2.

        Args:
            observer, order_by: as for `Worker()`.
            deletes_acknowledged: whether entries are deleted (XACKDEL) once every group has
                acknowledged them. Default: `PELOPS_DELETE_ACKNOWLEDGED`.
        """
        settings = WorkerSettings.from_env(environment, **options)
        place = replace(
            read_place(environment, deletes_acknowledged=deletes_acknowledged),
            processing_timeout_ms=settings.processing_timeout_ms,
            field_prefix=settings.field_prefix,
        )
        return cls(place, settings, observer=observer, order_by=order_by)

    @overload
    def handler(self, given: Given) -> Given: ...

    @overload
    def handler(
        self, *, decode: Callable[..., Any], field: str | None = None
    ) -> Callable[[Given], Given]: ...

    def handler(
        self,
        given: Any = None,
        *,
        decode: Callable[..., Any] | None = None,
        field: str | None = None,
    ) -> Any:
        """Use this function for each entry, or this class with `handle_batch` for several.

        A function that is not async runs in a thread. With `decode`, the function receives the
        result of `Entry.decode` in place of the entry. Raises WrongWorkerSettings when the worker
        has a handler, and TypeError for an object that cannot be a handler.
        """
        if given is None:
            if decode is None:
                return self.handler
            return lambda function: self._set_handler(
                function, decode_first(function, decode, field)
            )
        return self._set_handler(given, given)

    def _set_handler(self, given: Any, used: Any) -> Any:
        if self._handler is not None:
            raise WrongWorkerSettings("this worker already has a handler; a worker has exactly one")
        made = make_handler(used)
        adapt_handler(made, self._threads)  # raises TypeError for an invalid handler
        self._handler = made
        return given

    def run(self) -> None:
        """Process entries until SIGTERM or SIGINT, then exit the process.

        Exit code 0: finished entries are acknowledged, the rest is released. 1: an unexpected
        error. 2: a setting is invalid. Requests that Redis refuses are retried; meanwhile
        `is_ready` is False.
        """
        from pelops.worker.engine.worker_process import run_process

        run_process(self)

    async def serve(self) -> int:
        """Process entries until `stop` is called, in an application with its own event loop.

        Returns the exit code for the process. Canceling it shuts down as `stop` does.
        """
        if self._handler is None:
            raise WrongWorkerSettings("this worker has no handler: use @worker.handler")
        if self._serving is not None:
            raise WrongWorkerSettings("this worker is already running")
        adapter = self._make_adapter()
        shared = build_shared(adapter, self.settings, self.observer, self._clock, self._order_by)
        handler = traced(adapt_handler(self._handler, self._threads))
        if self.settings.max_crashes is not None:
            handler = counted(handler, adapter, self.settings.max_crashes)
        serving = self._serving = WorkerSession(shared, handler, self._make_adapter)
        try:
            await self._serve(serving)
        finally:
            self._serving = None
            self._threads.close()
        return serving.exit_code

    async def _serve(self, serving: WorkerSession) -> None:
        work = asyncio.create_task(serving.run(), name="pelops-worker")
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.done():
                raise
            serving.stop()
            await asyncio.wait([work])
            raise

    def stop(self) -> None:
        """Stop reading, finish running handlers, release the rest. A second call cancels them."""
        if self._serving is not None:
            self._serving.stop()

    @property
    def is_ready(self) -> bool:
        """Whether the worker reads entries and Redis accepts its requests."""
        serving = self._serving
        return (
            serving is not None
            and serving.reader.has_read
            and not serving.stopping.is_set()
            and not serving.shared.refusals.current
        )

    @property
    def is_live(self) -> bool:
        """Whether the event loop runs; False: the process must be restarted."""
        return self._serving is None or not self._serving.watchdog.is_given_up

    def describe(self) -> str:
        """Return the problem, or the number of handlers and entries, in one sentence."""
        serving = self._serving
        if serving is None:
            return "not running"
        still_s = serving.watchdog.blocked_s
        if still_s:
            return f"the event loop is blocked for {still_s:.0f} s"
        refused = serving.shared.refusals.current
        if refused:
            return f"Redis refuses: {'; '.join(refused)}"
        in_flight = serving.shared.in_flight
        return f"handlers running: {len(in_flight.running)}; entries in flight: {len(in_flight)}"


def _redis_adapters(place: WorkerPlace) -> MakeAdapter:
    def make() -> GroupAdapter:
        # Imported late: tests with the in-memory double need no Redis client.
        from pelops.worker.server.redis_adapter import RedisAdapter

        return RedisAdapter(place)

    return make
