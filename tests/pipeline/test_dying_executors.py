"""Executors and Python workers that are killed in mid-run: Spark repeats their tasks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from local_cluster.processes import wait_until
from pelops.pipeline.archive import tables
from tests.pipeline.audited import Audited
from tests.pipeline.executors import (
    Done,
    cluster_variables,
    list_executors,
    list_workers,
    read_events,
)
from tests.pipeline.repeating import die_after, first_window
from tests.pipeline.steps import Step
from tests.pipeline.test_dying_drivers import end, start
from tests.pipeline.test_hardships_workers import pages
from tests.pipeline.test_jobs import MOST_JOBS

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
CLUSTER = "local-cluster[2,1,1024]"  # executors, cores and MiB of each
ENTRIES = 30_000
PATIENT = {"PELOPS_AUDIT_STUCK_AFTER_MS": "3600000"}  # nothing is stuck, however slow the runs are
Lose = Callable[[int], list[int]]  # from the driver's session to the PIDs to kill
RUN_S = 900


class Repeated:
    """A run after one that died once it had claimed, so that all have one plan."""

    def __init__(self, audited: Audited, directory: Path) -> None:
        self.audited = audited
        self.directory = directory
        audited.create_group()
        audited.add(ENTRIES)
        read = audited.deliver(2000)
        audited.acknowledge(*read[:1500], read[1999])  # a requeue acknowledges as well
        audited.record("requeued", read[1999], f"5-0 {read[1999]} 1 1 40")
        die_after(audited, Step.CLAIMED)
        shutil.copytree(audited.archive, directory / "claimed")
        audited.audit()
        self.quiet = first_window(audited)
        assert len(self.quiet[tables.ENTRIES]) == len(self.quiet[tables.STATUSES]) == ENTRIES
        shutil.rmtree(audited.archive)
        shutil.copytree(directory / "claimed", audited.archive)

    def run_on_executors(
        self, lose: Lose | None = None, variables: dict[str, str] | None = None
    ) -> Done:
        """What was done; `lose` chooses and kills processes during the read."""
        log = self.directory / "driver.log"
        events = self.directory / "events"
        events.mkdir()
        given = PATIENT | cluster_variables(events) | (variables or {})
        process = start(self.audited, log, master=CLUSTER, is_large=True, variables=given)
        try:
            if lose is not None:
                # The driver reads some pages as well, to plan the tasks.
                _wait(process, lambda: list_workers(process.pid), "the tasks")
                begin = pages(self.audited)
                _wait(process, lambda: pages(self.audited) > begin, "the reading")
                killed = lose(process.pid)
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
                assert killed, "nothing was there to be killed"
            assert process.wait(RUN_S) == 0, log.read_text()[-3000:]
        except BaseException:
            end(process)
            raise
        return read_events(events)


def _wait(process: subprocess.Popen[bytes], reached: Callable[[], object], what: str) -> None:
    wait_until(
        lambda: reached() or process.poll() is not None,
        timeout_s=RUN_S, what=what, every_s=0.002,
    )  # fmt: skip


@pytest.fixture
def repeated(audited: Audited, tmp_path: Path) -> Repeated:
    return Repeated(audited, tmp_path)


@pytest.mark.parametrize("lose", [list_workers, list_executors])
def test_tasks_whose_executors_or_workers_are_killed_are_repeated(
    repeated: Repeated, lose: Lose
) -> None:
    done = repeated.run_on_executors(lose)
    assert first_window(repeated.audited) == repeated.quiet
    assert done.executors and "driver" not in done.executors
    assert 0 < done.jobs <= 2 * MOST_JOBS  # of two windows: the second one has no entries
    assert done.failed > 0
    assert (done.lost > 0) == (lose is list_executors)


def test_an_executor_killed_with_its_results_changes_no_row(
    repeated: Repeated,
) -> None:
    done = repeated.run_on_executors(variables={"AUDITING_LOSES_EXECUTOR": "yes"})
    assert first_window(repeated.audited) == repeated.quiet
    assert len(done.executors) >= 2  # and the one that replaced the lost one
    assert done.lost > 0
