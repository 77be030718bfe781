"""Tests that failed beside others run once more at the end of the same run, alone.

Beside others, a test can fail because the machine is busy. A run stays green with at most
FORGIVEN tests that pass when run alone; it lists them by name.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

FORGIVEN: Final = 3
RERUN_AT_MOST: Final = 12  # with more failures, something is broken
PASSED_ALONE: Final = "passed when run alone"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Run the failed tests again, after the processes of the run have ended."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    is_distributed = session.config.pluginmanager.has_plugin("dsession")
    if not is_distributed or terminal is None or exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    failed = _find_failed(terminal)
    if not failed or len(failed) > RERUN_AT_MOST:
        return
    terminal.ensure_newline()
    terminal.section("failed tests, each run once more, alone")
    passed = [test for test in failed if _passes_alone(session.config, terminal, test)]
    for outcome in ("failed", "error"):
        reports = terminal.stats.pop(outcome, [])
        left = [report for report in reports if report.nodeid not in passed]
        if left:
            terminal.stats[outcome] = left
    terminal.stats[PASSED_ALONE] = [failed[test] for test in passed]
    if len(passed) == len(failed) <= FORGIVEN:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that passed when run alone, and how each failed beside others."""
    reports = terminalreporter.stats.get(PASSED_ALONE, [])
    if reports:
        terminalreporter.section(PASSED_ALONE)
        for report in reports:
            terminalreporter.write_line(report.nodeid)
        for report in reports:
            terminalreporter.section(f"beside others: {report.nodeid}", sep="_")
            terminalreporter.write_line(report.longreprtext)
        if len(reports) > FORGIVEN:
            terminalreporter.write_line(f"{len(reports)} are too many: at most {FORGIVEN} may fail")


def _find_failed(terminal: pytest.TerminalReporter) -> dict[str, pytest.TestReport]:
    reports = [*terminal.stats.get("failed", []), *terminal.stats.get("error", [])]
    return {report.nodeid: report for report in reports}


def _passes_alone(config: pytest.Config, terminal: pytest.TerminalReporter, test: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-n", "0", "--no-header", "--no-summary", test]
    again = subprocess.run(
        command,
        cwd=config.rootpath,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if again.returncode == pytest.ExitCode.OK:
        terminal.write_line(f"passed: {test}")
        return True
    terminal.write_line(f"failed again: {test}")
    terminal.write_line(again.stdout)
    return False
