"""The driver that `benchmarks.audit` measures: python -m benchmarks.audit_driver PORT PID DIRECTORY

Audits a small stream to warm up, then the large one stage by stage. Its last line is a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.audit import GROUP, STREAM, WARM
from benchmarks.usage import PROC, TICKS_PER_S, observe_memory
from pelops.domain.audit import EntryStatus, parse_summary
from pelops.pipeline.archive.layout import WindowPlace
from pelops.pipeline.archive.snapshot import take_snapshot
from pelops.pipeline.archive.stream_entries import archive_entries
from pelops.pipeline.archive.window_selection import plan_windows
from pelops.pipeline.engine.spark_session import open_session
from pelops.pipeline.reconcile.duplicates import find_duplicates
from pelops.pipeline.reconcile.ledger_history import read_acts
from pelops.pipeline.run import open_run
from pelops.pipeline.settings import AuditTarget, PipelineSettings, read_place
from pelops.pipeline.stages import PipelineRun, WindowWork
from pelops.pipeline.window import audit_window

_MEMORY_MIB: Final = 2048
_STAGES: Final[dict[str, Callable[[WindowWork], Any]]] = {
    "archive": archive_entries,
    "snapshot": take_snapshot,
    "acts": read_acts,
    "duplicates": find_duplicates,
    "group": audit_window,  # all that is left: what each further group costs
}


@dataclass(slots=True)
class Meter:
    """CPU-seconds of stages, of this process, of all that it has started, and of Redis."""

    redis: int  # its process
    cpu_s: dict[str, dict[str, float]] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)

    def take(self, name: str, work: WindowWork) -> Any:
        began, before = time.monotonic(), self._used()
        answer = _STAGES[name](work)
        after = self._used()
        # A process that has ended takes with it what it used before.
        self.cpu_s[name] = {who: round(max(after[who] - before[who], 0), 3) for who in after}
        self.wall_s[name] = round(time.monotonic() - began, 3)
        return answer

    def total(self, name: str) -> float:
        return sum(self.cpu_s[name].values())

    def _used(self) -> dict[str, float]:
        used = {"driver": 0.0, "jvm": 0.0, "workers": 0.0, "redis": _cpu_s(self.redis, False)[1]}
        for pid in _tree(os.getpid()):
            name, cpu_s = _cpu_s(pid, pid != os.getpid())
            who = "driver" if pid == os.getpid() else "jvm" if name == "java" else "workers"
            used[who] += cpu_s
        return used


def main(port: str, redis: str, directory: str) -> None:
    settings = PipelineSettings(
        place=read_place({}, f"redis://127.0.0.1:{port}/0"),
        archive=directory,
        memory_mib=_MEMORY_MIB,
    )
    session = open_session(settings)
    run = open_run(session, settings)
    try:
        for name, work in _works(run, WARM):
            del name
            audit_window(work)
        print(json.dumps(_measure(run, int(redis))))
    finally:
        run.watch.close()
        session.stop()


def _measure(run: PipelineRun, redis: int) -> dict[str, Any]:
    meter = Meter(redis)
    [(_, work)] = _works(run, STREAM)
    audits: Any = None
    for name in _STAGES:
        audits = meter.take(name, work)
    summary = parse_summary(json.dumps(audits[GROUP]["summary"]))
    jvm = [pid for pid in _tree(os.getpid()) if _cpu_s(pid, False)[0] == "java"]
    memory = {
        "driver_peak_mib": observe_memory(os.getpid()).peak_rss_mib,
        "jvm_peak_mib": sum(observe_memory(pid).peak_rss_mib for pid in jvm),
    }
    return {
        "produced": summary.produced,
        "pending": summary.counts[EntryStatus.STUCK] + summary.counts[EntryStatus.IN_FLIGHT],
        "entries_per_cpu_s": round(summary.produced / meter.total("group")),
        "archive_cpu_s_per_million": round(meter.total("archive") / summary.produced * 1e6, 3),
        "cpu_s": meter.cpu_s,
        "wall_s": meter.wall_s,
        **{name: round(value, 1) for name, value in memory.items()},
        "peak_mib": round(sum(memory.values()), 1),
    }


def _works(run: PipelineRun, stream: str) -> Iterator[tuple[str, WindowWork]]:
    target = AuditTarget(stream=stream, group=GROUP)
    for plan, path in plan_windows(run, stream, [target]):
        place = WindowPlace(root=run.settings.archive, stream=stream, number=plan.window.number)
        yield path, WindowWork(run=run, plan=plan, place=place)


def _tree(pid: int) -> list[int]:
    """A process and all that descend from it and live."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1][1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += children.get(one, [])
    return found


def _cpu_s(pid: int, with_children: bool) -> tuple[str, float]:
    """The name of a process, and its CPU time, also of its children that it has seen end."""
    try:
        name, stat = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return "", 0.0
    last = 15 if with_children else 13
    return name, sum(map(int, stat[11:last])) / TICKS_PER_S


def _stat(pid: int) -> tuple[str, list[str]]:
    # The program's name stands in parentheses and may hold anything.
    head, _, rest = (PROC / str(pid) / "stat").read_text().rpartition(")")
    return head.partition("(")[2], rest.split()


if __name__ == "__main__":
    main(*sys.argv[1:])
