"""Says every few seconds how far Spark has come: also where nobody sees a progress bar."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from pelops.pipeline.engine.session import LazySession

if TYPE_CHECKING:
    from pyspark import SparkContext


log: Final = logging.getLogger(__name__)
EVERY_S: Final = 10.0


@contextmanager
def progress_reported(session: LazySession, every_s: float = EVERY_S) -> Iterator[None]:
    """Log the tasks of the jobs that run now, as long as the block lasts."""
    ended = threading.Event()
    arguments = (session, ended, every_s)
    teller = threading.Thread(target=_report, args=arguments, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join(timeout=5)


def _report(session: LazySession, ended: threading.Event, every_s: float) -> None:
    while not ended.wait(every_s):
        context = session.context
        if context is None:
            continue
        try:
            reported = describe_tasks(context)
        except (Py4JError, OSError):
            return  # Java is gone: the run itself says why
        if reported is not None:
            log.info("%s", reported)


def describe_tasks(context: SparkContext) -> str | None:
    """How many tasks of the present step are done; None between two steps."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    running = [stage for stage in stages if stage is not None]
    if not running:
        return None
    done = sum(stage.numCompletedTasks for stage in running)
    return f"working: {done} of {sum(stage.numTasks for stage in running)} tasks of this step done"
