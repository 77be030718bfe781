"""Which process of a test run begins which file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scheduling import Durations, choose_file

SPARK = "tests/pipeline/test_audit.py"
OPERATED = "tests/e2e/test_scaling.py"
PLANE = "tests/control_plane/test_doctor.py"
OTHER = "tests/unit/test_pacing.py"


@pytest.mark.parametrize(
    ("process", "file"), [(0, SPARK), (1, OPERATED), (2, OTHER), (3, PLANE), (4, SPARK)]
)
def test_a_process_keeps_to_what_needs_the_same(process: int, file: str) -> None:
    assert choose_file({SPARK: 5, OPERATED: 5, PLANE: 5, OTHER: 5}, process) == file


def test_the_slowest_file_comes_first() -> None:
    assert choose_file({OPERATED: 40, "tests/e2e/test_slow.py": 60}, 1) == "tests/e2e/test_slow.py"


def test_a_process_without_its_own_files_takes_the_slowest_one() -> None:
    costs = {OTHER: 10.0, OPERATED: 40.0, "tests/e2e/test_slow.py": 60.0}
    assert choose_file(costs, 0) == "tests/e2e/test_slow.py"


def test_one_process_alone_helps_with_spark_while_there_is_something_else() -> None:
    costs = {SPARK: 90.0, OTHER: 10.0}
    assert [choose_file(costs, process) for process in range(4)] == [SPARK, OTHER, OTHER, SPARK]


def test_the_next_run_knows_how_long_each_test_took(tmp_path: Path) -> None:
    kept = tmp_path / "durations.json"
    first = Durations(kept)
    assert first.cost(OTHER, ["a", "b"]) == pytest.approx(0.2)
    for phase, seconds in (("setup", 1.0), ("call", 2.0), ("teardown", 0.5)):
        first.pytest_runtest_logreport(_report("a", phase, seconds))
    first.pytest_sessionfinish()
    second = Durations(kept)
    assert second.cost(OTHER, ["a", "b"]) == pytest.approx(3.6)
    second.pytest_runtest_logreport(_report("b", "call", 7.0))
    second.pytest_sessionfinish()
    assert Durations(kept).cost(OTHER, ["a", "b"]) == pytest.approx(10.5)


def test_unreadable_durations_are_as_none(tmp_path: Path) -> None:
    kept = tmp_path / "durations.json"
    kept.write_text("{")
    assert Durations(kept).cost(PLANE, ["a"]) == 2.0


def _report(test: str, phase: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=test,
        location=(OTHER, 1, test),
        keywords={},
        outcome="passed",
        longrepr=None,
        when=phase,  # type: ignore[arg-type]
        duration=seconds,
    )
