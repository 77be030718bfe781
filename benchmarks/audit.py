"""What an audit costs: archive and reconciliation in CPU-seconds, memory, and calls on Redis.

One stream with one group, of which every hundredth entry is pending; each size is audited by one
command, from its start to its end. CPU is that of all processes: the driver, the JVM, the Python
workers, and Redis. Small windows are measured by the wall clock: see `benchmarks.audit_small`.

Spark takes every processor of this machine. So that the longest call is what Redis was held for,
and not how long it waited for a processor, Redis goes before all others here; that needs root, and
`redis_goes_first` in the figures says whether it was so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any, Final, Self

from benchmarks.audit_driver import run_audit
from benchmarks.audit_small import measure_small
from benchmarks.pending import require
from benchmarks.raw_redis import RawRedis, pack
from benchmarks.report import Report, Target, build_parser, describe_server, publish
from benchmarks.usage import PROC, TICKS_PER_S, observe_cpu
from local_cluster.redis_servers import RedisServers, start_standalone
from local_cluster.redis_servers.standalone import StandaloneServers

STREAM: Final = "orders"
GROUP: Final = "workers"
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


def measure(servers: StandaloneServers, entries: int) -> dict[str, Any]:
    """Audit a stream of so many entries once; answers what it has taken."""
    goes_first = _let_go_first(_pid(servers))
    with RawRedis(servers.master().port) as raw:
        raw.call("FLUSHALL", "SYNC")
        print(f"adding {entries:,} entries", file=sys.stderr)
        fill(raw, STREAM, entries)
        before = _redis_memory(raw)
        watcher = MemoryWatcher(servers.master().port)
        raw.call("CONFIG", "RESETSTAT")
        raw.call("CONFIG", "SET", "slowlog-log-slower-than", _NOTED_US, "slowlog-max-len", 100_000)
        raw.call("SLOWLOG", "RESET")
        print(f"auditing {entries:,} entries", file=sys.stderr)
        stolen = _stolen_s()
        with watcher:
            found = _run(servers)
        require(found["produced"], entries, "entries that were audited")
        require(found["pending"], entries // EVERY, "entries that are pending")
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


def _run(servers: StandaloneServers) -> dict[str, Any]:
    """The command, and what of it concerns the promises."""
    before = _redis_cpu(servers)
    found = run_audit(servers.master().port, STREAM, GROUP)
    rows = found.pop("rows")
    found["cpu_s"]["redis"] = round(_redis_cpu(servers) - before, 2)
    return {
        **found,
        "produced": rows.get("total", 0),
        "pending": rows.get("stuck", 0) + rows.get("in_flight", 0),
        "entries_per_cpu_s": round(rows.get("total", 0) / sum(found["cpu_s"].values())),
        "peak_mib": round(found["driver_peak_mib"] + found["jvm_peak_mib"], 1),
    }


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
        ][: 3 if len(found) > 1 else 1]
        + _small_targets(small),
        figures={f"{entries // 1000}k": one for entries, one in found.items()} | {"small": small},
    )


def _small_targets(found: Mapping[str, Any]) -> list[Target]:
    """Wall clock of the whole command: 10,000 entries, 200 small groups, and nothing to do."""
    most = {"small_audit_s": 15.0, "many_small_audits_s": 60.0, "idle_audit_s_per_100_groups": 1.0}
    return [Target(name=name, value=found[name], target=limit) for name, limit in most.items()]


def main() -> None:
    parser = build_parser("audit", __doc__)
    parser.add_argument("--entries", type=int, help="one stream of so many, in place of both sizes")
    chosen = parser.parse_args()
    with start_standalone(chosen.server) as servers:
        sizes = (LARGE,) if chosen.quick else (SMALL, LARGE)
        if chosen.entries:
            sizes = (chosen.entries,)
        small = measure_small(servers.master().port)
        found = {entries: measure(servers, entries) for entries in sizes}
        publish(build_report(servers, found, small), as_json=chosen.json)


if __name__ == "__main__":
    main()
