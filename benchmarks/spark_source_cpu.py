"""CPU time of a Spark on this machine, read from /proc: of its JVM, of its Pythons, of Redis."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final, Self

from benchmarks.usage import PROC, TICKS_PER_S

SAMPLED_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSeconds:
    """What each part has used; Python is the driver, the daemons and the workers, dead or alive."""

    redis: float
    jvm: float
    python: float

    @property
    def total(self) -> float:
        """Of all three."""
        return self.redis + self.jvm + self.python

    def since(self, before: CpuSeconds, *, entries: int) -> CpuSeconds:
        """What was used from `before` on, for a million entries."""

        def each(used: float, used_before: float) -> float:
            return (used - used_before) * 1_000_000 / entries

        return CpuSeconds(
            redis=each(self.redis, before.redis),
            jvm=each(self.jvm, before.jvm),
            python=each(self.python, before.python),
        )


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    name: str
    cpu_s: float
    began: str  # in ticks: a number is used again, but not with the same beginning


class SparkMeter:
    """Follows the Spark that this process drives; to be used as a context.

    Spark's daemons do not wait for their workers, so that what these used is nowhere once they have
    ended: they are looked at again and again.
    """

    def __init__(self, redis_pid: int) -> None:
        self._redis_pid = redis_pid
        self._python_s: dict[tuple[int, str], float] = {}
        self._daemons: list[int] = []
        self._lock = Lock()
        self._done = Event()
        self._thread = Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def measure(self, work: Callable[[], object], *, entries: int) -> CpuSeconds:
        """What this work takes for a million entries, if it is about so many."""
        before = self.observe()
        work()
        return self.observe().since(before, entries=entries)

    def observe(self) -> CpuSeconds:
        """CPU times up to now. Raises FileNotFoundError when Redis has ended."""
        processes = dict(_all_processes())
        below = dict(_below(os.getpid(), processes))
        pythons = {pid: process for pid, process in below.items() if process.name != "java"}
        with self._lock:
            self._daemons = [pid for pid, one in pythons.items() if one.parent not in pythons]
            self._note(pythons | {os.getpid(): processes[os.getpid()]})
            python_s = sum(self._python_s.values())
        return CpuSeconds(
            redis=_process(self._redis_pid).cpu_s,
            jvm=sum(process.cpu_s for process in below.values() if process.name == "java"),
            python=python_s,
        )

    def _note(self, pythons: dict[int, _Process]) -> None:
        for pid, process in pythons.items():
            self._python_s[pid, process.began] = process.cpu_s

    def _sample(self) -> None:
        while not self._done.wait(SAMPLED_EVERY_S):
            with self._lock:
                for daemon in self._daemons:
                    self._note(dict(_children(daemon)))


def _below(pid: int, processes: dict[int, _Process]) -> Iterator[tuple[int, _Process]]:
    """The JVM and all that it has started; what else this process has started is not Spark's."""
    children = defaultdict(list)
    for child, process in processes.items():
        children[process.parent].append(child)
    waiting = [child for child in children[pid] if processes[child].name == "java"]
    while waiting:
        found = waiting.pop()
        yield found, processes[found]
        waiting += children[found]


def _all_processes() -> Iterator[tuple[int, _Process]]:
    return _those([int(path.name) for path in PROC.iterdir() if path.name.isdigit()])


def _children(pid: int) -> Iterator[tuple[int, _Process]]:
    """Of a process with one thread."""
    try:
        listed = Path(PROC, str(pid), "task", str(pid), "children").read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return iter(())
    return _those(map(int, listed.split()))


def _those(pids: Iterator[int] | list[int]) -> Iterator[tuple[int, _Process]]:
    for pid in pids:
        try:
            yield pid, _process(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile


def _process(pid: int) -> _Process:
    # The program's name is in parentheses and may hold anything.
    head, _, tail = (PROC / str(pid) / "stat").read_text().rpartition(")")
    fields = tail.split()
    return _Process(
        parent=int(fields[1]),
        name=head.partition("(")[2],
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        began=fields[19],
    )
