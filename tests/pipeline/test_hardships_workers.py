"""A Python worker of Spark that is killed while it reads for an audit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pelops.pipeline import rounds
from pelops.pipeline.session import choose_cores, session_options
from pelops.pipeline.settings import PipelineSettings, read_place
from tests.pipeline.audited import Audited
from tests.pipeline.hardships import amid

ENTRIES = 30_000
TASK_WORKER = b"pyspark.daemon\0pyspark.worker\0"


def task_workers(java: int) -> Iterator[int]:
    """The Python workers that run tasks of this JVM: its daemons fork them."""
    parents = {}
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and TASK_WORKER in (process / "cmdline").read_bytes():
                parents[int(process.name)] = int((process / "stat").read_text().split()[3])
        except OSError:
            continue  # it has ended
    daemons = {pid for pid, parent in parents.items() if parent == java}
    yield from (pid for pid, parent in parents.items() if parent in daemons)


def kill_amid_reading(audited: Audited) -> list[int]:
    """Kill the workers once they have read some pages; return their PIDs."""
    gateway: Any = audited.session.sparkContext._gateway
    java = gateway.proc.pid
    begin, until = pages(audited), time.monotonic() + 60
    while time.monotonic() < until:
        if pages(audited) > begin + 10:
            killed = list(task_workers(java))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            return killed
        time.sleep(0.002)
    return []


def pages(audited: Audited) -> int:
    reported = audited.client.info("commandstats").get("cmdstat_xrange", {"calls": 0})
    return int(reported["calls"])


@pytest.mark.full
def test_killing_a_reading_worker_neither_misses_nor_doubles_an_entry(
    audited: Audited,
) -> None:
    audited.create_group()
    audited.add(ENTRIES)
    audited.deliver(10)
    with ThreadPoolExecutor(1) as pool:
        killing = []
        begin = lambda: killing.append(pool.submit(kill_amid_reading, audited))  # noqa: E731
        with amid(rounds, "archive_entries", begin):
            summary = audited.audit_one()
        assert killing[0].result(), "no worker was there to be killed"
    assert summary.archived == ENTRIES
    assert audited.counts(summary) == {"in_flight": 10, "undelivered": ENTRIES - 10}
    assert len({(row["ms"], row["seq"]) for row in audited.entries()}) == ENTRIES
    assert len(audited.entries()) == ENTRIES


def test_the_default_master_retries_failed_tasks(tmp_path: Path) -> None:
    settings = PipelineSettings(place=read_place({}, "redis://127.0.0.1:1"), archive=str(tmp_path))
    cores = choose_cores(settings)
    assert session_options(settings)["spark.master"] == f"local[{cores}, 3]"
