"""Which process of `make test` runs which file.

pytest-xdist gives the files with the most tests first to any process that asks. Here, one process
keeps to tests that need Spark, one to those that need a control plane with operators, and one to
those that need a control plane without. So each is started once, and a session of Spark is soon
warm. A process helps another only when its own files are done. The slowest files come first, so
that no process works on one when the others have ended. The cache directory keeps
how long each test took in the last run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from local_cluster.binaries import cache_directory

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController

SPARK, OPERATED, PLANE, OTHERS = "spark", "operated", "plane", "others"
# What each process keeps to, and what comes then: one alone helps with Spark, since each that does
# starts a Java of its own. A fifth process does as the first.
KEPT_TO: Final = ((SPARK,), (OPERATED, OTHERS), (OTHERS, OPERATED), (PLANE, SPARK))
FOLDERS: Final = {
    "tests/spark/": SPARK,
    "tests/pipeline/": SPARK,
    "tests/chart/": PLANE,
    "tests/control_plane/": PLANE,
    "tests/e2e/": OPERATED,
    "tests/faults/": PLANE,
    "tests/history/": PLANE,
}
# Seconds of a test that no run has measured.
USUAL_S: Final = {SPARK: 3.0, OPERATED: 2.0, PLANE: 2.0, OTHERS: 0.1}


class Durations:
    """Seconds of the tests of earlier runs, and of this one; saved when it ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._earlier: dict[str, float] = json.loads(file.read_text())
        except (OSError, ValueError):  # none yet, or unreadable: only the order suffers
            self._earlier = {}
        self._now: dict[str, float] = {}

    def cost(self, file: str, tests: Iterable[str]) -> float:
        """Seconds that these tests of a file will take."""
        usual_s = USUAL_S[need_of(file)]
        return sum(self._earlier.get(test, usual_s) for test in tests)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the set-up, the test, or the tear-down."""
        self._now[report.nodeid] = self._now.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Save what was measured, in place of what earlier runs measured of the same tests."""
        kept = {test: round(seconds, 2) for test, seconds in (self._earlier | self._now).items()}
        written = self._file.with_suffix(f".{os.getpid()}")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(kept, indent=0))
        written.replace(self._file)


def need_of(file: str) -> str:
    """What the tests of a file need."""
    return next((need for folder, need in FOLDERS.items() if file.startswith(folder)), OTHERS)


def choose_file(costs: Mapping[str, float], process: int) -> str:
    """The file that a process begins next, of those that wait, each with its seconds.

    `process` counts from 0. When nothing waits of what it keeps to, it is the slowest file of
    those of which there is most to do.
    """
    by_need: dict[str, list[str]] = {}
    for file in costs:
        by_need.setdefault(need_of(file), []).append(file)
    kept_to = (by_need[need] for need in KEPT_TO[process % len(KEPT_TO)] if need in by_need)
    most = max(by_need.values(), key=lambda files: sum(costs[file] for file in files))
    files = next(kept_to, most)
    return max(files, key=lambda file: costs[file])


class ByNeed(LoadFileScheduling):
    """Hands out whole files, as `--dist loadfile` does, in the order of `choose_file`."""

    def __init__(self, config: pytest.Config, log: Producer, durations: Durations) -> None:
        super().__init__(config, log)
        self._durations = durations

    def _assign_work_unit(self, node: WorkerController) -> None:
        costs = {file: self._durations.cost(file, tests) for file, tests in self.workqueue.items()}
        process = int(node.gateway.id.removeprefix("gw"))
        # What is first is assigned.
        self.workqueue.move_to_end(choose_file(costs, process), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """For `--dist loadfile` alone."""
    if config.getoption("dist") != "loadfile":
        return None
    durations = Durations(cache_directory() / "test-durations.json")
    config.pluginmanager.register(durations)
    return ByNeed(config, log, durations)
