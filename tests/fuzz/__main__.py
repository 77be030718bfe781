"""All fuzzed specs, or all fuzzed replies: the seed and the counts, and exit code 1 for a finding.

    - `python -m tests.fuzz specs`: 10,000 resources of both kinds, for a real operator.
    - `python -m tests.fuzz replies`: more than 100,000 replies to everything that asks Redis.
    - `python -m tests.fuzz replies --seed 7`: the same again.

The last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import pytest

_FILES = {"specs": "test_hostile_specs*.py", "replies": "test_hostile_servers*.py"}


class _Sum:
    """Adds up what the tests report."""

    def __init__(self) -> None:
        self.count = 0
        self.tests = 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        if report.failed:
            self.failed.append(report.nodeid)
        if report.when == "call":
            self.tests += 1
            self.count += sum(int(str(value)) for _, value in report.user_properties)


def main() -> int:
    """Run what was asked for; 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("what", choices=sorted(_FILES))
    parser.add_argument("--seed", type=int, help="of another run, which printed it")
    parser.add_argument("--each", type=int, help="how many each test takes, instead of all")
    given = parser.parse_args()
    if given.seed:
        os.environ["FUZZ_SEED"] = str(given.seed)
    which = ["-m", "full"]
    if given.each:
        os.environ[f"FUZZ_{given.what.upper()}"] = str(given.each)
        which = []
    from tests.fuzz.tally import SEED  # it reads the environment

    print(f"FUZZ_SEED={SEED}", flush=True)
    os.environ["FUZZ_SEED"] = str(SEED)  # pytest may import the tests under another name
    found = _Sum()
    files = map(str, sorted(Path(__file__).parent.glob(_FILES[given.what])))
    code = pytest.main(["-n", "0", "-s", *which, *files], plugins=[found])
    passed = code == 0 and found.tests > 0
    summary = {"fuzzed": given.what, "seed": SEED, "count": found.count, "tests": found.tests}
    print(json.dumps(summary | {"failed": found.failed, "passed": passed}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
