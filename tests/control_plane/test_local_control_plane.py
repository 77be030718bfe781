"""The local cluster leaves nothing behind: no process, and no file of the user changed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster.errors import LocalClusterError
from local_cluster.plane import ControlPlane
from local_cluster.processes import Process, start_process, wait_until
from local_cluster.records import Records

pytestmark = pytest.mark.full

REPOSITORY = Path(__file__).parents[2]


def test_a_failed_start_shows_the_log_and_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    etcd = assets / "etcd"
    etcd.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid; echo the disk is on fire; exit 1\n")
    etcd.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    with pytest.raises(LocalClusterError, match=r"(?s)etcd has ended.*the disk is on fire"):
        ControlPlane.start(tmp_path / "state")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """Where a command keeps its cluster; whatever a failed test leaves running ends with it."""
    path = tmp_path / "state"
    yield path
    Records(path / "processes.json").stop_all()


def test_up_status_and_down_leave_no_trace_and_no_process(tmp_path: Path, state: Path) -> None:
    mine = tmp_path / "kubeconfig"
    mine.write_text("current-context: production\n")
    settings = {"KUBECONFIG": str(mine), "HOME": str(tmp_path / "home")}

    up = _run_command("up", state, settings)
    processes = Records(state / "processes.json").read()
    assert up.splitlines()[-1] == f"export KUBECONFIG={state}/control-plane/kubeconfig"
    assert _run_command("up", state, settings) == up
    assert "dead" not in _run_command("status", state, settings)

    _run_command("down", state, settings)
    assert not any(process.is_alive() for process in processes)
    assert not state.exists()
    assert mine.read_text() == "current-context: production\n"
    assert not (tmp_path / "home").exists()


def test_an_interrupted_up_leaves_no_process(tmp_path: Path, state: Path) -> None:
    log = tmp_path / "log"
    records = Records(state / "processes.json")
    command = [sys.executable, "-m", "local_cluster", "up", "--state", str(state)]
    up = start_process("up", command, log=log, cwd=REPOSITORY)

    def find_apiserver() -> list[Process]:
        return [one for one in records.read() if one.name == "kube-apiserver"]

    wait_until(find_apiserver, timeout_s=120, what="the API server's start")
    started = records.read()
    up.send_to_leader(signal.SIGINT)
    wait_until(lambda: not up.is_alive(), timeout_s=60, what="the end of `up`")

    assert (up.exit_code, [one for one in started if one.is_alive()]) == (130, [])
    assert not state.exists()


def test_a_process_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Process] = []

    def start() -> None:
        started.append(start_process("sleep", ["sleep", "60"], log=tmp_path / "log"))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    (process,) = started
    try:
        assert not process.ends_within(0.5)
    finally:
        process.kill()
    assert process.exit_code == -signal.SIGKILL


def test_a_reused_pid_is_never_hit(tmp_path: Path) -> None:
    process = start_process("sleep", ["sleep", "60"], log=tmp_path / "log")
    assert process.started is not None
    namesake = Process("earlier", process.pid, tmp_path / "log", started=process.started - 1)
    try:
        namesake.kill()
        assert (namesake.is_alive(), process.is_alive()) == (False, True)
    finally:
        process.kill()


def _run_command(command: str, state: Path, settings: dict[str, str]) -> str:
    # The cache is named: with another HOME all would be built again.
    cache = os.environ.get("PELOPS_CACHE") or str(Path.home() / ".cache" / "pelops")
    return subprocess.run(
        [sys.executable, "-m", "local_cluster", command, "--state", str(state)],
        cwd=REPOSITORY,
        env=os.environ | {"PELOPS_CACHE": cache} | settings,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
