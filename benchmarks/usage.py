"""What processes take of this machine, read from /proc: CPU, memory, and what others took."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """The memory of one process now."""

    rss_mib: float
    pss_mib: float  # pages that several processes share count in parts
    peak_rss_mib: float


def observe_memory(pid: int) -> MemoryUse:
    """Raises FileNotFoundError when the process has ended."""
    status = _fields_kib(PROC / str(pid) / "status")
    rollup = _fields_kib(PROC / str(pid) / "smaps_rollup")
    return MemoryUse(
        rss_mib=status["VmRSS"] / 1024,
        pss_mib=rollup["Pss"] / 1024,
        peak_rss_mib=status["VmHWM"] / 1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPU time that was used up to an instant, by process and by the whole machine."""

    at_s: float
    by_pid_s: dict[int, float]
    machine_s: float

    def share(self, before: CpuUse, pid: int) -> float:
        """Of one core, since `before`."""
        used_s = self.by_pid_s[pid] - before.by_pid_s[pid]
        return used_s / (self.at_s - before.at_s)

    def others_share(self, before: CpuUse) -> float:
        """Of one core, since `before`: all that none of these processes used."""
        known_s = sum(self.by_pid_s.values()) - sum(before.by_pid_s.values())
        return (self.machine_s - before.machine_s - known_s) / (self.at_s - before.at_s)


def observe_cpu(pids: Iterable[int]) -> CpuUse:
    """CPU times of these processes now. Raises FileNotFoundError when one has ended."""
    return CpuUse(
        at_s=time.monotonic(),
        by_pid_s={pid: _cpu_s(pid) for pid in pids},
        machine_s=_machine_cpu_s(),
    )


def _cpu_s(pid: int) -> float:
    # The program's name is in parentheses and may hold anything.
    stat = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_S


def _machine_cpu_s() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(
        int, (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICKS_PER_S


def _fields_kib(path: Path) -> dict[str, int]:
    """The lines that contain a size."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {
        words[0].rstrip(":"): int(words[1])
        for words in lines
        if len(words) == 3 and words[2] == "kB"
    }
