"""Failed tests run once more, alone, at the end of the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.operators import ROOT
from tests.rerun import FORGIVEN

pytestmark = pytest.mark.full

# Each fails in a process of a distributed run; alone, only the last one fails.
FAILING = """
import os
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_busy(number):
    assert "PYTEST_XDIST_WORKER" not in os.environ

@pytest.mark.skipif({broken} is False, reason="all else is well")
def test_broken():
    raise AssertionError("always")

def test_well():
    pass
"""


def run(directory: Path, *, count: int, broken: bool = False) -> tuple[int, str]:
    (directory / "test_it.py").write_text(FAILING.format(count=count, broken=broken))
    (directory / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.rerun", "-n", "1", str(directory)]
    ended = subprocess.run(
        command,
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize(
    ("count", "broken", "code", "printed"),
    [
        (FORGIVEN, False, 0, "1 passed, 1 skipped, 3 passed when run alone"),
        (FORGIVEN + 1, False, 1, "4 are too many: at most 3 may fail"),
        (1, True, 1, "failed again: test_it.py::test_broken"),
    ],
)
def test_a_run_is_green_with_a_few_tests_that_pass_alone(
    tmp_path: Path, count: int, broken: bool, code: int, printed: str
) -> None:
    found, output = run(tmp_path, count=count, broken=broken)
    assert found == code
    assert printed in output
    assert "test_it.py::test_busy[0]" in output
