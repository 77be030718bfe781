"""Which process of a test run begins which file."""

from __future__ import annotations

import pytest

from tests import scheduling
from tests.operators import ROOT
from tests.scheduling import SLOW_S, choose_file

SPARK = "tests/pipeline/test_audit.py"
PLANE = "tests/e2e/test_scaling.py"
OTHER = "tests/unit/test_pacing.py"


@pytest.fixture(autouse=True)
def costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "SLOW_S", {"tests/e2e/test_slow.py": 60.0})


@pytest.mark.parametrize(("process", "file"), [(0, SPARK), (1, PLANE), (2, OTHER), (3, SPARK)])
def test_a_process_keeps_to_what_needs_the_same(process: int, file: str) -> None:
    assert choose_file({SPARK: 5, PLANE: 5, OTHER: 5}, process) == file


def test_the_slowest_file_comes_first_whatever_the_number_of_its_tests() -> None:
    assert choose_file({PLANE: 20, "tests/e2e/test_slow.py": 1}, 1) == "tests/e2e/test_slow.py"
    assert choose_file({OTHER: 5, "tests/unit/test_rates.py": 6}, 2) == "tests/unit/test_rates.py"


def test_a_process_with_nothing_of_its_own_helps_where_there_is_most_to_do() -> None:
    waiting = {OTHER: 100, PLANE: 20, "tests/e2e/test_slow.py": 1}
    assert choose_file(waiting, 0) == "tests/e2e/test_slow.py"


def test_every_file_with_a_cost_exists() -> None:
    assert [file for file in SLOW_S if not (ROOT / file).is_file()] == []
