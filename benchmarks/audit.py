"""What an audit costs: archive and reconciliation in CPU-seconds, memory, and calls on Redis.

One stream with one group, of which every hundredth entry is pending; each size is audited by a
driver of its own, which has warmed up on a small stream before. CPU is that of all processes: the
driver, the JVM, the Python workers, and Redis. Small windows need no Spark, and are measured by
the wall clock of the whole command: see `benchmarks.audit_small`.

Spark takes every processor of this machine. So that the longest call is what Redis was held for,
and not how long it waited for a processor, Redis goes before all others here; that needs root, and
`redis_goes_first` in the figures says whether it was so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

from benchmarks.audit_small import measure_small
from benchmarks.pending import require
from benchmarks.raw_redis import RawRedis, pack
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.usage import PROC, TICKS_PER_S, observe_cpu
from local_cluster.redis_servers import RedisServers, start_standalone
from local_cluster.redis_servers.standalone import StandaloneServers

STREAM: Final = "orders"
WARM: Final = "warm"
GROUP: Final = "workers"
WARM_ENTRIES: Final = 200_000
SMALL, LARGE = 1_000_000, 20_000_000
FIRST_MS: Final = 1_700_000_000_000
PER_MS: Final = 100
EVERY: Final = 100  # this many entries, of which one is pending
_AT_ONCE: Final = 1000  # IDs in one command
_NOTED_US: Final = 200  # calls that Redis writes down
_PER_SCRIPT: Final = 20_000
_OURS: Final = (b"SLOWLOG", b"CONFIG", b"INFO")  # commands of this benchmark itself
# Five fields, as an order has them, no two entries alike.
_ADD: Final = """
local first, per_ms, start = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
for i = start, start + tonumber(ARGV[4]) - 1 do
  local id = string.format('%.0f-%d', first + math.floor(i / per_ms), i % per_ms + 1)
  redis.call('XADD', KEYS[1], id, 'order_id', string.format('o-%012d', i), 'customer',
    string.format('c-%06d', i * 7919 % 1000000), 'tenant', 'acme', 'amount',
    string.format('%d.%02d', i % 997, i % 100), 'note', string.rep('x', 40))
end
"""
_ROOT: Final = Path(__file__).parents[1]


def measure(servers: StandaloneServers, entries: int) -> dict[str, Any]:
    """Audit a stream of so many entries once; answers what the driver and Redis report it."""
    goes_first = _let_go_first(_pid(servers))
    with RawRedis(servers.master().port) as raw:
        raw.call("FLUSHALL", "SYNC")
        for stream, number in ((WARM, WARM_ENTRIES), (STREAM, entries)):
            print(f"adding {number:,} entries", file=sys.stderr)
            fill(raw, stream, number)
        before = _redis_memory(raw)
        watcher = MemoryWatcher(servers.master().port)
        raw.call("CONFIG", "RESETSTAT")
        raw.call("CONFIG", "SET", "slowlog-log-slower-than", _NOTED_US, "slowlog-max-len", 100_000)
        raw.call("SLOWLOG", "RESET")
        print(f"auditing {entries:,} entries", file=sys.stderr)
        stolen = _stolen_s()
        with watcher:
            found = _run_driver(servers)
        require(found["produced"], entries, "entries that were audited")
        require(found["pending"], entries // EVERY, "exceptions that were kept")
        return {
            **found,
            "redis_mib": round(before, 1),
            "redis_growth_mib": round(watcher.peak_mib - before, 1),
            "redis_goes_first": goes_first,
            "stolen_s": round(_stolen_s() - stolen, 2),
            **_calls(raw),
        }


class MemoryWatcher(Thread):
    """Looks at the memory that Redis uses, some times a second; Redis keeps no peak of a span."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._ended = Event()
        self.peak_mib = 0.0

    def run(self) -> None:
        with RawRedis(self._port) as raw:
            while not self._ended.wait(0.1):
                self.peak_mib = max(self.peak_mib, _redis_memory(raw))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def fill(raw: RawRedis, stream: str, number: int) -> None:
    """Entries that a group has passed, and of which it holds every hundredth."""
    for start in range(0, number, _PER_SCRIPT):
        part = min(_PER_SCRIPT, number - start)
        raw.call("EVAL", _ADD, 1, stream, FIRST_MS, PER_MS, start, part)
    require(raw.call("XLEN", stream), number, "entries")
    # As after reading all of them: a position without a count proves no delivery.
    raw.call("XGROUP", "CREATE", stream, GROUP, "$", "ENTRIESREAD", number)
    held = [f"{FIRST_MS + at // PER_MS}-{at % PER_MS + 1}" for at in range(0, number, EVERY)]
    for start in range(0, len(held), _AT_ONCE):
        ids = held[start : start + _AT_ONCE]
        raw.pipeline([pack("XCLAIM", stream, GROUP, "worker", 0, *ids, "FORCE", "JUSTID")])


