"""The command that `benchmarks.audit` measures: what it and all that it starts use, and its log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from benchmarks.usage import PROC, TICKS_PER_S, observe_memory

_ROOT: Final = Path(__file__).parents[1]
_MEMORY_MIB: Final = 2048
_EVERY_S: Final = 0.1
_STEPS: Final = ("entries archived", "events archived", "entries audited", "statuses written")
_STEP: Final = re.compile(rf"({'|'.join(_STEPS)}) in ([0-9.]+) s$", re.MULTILINE)
_ROW: Final = re.compile(r"^  (\w+) +(\d+)", re.MULTILINE)


class Meter(Thread):
    """CPU time and peak memory of a process and its descendants: also of those that have ended."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._ended = Event()
        self._cpu_s: dict[int, tuple[str, float]] = {}
        self._peak_mib: dict[int, tuple[str, float]] = {}

    def run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            for pid in list_tree(self._root):
                try:
                    name, cpu_s = _read_cpu(pid)
                    peak_mib = observe_memory(pid).peak_rss_mib
                except (FileNotFoundError, ProcessLookupError, KeyError):
                    continue  # it has ended
                who = "driver" if pid == self._root else "jvm" if name == "java" else "workers"
                self._cpu_s[pid] = (who, cpu_s)
                self._peak_mib[pid] = (who, peak_mib)

    def end(self) -> dict[str, Any]:
        """CPU-seconds by kind of process, and peak memory of the driver and the JVM."""
        self._ended.set()
        self.join()
        return {
            "cpu_s": {
                who: round(_sum(self._cpu_s, who), 2) for who in ("driver", "jvm", "workers")
            },
            "driver_peak_mib": round(_sum(self._peak_mib, "driver"), 1),
            "jvm_peak_mib": round(_sum(self._peak_mib, "jvm"), 1),
        }


def run_audit(port: int, stream: str, group: str) -> dict[str, Any]:
    """Audit a stream by the command, into a new archive; what that took and found."""
    with tempfile.TemporaryDirectory(prefix="pelops-audit-") as directory:
        words = ["audit", "--redis-url", f"redis://127.0.0.1:{port}/0", "--archive", directory]
        log = Path(directory) / "log"
        began = time.monotonic()
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pelops.pipeline", *words),
                    *("--stream", stream, "--group", group),
                ],
                cwd=_ROOT,
                env=os.environ
                | {
                    "PYTHONPATH": str(_ROOT / "operator"),
                    "PELOPS_AUDIT_MEMORY_MIB": str(_MEMORY_MIB),
                },
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
            meter = Meter(process.pid)
            meter.start()
            said, _ = process.communicate()
        took_s = time.monotonic() - began
        return {
            **meter.end(),
            "wall_s": round(took_s, 2),
            "steps_s": {name: float(took) for name, took in _STEP.findall(log.read_text())},
            "rows": {name: int(number) for name, number in _ROW.findall(said)},
        }


def list_tree(pid: int) -> list[int]:
    """A process and all that descend from it and live."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1][1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    return list(_descend(pid, children))


def _descend(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for one in children.get(pid, []):
        yield from _descend(one, children)


def _read_cpu(pid: int) -> tuple[str, float]:
    name, stat = _stat(pid)
    return name, sum(map(int, stat[11:13])) / TICKS_PER_S


def _stat(pid: int) -> tuple[str, list[str]]:
    # The program's name is in parentheses and may hold anything.
    head, _, rest = (PROC / str(pid) / "stat").read_text().rpartition(")")
    return head.partition("(")[2], rest.split()


def _sum(found: dict[int, tuple[str, float]], who: str) -> float:
    return sum(value for one, value in found.values() if one == who)
