"""What audits of small windows cost: wall clock of the whole command, of one and of many streams.

A part of `benchmarks.audit`. The command is started as a user starts it, in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.pending import require
from benchmarks.raw_redis import RawRedis, pack

ENTRIES: Final = 10_000  # of one stream
STREAMS, GROUPS, ENTRIES_EACH = 50, 4, 1_000
FIRST_MS: Final = 1_700_000_000_000
PENDING: Final = 10  # entries of each group
_PER_MS: Final = 10
_BATCH: Final = 1_000
_ROOT: Final = Path(__file__).parents[1]


def measure_small(port: int) -> dict[str, Any]:
    """Seconds of the command, and of what one that has nothing to do takes."""
    with RawRedis(port) as raw:
        raw.call("FLUSHALL", "SYNC")
        _fill(raw, "small:0", ["workers"], ENTRIES)
        with _archive() as archive:
            one_s = _audit(port, archive, groups=1)
        raw.call("FLUSHALL", "SYNC")
        groups = [f"workers-{number}" for number in range(GROUPS)]
        streams = [f"small:{number}" for number in range(STREAMS)]
        for stream in streams:
            _fill(raw, stream, groups, ENTRIES_EACH)
        number = STREAMS * GROUPS
        with _archive() as archive:
            many_s = _audit(port, archive, groups=number)
            for stream in streams:
                _finish(raw, stream, groups)
            _audit(port, archive, groups=number)
            idle_s = _audit(port, archive, groups=number)
    return {
        "small_audit_s": round(one_s, 2),
        "many_small_audits_s": round(many_s, 2),
        "idle_audit_s_per_100_groups": round(idle_s / number * 100, 3),
        "idle_groups": number,
    }


def _audit(port: int, archive: str, *, groups: int) -> float:
    """Audit every group of every stream; answers how long that took."""
    words = ["audit", "--redis-url", f"redis://127.0.0.1:{port}/0", "--archive", archive]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pelops.pipeline", *words, "--stream-pattern", "small:*"],
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT / "operator")},
        capture_output=True,
        check=False,
        text=True,
    )
    took_s = time.monotonic() - began
    require(done.stdout.count("  total "), groups, "groups that were audited")
    return took_s


def _fill(raw: RawRedis, stream: str, groups: Sequence[str], number: int) -> None:
    """Entries that each group has read, and acknowledged but for a few."""
    ids = [f"{FIRST_MS + at // _PER_MS}-{at % _PER_MS + 1}" for at in range(number)]
    fields = ("tenant", "acme", "note", "x" * 40)
    for start in range(0, number, _BATCH):
        some = ids[start : start + _BATCH]
        raw.pipeline([pack("XADD", stream, one, "order_id", f"o-{one}", *fields) for one in some])
    for group in groups:
        raw.call("XGROUP", "CREATE", stream, group, "0")
        raw.call("XREADGROUP", "GROUP", group, "worker", "COUNT", number, "STREAMS", stream, ">")
        for start in range(0, number - PENDING, _BATCH):
            raw.call("XACK", stream, group, *ids[start : min(start + _BATCH, number - PENDING)])


def _finish(raw: RawRedis, stream: str, groups: Sequence[str]) -> None:
    """Acknowledge the rest."""
    for group in groups:
        left = [one[0] for one in raw.call("XPENDING", stream, group, "-", "+", PENDING)]
        raw.call("XACK", stream, group, *left)


@contextmanager
def _archive() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pelops-audit-") as directory:
        yield directory