def _run_driver(servers: StandaloneServers) -> dict[str, Any]:
    """A driver of its own, told where Redis is; its last line is what it measured."""
    with tempfile.TemporaryDirectory(prefix="pelops-audit-") as directory:
        before = _redis_cpu(servers)
        words = [str(servers.master().port), str(_pid(servers)), directory]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.audit_driver", *words],
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": f"{_ROOT / 'operator'}{os.pathsep}{_ROOT}"},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return {**found, "redis_cpu_s": round(_redis_cpu(servers) - before, 2)}


def _pid(servers: StandaloneServers) -> int:
    process = servers.server.process
    assert process is not None
    return process.pid


def _let_go_first(pid: int) -> bool:
    """Give a process a processor whenever it wants one; False when that is not allowed."""
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


def _stolen_s() -> float:
    """For how long the machine below this one, if it is virtual, has kept the processors."""
    return int((PROC / "stat").read_text().split(maxsplit=9)[8]) / TICKS_PER_S


def _redis_cpu(servers: StandaloneServers) -> float:
    pid = _pid(servers)
    return observe_cpu([pid]).by_pid_s[pid]


def _redis_memory(raw: RawRedis) -> float:
    return _info(raw, "used_memory") / 2**20


def _info(raw: RawRedis, name: str) -> int:
    lines = raw.call("INFO", "memory").decode().splitlines()
    return int(next(line.split(":")[1] for line in lines if line.startswith(f"{name}:")))


def _calls(raw: RawRedis) -> dict[str, Any]:
    """The longest call, as Redis wrote it down; what took less than it notes is none."""
    reported = raw.call("SLOWLOG", "GET", -1)
    noted = sorted((one for one in reported if one[3][0] not in _OURS), key=lambda one: -one[2])
    lasted_ms = [one[2] / 1000 for one in noted] or [_NOTED_US / 1000]
    return {
        "longest_call_ms": lasted_ms[0],
        "longest_call": b" ".join(noted[0][3][:2]).decode() if noted else "",
        "tenth_longest_call_ms": lasted_ms[min(9, len(lasted_ms) - 1)],
        "calls_noted": len(noted),
        "calls_over_2_ms": sum(one > 2 for one in lasted_ms),
    }


def build_report(
    servers: RedisServers, found: Mapping[int, Mapping[str, Any]], small: Mapping[str, Any]
) -> Report:
    """What was promised, by the largest size that was measured, and by small windows."""
    least, large = found[min(found)], found[max(found)]
    times = max(found) / min(found)
    return Report(
        benchmark="audit",
        server=describe_server(servers),
        targets=[
            Target(
                name="entries_per_cpu_s",
                value=large["entries_per_cpu_s"],
                target=2_000_000,
                better="higher",
            ),
            Target(
                name="archive_cpu_s_per_million",
                value=large["archive_cpu_s_per_million"],
                target=4.0,
            ),
            Target(
                name="longest_call_ms",
                value=max(one["longest_call_ms"] for one in found.values()),
                target=2.0,
            ),
            Target(
                name="driver_memory_growth",
                value=large["peak_mib"] / least["peak_mib"] if len(found) > 1 else None,
                target=times,
            ),
            Target(
                name="redis_memory_growth",
                value=max(large["redis_growth_mib"], 1) / max(least["redis_growth_mib"], 1)
                if len(found) > 1
                else None,
                target=times,
            ),
        ][: 5 if len(found) > 1 else 3]
        + _small_targets(small),
        figures={f"{entries // 1000}k": one for entries, one in found.items()} | {"small": small},
    )


def _small_targets(found: Mapping[str, Any]) -> list[Target]:
    """Wall clock of the whole command: 10,000 entries, 200 small groups, and nothing to do."""
    most = {"small_audit_s": 15.0, "many_small_audits_s": 60.0, "idle_audit_s_per_100_groups": 1.0}
    return [Target(name=name, value=found[name], target=limit) for name, limit in most.items()]


def main() -> None:
    chosen = build_parser("audit", __doc__).parse_args()
    with start_standalone(chosen.server) as servers:
        sizes = (LARGE,) if chosen.quick else (SMALL, LARGE)
        small = measure_small(servers.master().port)
        found = {entries: measure(servers, entries) for entries in sizes}
        publish(build_report(servers, found, small), as_json=chosen.json)


if __name__ == "__main__":
    main()
