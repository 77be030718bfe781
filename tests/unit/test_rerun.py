"""Failed tests run once more, alone, at the end of the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.operators import ROOT
from tests.rerun import FORGIVEN, PASSED_ALONE

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


def run(directory: Path, *, count: int, broken: bool = False) -> tuple[int, list[str]]:
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
    return ended.returncode, ended.stdout.splitlines()


def test_a_few_that_pass_alone_leave_the_run_green_and_are_listed(tmp_path: Path) -> None:
    code, lines = run(tmp_path, count=FORGIVEN)
    assert code == 0
    listed = lines.index(next(line for line in lines if f" {PASSED_ALONE} " in line))
    assert lines[listed + 1 : listed + 4] == [f"test_it.py::test_busy[{n}]" for n in range(3)]
    assert "1 passed, 1 skipped, 3 passed when run alone" in lines[-1]


def test_too_many_that_pass_alone_leave_it_red(tmp_path: Path) -> None:
    code, lines = run(tmp_path, count=FORGIVEN + 1)
    assert code == 1
    assert "4 are too many: at most 3 may fail" in lines


def test_one_that_fails_again_leaves_it_red_and_shows_why(tmp_path: Path) -> None:
    code, lines = run(tmp_path, count=1, broken=True)
    assert code == 1
    assert "failed again: test_it.py::test_broken" in lines
    assert "1 failed, 1 passed, 1 passed when run alone" in lines[-1]
