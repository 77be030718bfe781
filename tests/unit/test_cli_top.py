"""`pelops top` on a terminal: it redraws, sorts by a key, and leaves the terminal as it was."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster.processes import wait_until
from tests.operators import ROOT
from tests.unit.conftest import Install

WAIT_S = 60.0


def a_resource(name: str, lag: int, pending: int) -> dict[str, Any]:
    group = {"lag": lag, "lagKnown": True, "pending": pending}
    return {
        "metadata": {"name": name, "namespace": "shop", "generation": 1},
        "spec": {"stream": "s"},
        "status": {"observedGeneration": 1, "group": group},
    }


class Terminal:
    """A pseudo-terminal with `pelops top` on it."""

    def __init__(self, *words: str) -> None:
        self._side, other = pty.openpty()
        os.set_blocking(self._side, False)
        environment = os.environ | {"PYTHONPATH": str(ROOT / "operator"), "PYTHONUTF8": "1"}
        environment |= {"TERM": "xterm", "LINES": "24", "COLUMNS": "120"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pelops.cli", "top", *words],
            env=environment,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.shown = ""

    def press(self, key: str) -> None:
        self.shown = ""
        os.write(self._side, key.encode())

    def await_text(self, *words: str) -> str:
        """What was shown since the last key, once it has these words in this order."""

        def found() -> bool:
            self._read()
            at = 0
            for word in words:
                at = self.shown.find(word, at) + 1
                if not at:
                    return False
            return True

        wait_until(found, timeout_s=WAIT_S, what=f"{words} in {self.shown!r}")
        return self.shown

    def await_end(self) -> int:
        """The exit code. A terminal that is not read would block the program."""

        def ended() -> bool:
            self._read()
            return self._process.poll() is not None

        wait_until(ended, timeout_s=WAIT_S, what="the end")
        self._read()
        return self._process.returncode

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._side)

    def _read(self) -> None:
        try:
            self.shown += os.read(self._side, 65536).decode("utf-8", "replace")
        except OSError:  # nothing to read now, or the program has ended
            time.sleep(0.01)


@pytest.fixture
def terminals(tmp_path: Path, install: Install) -> Iterator[Callable[..., Terminal]]:
    """Start `pelops top`, with a kubectl that lists two groups, and may not read pods."""
    items = [a_resource("behind", 1240, 1), a_resource("held", 0, 99)]
    (tmp_path / "groups").write_text(json.dumps({"items": items}))
    install(
        "kubectl",
        f'case "$*" in *streamconsumergroups*) cat {tmp_path}/groups ;; '
        '*) echo "Error from server (Forbidden): pods is forbidden" >&2; exit 1 ;; esac\n',
    )
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        started.append(Terminal(*words))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


def test_the_table_is_sorted_by_the_key_that_is_pressed(
    terminals: Callable[..., Terminal],
) -> None:
    terminal = terminals("-n", "shop", "--interval", "0.2s")
    terminal.await_text("sort: lag", "behind", "1,240", "held", "pods is forbidden")
    terminal.press("p")
    terminal.await_text("sort: pending", "held", "99", "behind")
    terminal.press("x")
    terminal.await_text("sort: pending")
    terminal.press("q")
    assert terminal.await_end() == 0
    assert terminal.shown.endswith("\x1b[?25h")  # the cursor is visible again


def test_ctrl_c_ends_it_with_130_and_restores_the_terminal(
    terminals: Callable[..., Terminal],
) -> None:
    terminal = terminals("--sort=age")
    terminal.await_text("sort: age of the oldest", "behind")
    terminal.interrupt()
    assert terminal.await_end() == 130
    assert "Traceback" not in terminal.shown
    assert "\x1b[?25h" in terminal.shown
