"""Which process of `make test` runs which file.

pytest-xdist hands out the files with the most tests first, to whoever asks. Here one process keeps
to what needs Spark and another to what needs a control plane, so that these are started once, and
a session of Spark is soon warm; only when its own files are gone does a process help another. The
slowest files come first, so that no process works on one when the others have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling
    from xdist.workermanage import WorkerController

SPARK, PLANE, OTHERS = "spark", "plane", "others"
# What the first process keeps to, the second, and the third; a fourth does as the first.
KEPT_TO: Final = (SPARK, PLANE, OTHERS)
FOLDERS: Final = {
    "tests/spark/": SPARK,
    "tests/pipeline/": SPARK,
    "tests/chart/": PLANE,
    "tests/control_plane/": PLANE,
    "tests/e2e/": PLANE,
    "tests/faults/": PLANE,
    "tests/history/": PLANE,
}
# Seconds of a usual test, and of the files that take long for the number of their tests. They are
# rough, since only the order counts.
USUAL_S: Final = {SPARK: 0.5, PLANE: 2.0, OTHERS: 0.1}
SLOW_S: Final[Mapping[str, float]] = {
    "tests/chart/test_release.py": 35,
    "tests/chart/test_values.py": 25,
    "tests/control_plane/test_applying_again.py": 20,
    "tests/control_plane/test_audit_idle.py": 40,
    "tests/control_plane/test_docs_commands.py": 50,
    "tests/control_plane/test_local_control_plane.py": 40,
    "tests/control_plane/test_operator_idle.py": 45,
    "tests/control_plane/test_operator_lacking_rights.py": 85,
    "tests/control_plane/test_operator_replicas.py": 80,
    "tests/control_plane/test_operator_rights.py": 55,
    "tests/control_plane/test_operator_scaling.py": 60,
    "tests/e2e/node/test_node_stand_in.py": 20,
    "tests/e2e/test_audits.py": 60,
    "tests/e2e/test_audits_on_spark.py": 20,
    "tests/e2e/test_cli.py": 30,
    "tests/e2e/test_deleting.py": 45,
    "tests/e2e/test_demo.py": 45,
    "tests/e2e/test_hpa_on_scale.py": 20,
    "tests/e2e/test_positions.py": 25,
    "tests/e2e/test_recovery.py": 35,
    "tests/e2e/test_recovery_attempts.py": 20,
    "tests/e2e/test_recovery_outages.py": 70,
    "tests/e2e/test_recovery_strategies.py": 22,
    "tests/e2e/test_redis_refusals.py": 60,
    "tests/e2e/test_reporting.py": 22,
    "tests/e2e/test_retention.py": 21,
    "tests/e2e/test_retry_stream.py": 24,
    "tests/e2e/test_scaling.py": 80,
    "tests/faults/test_faults.py": 55,
    "tests/fuzz/test_hostile_servers.py": 45,
    "tests/fuzz/test_hostile_servers_of_readers.py": 20,
    "tests/fuzz/test_hostile_specs.py": 45,
    "tests/history/test_history.py": 50,
    "tests/monitoring/test_alerts.py": 20,
    "tests/monitoring/test_dashboard_queries.py": 10,
    "tests/pipeline/test_audit.py": 40,
    "tests/pipeline/test_dying_drivers.py": 60,
    "tests/pipeline/test_engines.py": 40,
    "tests/pipeline/test_status_files.py": 55,
    "tests/spark/test_exactness.py": 85,
    "tests/spark/test_hardships_streaming.py": 90,
    "tests/spark/test_older_versions.py": 40,
    "tests/spark/test_sink.py": 30,
    "tests/spark/test_streaming.py": 80,
}


def need_of(file: str) -> str:
    """What the tests of a file need."""
    return next((need for folder, need in FOLDERS.items() if file.startswith(folder)), OTHERS)


def choose_file(waiting: Mapping[str, int], process: int) -> str:
    """The file that a process begins next, of those that wait, each with its number of tests.

    `process` counts from 0. When nothing waits of what it keeps to, it is the slowest file of
    those of which there is most to do.
    """

    def cost(file: str) -> float:
        return SLOW_S.get(file, USUAL_S[need_of(file)] * waiting[file])

    by_need: dict[str, list[str]] = {}
    for file in waiting:
        by_need.setdefault(need_of(file), []).append(file)
    own = by_need.get(KEPT_TO[process % len(KEPT_TO)])
    files = own or max(by_need.values(), key=lambda files: sum(map(cost, files)))
    return max(files, key=cost)


class ByNeed(LoadFileScheduling):
    """Hands out whole files, as `--dist loadfile` does, in the order of `choose_file`."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        waiting = {file: len(tests) for file, tests in self.workqueue.items()}
        process = int(node.gateway.id.removeprefix("gw"))
        # What is first is assigned.
        self.workqueue.move_to_end(choose_file(waiting, process), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """For `--dist loadfile` alone."""
    return ByNeed(config, log) if config.getoption("dist") == "loadfile" else None
