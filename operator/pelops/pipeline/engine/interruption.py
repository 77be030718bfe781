"""Ctrl-C: what runs is ended first, in Spark or here, so that its stage can tidy up."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from pelops.pipeline.engine.session import LazySession

log: Final = logging.getLogger(__name__)
_CANCEL_EVERY_S: Final = 0.2


def run_interruptibly(session: LazySession, action: Callable[[], int]) -> int:
    """What the action answers. Raises KeyboardInterrupt when it has ended early.

    It works in a thread of its own: an answer of Java that an interrupt cuts off would be taken for
    that of the next question. A second interrupt does not wait for it.
    """
    answer: Future[int] = Future()
    threading.Thread(target=_work, args=(action, answer), name="work", daemon=True).start()
    with _plain_interrupts():
        try:
            return answer.result()
        except KeyboardInterrupt:
            log.warning("interrupted: ending what runs")
            _end_jobs(session, answer)
            raise


def _work(action: Callable[[], int], answer: Future[int]) -> None:
    try:
        answer.set_result(action())
    except BaseException as error:
        answer.set_exception(error)


def _end_jobs(session: LazySession, answer: Future[int]) -> None:
    session.interrupted.set()
    while not answer.done():
        context = session.context
        if context is not None:
            # The action may be between two jobs: then the next one is ended.
            with suppress(Py4JError, OSError):
                context.cancelAllJobs()
        wait([answer], timeout=_CANCEL_EVERY_S)


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Without the handler of Spark, which asks Java amid another question."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
