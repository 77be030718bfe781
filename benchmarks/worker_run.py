"""One worker, once: its data made, its process started, measured, and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.pending import BODY, count_pending, require
from benchmarks.raw_redis import Part, RawRedis, pack
from benchmarks.recovery_ways import operators_server, provision
from benchmarks.worker_meter import Job, Kind, Measured
from local_cluster.processes import wait_until
from pelops.domain.naming import derive_keys

ROOT: Final = Path(__file__).parents[1]
KEYS: Final = derive_keys("orders:events", "order-processing")
AROUND: Final = 10_000  # entries before and behind those that count: a rate is learned by then
AROUND_FEW: Final = 200  # where few entries are enough, the worker does not read ahead
TOGETHER: Final = 10_000
PRECEDENCE: Final = -10
PATIENCE_S: Final = 120.0


class WorkerFailed(Exception):
    """It ended, or did not do its work; the message has its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A way to work a stream."""

    argv: tuple[str, ...]  # of `python -m`
    how: str  # for the report
    body: tuple[Part, ...] = BODY  # an entry in the form that this worker takes
    is_peer: bool = False  # it needs the environment of the peers
    is_slow: bool = False  # few entries are enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run took."""

    per_s: float
    cpu_s_per_100k: float
    redis_cpu_s_per_100k: float
    most_at_once: int  # handlers
    peak_rss_mib: float


def run_once(contestant: Contestant, python: Path, port: int, *, kind: Kind, count: int) -> Outcome:
    """Work `count` entries and some around them; raises WorkerFailed."""
    job = Job(
        port=port,
        stream=KEYS.stream,
        group=KEYS.group,
        consumer="worker-1:uid-1",
        kind=kind,
        before=AROUND if count >= AROUND else AROUND_FEW,
        count=count,
    )
    with RawRedis(port) as raw:
        entries = job.count + 2 * job.before
        set_up(raw, port, contestant, entries)
        redis_before_s = _redis_cpu_s(raw)
        measured = _measure(contestant, python, job, raw)
        redis_s = _redis_cpu_s(raw) - redis_before_s
    return Outcome(
        per_s=job.count / measured.wall_s,
        cpu_s_per_100k=measured.cpu_s / job.count * 100_000,
        redis_cpu_s_per_100k=redis_s / entries * 100_000,
        most_at_once=measured.most_at_once,
        peak_rss_mib=measured.peak_rss_mib,
    )


def give_precedence(pid: int) -> bool:
    """Let a process run before others; False when this user may not say so.

    On a busy machine a run would measure how long others held the processor.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, pid, PRECEDENCE)
    except PermissionError:
        return False
    return True


def separate(pid: int, *, is_server: bool) -> bool:
    """Let the server have a processor of its own, and workers the others; False: there is but one.

    As if it ran on another machine. Left alone, a busy kernel sometimes puts both on one processor,
    and a worker that could run beside the server waits for it.
    """
    if not hasattr(os, "sched_setaffinity"):
        return False
    first, *others = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(pid, {first} if is_server else others)
    return bool(others)


def set_up(raw: RawRedis, port: int, contestant: Contestant, entries: int) -> None:
    """The group as the operator makes it, and so many new entries."""
    raw.call("FLUSHALL")
    asyncio.run(_provision(port))
    add(raw, contestant, entries)
    require(raw.call("XLEN", KEYS.stream), entries, "entries at first")


def add(raw: RawRedis, contestant: Contestant, entries: int) -> None:
    """More entries for it."""
    one = pack("XADD", KEYS.stream, "*", *contestant.body)
    for start in range(0, entries, TOGETHER):
        raw.send_quietly([one * min(TOGETHER, entries - start)])


async def _provision(port: int) -> None:
    """As the operator does it: Pelops' worker reads the retry stream beside its own."""
    async with operators_server(port) as server:
        await provision(server, KEYS)


def _redis_cpu_s(raw: RawRedis) -> float:
    fields = dict(
        line.partition(":")[::2] for line in raw.call("INFO", "cpu").decode().splitlines()
    )
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])


def owed(raw: RawRedis) -> int:
    """How many entries are not acknowledged yet."""
    flat = raw.call("XINFO", "GROUPS", KEYS.stream)[0]
    group = dict(zip(flat[::2], flat[1::2], strict=True))
    return int(group[b"lag"]) + count_pending(raw, KEYS)


def _measure(contestant: Contestant, python: Path, job: Job, raw: RawRedis) -> Measured:
    with start_worker(contestant, python, job) as (process, errors):
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise WorkerFailed(f"{contestant.argv[0]} ended early: {errors()}")
        try:
            wait_until(
                lambda: owed(raw) == 0, timeout_s=PATIENCE_S, what="all acknowledged", every_s=0.01
            )
        except TimeoutError as error:
            raise WorkerFailed(f"{contestant.argv[0]} left entries: {errors()}") from error
        return Measured(**json.loads(line))


@contextmanager
def start_worker(
    contestant: Contestant, python: Path, job: Job, *, patience_s: float = PATIENCE_S
) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """The worker's process, and its last words; it is ended whatever happens, or when it hangs."""
    argv = [str(python), "-m", *contestant.argv, job.to_json()]
    # The package is installed where it is used; others see the benchmarks alone.
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=said, text=True
        )
        give_precedence(process.pid)
        separate(process.pid, is_server=False)
        watch = threading.Timer(patience_s, process.kill)
        watch.start()

        def errors() -> str:
            said.seek(0)
            return said.read().strip()[-500:]

        try:
            yield process, errors
        finally:
            watch.cancel()
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()
