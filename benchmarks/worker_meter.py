"""What every measured worker has in common: its job, its handler, and its clocks.

Runs in processes of their own, also of other environments, and needs only the standard library.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["noop", "sleep"]
Handle = Callable[[Any], Awaitable[None]]

CONCURRENCY = 100
SLEEP_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one process is to do. Entries before and behind those that count are worked too."""

    port: int
    stream: str
    group: str
    consumer: str
    kind: Kind
    before: int
    count: int

    def to_json(self) -> str:
        """The job as an argument of a process."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One process' answer: of the entries that counted."""

    wall_s: float
    cpu_s: float  # of all its threads
    most_at_once: int  # handlers
    peak_rss_mib: float


def read_job() -> Job:
    """The job that this process was started with."""
    return Job(**json.loads(sys.argv[-1]))


def make_handler(job: Job) -> Handle:
    """The handler that all workers are given: it prints a line of JSON when enough is done."""
    seen, first, last = 0, job.before, job.before + job.count
    running = most = 0
    began_s = began_cpu_s = 0.0

    def look() -> None:
        nonlocal began_s, began_cpu_s
        if seen == first:
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
        elif seen == last:
            wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
            peak = _peak_rss_mib()
            found = Measured(wall_s=wall_s, cpu_s=cpu_s, most_at_once=most, peak_rss_mib=peak)
            print(json.dumps(asdict(found)), flush=True)

    async def noop(_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen in (first, last):
            look()

    async def sleep(_: Any) -> None:
        nonlocal seen, running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(SLEEP_S)
        running -= 1
        seen += 1
        if seen in (first, last):
            look()

    return noop if job.kind == "noop" else sleep


def _peak_rss_mib() -> float:
    # What getrusage says begins with the size of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
