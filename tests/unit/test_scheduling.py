"""Which process of a test run begins which file."""

from __future__ import annotations

import pytest

from tests.scheduling import choose_file

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


def test_one_process_alone_helps_with_spark_while_there_is_something_else() -> None:
    costs = {SPARK: 90.0, OTHER: 10.0}
    assert [choose_file(costs, process) for process in range(4)] == [SPARK, OTHER, OTHER, SPARK]
