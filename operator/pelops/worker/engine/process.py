"""A worker as a whole process: signals, exit codes, and an end that comes for certain."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from pelops.errors import InvalidSpec, PelopsError
from pelops.worker.engine.health import HealthServer
from pelops.worker.engine.uncaught import WRONG_SETTINGS

if TYPE_CHECKING:
    from pelops.worker.worker import Worker


log = logging.getLogger("pelops.worker")

_LEFTOVERS_S: Final = 1.0  # what tasks that handlers left behind get to end
_EXIT_S: Final = 3.0  # what threads and exit handlers of others get


def run_process(worker: Worker) -> None:
    """Serve until told to end; does not return."""
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
        log.exception("the worker broke")
        code = 1
    _see_to_the_end(code)
    sys.exit(code)


def _health_of(worker: Worker) -> AbstractContextManager[object]:
    settings = worker.settings
    if settings.health_port is None:
        return nullcontext()
    return HealthServer(worker, host=settings.health_host, port=settings.health_port)


def _run_loop(worker: Worker) -> int:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(worker, loop))
    finally:
        loop.run_until_complete(_end_leftovers())
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


async def _serve(worker: Worker, loop: asyncio.AbstractEventLoop) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    try:
        return await worker.serve()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _end_leftovers() -> None:
    """Cancel what handlers left behind. asyncio.run would wait for it for ever."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        log.warning("%d tasks that handlers left behind are cancelled", len(left))
        _, stubborn = await asyncio.wait(left, timeout=_LEFTOVERS_S)
        for task in stubborn:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was said


def _see_to_the_end(code: int) -> None:
    """A thread of a handler's own that does not end would keep the process from ending."""

    def end() -> None:
        time.sleep(_EXIT_S)
        log.error("threads do not end: the process does")
        logging.shutdown()
        os._exit(code)

    threading.Thread(target=end, name="pelops-exit", daemon=True).start()
