"""`make demo` as a person runs it: what it says, its exit code, and what it leaves behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from demo.auditing import PAGE
from demo.picture import PICTURE
from local_cluster.binaries import cache_directory
from local_cluster.processes import wait_until
from local_cluster.state_directory import StateDirectory

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
FEW = "400"  # files; enough to be at work for a moment

Demo = subprocess.Popen[str]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """The demo on a few files, with both of its outputs in one, as on a terminal."""
    started = subprocess.Popen(
        [sys.executable, "-m", "demo", "--files", FEW],
        cwd=ROOT,
        env=os.environ | {"KEEP": "", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with started:
        yield started
        started.kill()
    leftover = StateDirectory(state_of(started))
    if leftover.is_ours():
        leftover.remove()  # a demo that failed keeps its logs, and a killed one all it had


def test_it_ends_well_with_every_check_shown_and_nothing_left(demo: Demo) -> None:
    began = time.time()
    said, _ = demo.communicate()
    assert demo.returncode == 0, said
    assert said.count("  ok      ") == 52, said
    assert "FAILED" not in said
    header = re.findall(r"^ +TIME +NAME .* REPLICAS +AGE$", said, re.MULTILINE)
    assert len(header) == 1, "the header of what changes comes once"
    assert "to keep this short" in said, "what is left out is said"
    steps = re.findall(r"^\[(\d)/9\] ", said, re.MULTILINE)
    assert steps == list("123456789"), "each step is announced"
    assert said.count("  make demo KEEP=1") == 1, "what to do next is said"
    for workers in ("indexers-workers-", "plain-workers-"):
        assert said.count(f"\nkilled {workers}") == 2, "both kinds are killed alike"
    assert said.count(" pending entries: kubectl delete pod --now\n") == 2
    assert said.count(" pending entries: SIGKILL of process ") == 2
    assert "\nHandlerFailed " in said, "dead letters are listed by cause"
    assert "\n$ pelops dlq redrive indexers --cluster=" in said
    assert "\n$ pelops status -n demo\n" in said
    assert " Requeued " in said, "the Events are shown as they come"
    assert " ScaledUp " in said
    assert " ScaledDown " in said
    assert "Backlog and workers over time: build/demo.svg\n" in said
    assert PICTURE.stat().st_mtime >= began, "the picture is of this run"
    assert fromstring(PICTURE.read_text()).tag.endswith("svg")
    assert "Report of the audit: build/audit.html\n" in said
    assert PAGE.stat().st_mtime >= began, "the report is of this run"
    assert "  acknowledged_inferred " in said and "  redriven " in said
    await_nothing_left(demo)
    assert not state_of(demo).exists()


@pytest.mark.parametrize(
    "moment",
    [
        "starting 1 node",
        pytest.param("added ", marks=pytest.mark.full),
        pytest.param("starting the audit: ", marks=pytest.mark.full),
    ],
)
def test_an_interrupt_at_any_moment_leaves_nothing(demo: Demo, moment: str) -> None:
    assert demo.stdout is not None
    said = next((line for line in demo.stdout if line.startswith(moment)), None)
    assert said is not None, "the demo ended before"
    demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate()
    assert demo.returncode == 130, rest
    await_nothing_left(demo)
    assert not state_of(demo).exists()


@pytest.mark.full
def test_a_killed_demo_leaves_no_process(demo: Demo) -> None:
    assert demo.stdout is not None
    assert any(line.startswith("added ") for line in demo.stdout)
    demo.kill()
    demo.communicate()
    await_nothing_left(demo)


def state_of(demo: Demo) -> Path:
    return cache_directory() / "clusters" / f"demo-{demo.pid}"


def await_nothing_left(demo: Demo) -> None:
    """Killed processes end in their own time; what the demo started names its directory."""
    wait_until(lambda: not find_processes(str(state_of(demo))), timeout_s=180, what="nothing left")


def find_processes(word: str) -> list[str]:
    """The command lines of processes which have `word` in command line or environment."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes()
            known = command + (directory / "environ").read_bytes()
        except OSError:
            continue
        if word.encode() in known:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found
