"""Whether the memory of Pelops' worker stays as it is, however many entries it works."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.raw_redis import RawRedis
from benchmarks.report import Report, Target
from benchmarks.usage import observe_memory
from benchmarks.worker_contestants import CONTESTANTS
from benchmarks.worker_meter import Job
from benchmarks.worker_run import KEYS, WorkerFailed, add, owed, set_up, start_worker
from local_cluster.progress import step

ENTRIES: Final = 5_000_000
SETTLED: Final = 0.1  # of all entries: then it has all that it needs
AT_ONCE: Final = 100_000  # new entries, whenever the backlog is smaller than this
MAX_GROWTH_MIB: Final = 2.0
_LOOK_S: Final = 0.02
_STALL_S: Final = 30.0
_PATIENCE_S: Final = 1200.0


def with_memory(report: Report, port: int, *, entries: int = ENTRIES) -> Report:
    """The report, with what the worker's memory grew by. Raises WorkerFailed."""
    sizes = watch_memory(port, entries=entries)
    first = sizes[int(len(sizes) * SETTLED)]
    growth = Target(name="memory_growth_mib", value=sizes[-1] - first, target=MAX_GROWTH_MIB)
    figures = {"entries": entries, "rss_mib_by_tenths": sizes[:: max(len(sizes) // 10, 1)]}
    return replace(
        report,
        targets=[*report.targets, growth],
        figures={**report.figures, "memory": figures},
    )


def watch_memory(port: int, *, entries: int, at_once: int = AT_ONCE) -> list[float]:
    """The worker's memory in MiB whenever so many more have been added."""
    ours, python, sizes = CONTESTANTS["ours"], Path(sys.executable), []
    # It is to count entries as always and never to reach the last one.
    job = Job(
        port=port,
        stream=KEYS.stream,
        group=KEYS.group,
        consumer="worker-1:uid-1",
        kind="noop",
        before=0,
        count=2 * entries,
    )
    with RawRedis(port) as raw, step(f"working {entries:,} entries") as shown:
        set_up(raw, port, ours, at_once)
        with start_worker(ours, python, job, patience_s=_PATIENCE_S) as (process, _):
            for added in range(at_once, entries + at_once, at_once):
                shown.detail = f"{added:,} added"
                _await_less(raw, at_once)
                raw.call("XTRIM", KEYS.stream, "MAXLEN", at_once)
                sizes.append(observe_memory(process.pid).rss_mib)
                if added < entries:
                    add(raw, ours, at_once)
            _await_less(raw, 1)
            sizes.append(observe_memory(process.pid).rss_mib)
    return sizes


def _await_less(raw: RawRedis, most: int) -> None:
    """Wait until the backlog is smaller; raises WorkerFailed when nothing happens for long."""
    least, since_s = owed(raw), time.monotonic()
    while (now := owed(raw)) >= most:
        if now < least:
            least, since_s = now, time.monotonic()
        if time.monotonic() - since_s > _STALL_S:
            raise WorkerFailed(f"{now} entries are left, and it does nothing")
        time.sleep(_LOOK_S)
