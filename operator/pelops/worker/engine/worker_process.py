"""A worker as a process: signals, exit codes, and an HTTP endpoint for probes and metrics.

The endpoint (`/livez`, `/readyz`, `/metrics`) has its own thread and event loop, so it answers
while a handler blocks the worker's loop. `/livez` fails when that loop has been blocked for so long
that the watchdog stops its heartbeats: a restart then helps. `/readyz` fails until the first read
succeeds, while Redis refuses commands, and from SIGTERM on. The probe's failureThreshold sets how
long that may last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, Protocol

from pelops.errors import InvalidSpec, PelopsError
from pelops.worker.metrics import render_metrics
from pelops.worker.settings import WRONG_SETTINGS, WorkerSettings, WrongWorkerSettings

log = logging.getLogger("pelops.worker")

_REQUEST_S: Final = 5.0  # for a client to send its request and receive the response
_REQUEST_BYTES: Final = 16 * 1024
_START_S: Final = 10.0
_TEXT: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Answer = tuple[int, str, bytes]  # status, content type, body


class HealthSubject(Protocol):
    """The source of a health status, such as `Worker`. Called from another thread."""

    @property
    def is_live(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...

    def describe(self) -> str: ...


class ServedWorker(HealthSubject, Protocol):
    """What a process needs of a `Worker`."""

    @property
    def settings(self) -> WorkerSettings: ...

    def stop(self) -> None: ...

    async def serve(self) -> int: ...


class HealthServer:
    """Serves while its `with` lasts. Raises WrongWorkerSettings if it cannot listen."""

    def __init__(self, subject: HealthSubject, *, host: str | None = None, port: int) -> None:
        """`host` None: all addresses. `port` 0: any free port; `self.port` then has it."""
        self.port = port
        self._subject = subject
        self._host = host
        self._loop: asyncio.AbstractEventLoop
        self._ending = asyncio.Event()
        self._started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="pelops-health", daemon=True)

    def __enter__(self) -> HealthServer:
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        try:
            self.port = self._started.result(_START_S)
        except (OSError, OverflowError) as error:
            self._thread.join(_START_S)
            where = f"{self._host or '*'}:{self.port}"
            raise WrongWorkerSettings(
                f"PELOPS_HEALTH_PORT: cannot listen on {where} ({error}); name a port that is free"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(_START_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(_end_tasks())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._handle_connection, self._host, self.port, limit=_REQUEST_BYTES, backlog=16
        )
        self._started.set_result(int(server.sockets[0].getsockname()[1]))
        await self._ending.wait()
        server.close()

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                writer.write(await self._read_request(reader))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client has disconnected, or sends nothing
        finally:
            writer.close()

    async def _read_request(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _render("GET", (400, _TEXT, b"the request is too long\n"))
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        return _render(method, self._answer(method, rest.partition(" ")[0].partition("?")[0]))

    def _answer(self, method: str, path: str) -> Answer:
        if path not in _PATHS:
            return 404, _TEXT, f"try {', '.join(_PATHS)}\n".encode()
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET\n"
        try:
            return _PATHS[path](self._subject)
        except Exception as error:
            log.exception("%s: %s", path, type(error).__name__)
            return 500, _TEXT, f"{type(error).__name__}\n".encode()


def _report_live(subject: HealthSubject) -> Answer:
    return _report(subject.is_live, subject)


def _report_ready(subject: HealthSubject) -> Answer:
    return _report(subject.is_ready and subject.is_live, subject)


def _report(is_well: bool, subject: HealthSubject) -> Answer:
    return (200 if is_well else 503), _TEXT, f"{subject.describe()}\n".encode()


def _report_metrics(subject: HealthSubject) -> Answer:
    text = render_metrics()
    return (200, _METRICS, text) if text else (404, _TEXT, b"prometheus-client is not installed\n")


_PATHS: Final[dict[str, Callable[[HealthSubject], Answer]]] = {
    "/livez": _report_live,
    "/readyz": _report_ready,
    "/metrics": _report_metrics,
}


def _render(method: str, answer: Answer) -> bytes:
    status, kind, body = answer
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


_LEFTOVERS_S: Final = 1.0  # for tasks that handlers left running
_EXIT_S: Final = 3.0  # for the application's threads and exit handlers


def run_process(worker: ServedWorker) -> None:
    """Serve until SIGTERM or SIGINT, then exit the process. Does not return."""
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        with _health_of(worker):
            code = _run_loop(worker)
    except InvalidSpec as error:
        log.error("%s", error)
        code = WRONG_SETTINGS
    except PelopsError as error:
        log.error("%s: %s", type(error).__name__, error)
        code = 1
    except Exception:
        log.exception("the worker failed with an unexpected error")
        code = 1
    force_exit(code)
    sys.exit(code)


def _health_of(worker: ServedWorker) -> AbstractContextManager[object]:
    settings = worker.settings
    if settings.health_port is None:
        return nullcontext()
    return HealthServer(worker, host=settings.health_host, port=settings.health_port)


def _run_loop(worker: ServedWorker) -> int:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(worker, loop))
    finally:
        loop.run_until_complete(_end_leftovers())
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


async def _serve(worker: ServedWorker, loop: asyncio.AbstractEventLoop) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    try:
        return await worker.serve()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _end_leftovers() -> None:
    """Cancel tasks that handlers left running. asyncio.run would wait for them forever."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        log.warning("canceling %d tasks that handlers started and that still run", len(left))
        _, stubborn = await asyncio.wait(left, timeout=_LEFTOVERS_S)
        for task in stubborn:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # logged above


def force_exit(code: int) -> None:
    """Force the exit after 3 s: a thread that a handler left running would prevent it."""

    def end() -> None:
        time.sleep(_EXIT_S)
        log.error("forcing exit: threads are still running")
        logging.shutdown()
        os._exit(code)

    threading.Thread(target=end, name="pelops-exit", daemon=True).start()
