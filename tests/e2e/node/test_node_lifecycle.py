"""How pods on the node stand-in end and come back, and what their status reports."""

import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.node.pods import (
    PATIENT,
    STUBBORN,
    PodNamespace,
    build_pod,
    is_alive,
    pid_of,
)

pytestmark = pytest.mark.full


def test_a_pod_that_ignores_its_end_is_killed_after_its_grace(pods: PodNamespace) -> None:
    pods.apply(build_pod("stubborn", STUBBORN, terminationGracePeriodSeconds=2))
    pid = pid_of(pods.until_running("stubborn"))
    pods.until_said("stubborn")
    pods.kubectl("delete", "pod", "stubborn", "--wait=false")
    assert is_alive(pid)
    gone = ["get", "pod", "stubborn", "--ignore-not-found", "-o", "name"]
    pods.until(lambda: not pods.kubectl(*gone).stdout, "the pod's removal")
    assert not is_alive(pid)


def test_a_pod_deleted_by_force_still_loses_its_process(pods: PodNamespace) -> None:
    pods.apply(build_pod("forced", STUBBORN, terminationGracePeriodSeconds=2))
    pid = pid_of(pods.until_running("forced"))
    pods.until_said("forced")
    pods.kubectl("delete", "pod", "forced", "--force", "--grace-period=0")
    pods.until(lambda: not is_alive(pid), "the end of its process")


def test_a_killed_process_is_started_again_with_a_new_start_time(pods: PodNamespace) -> None:
    pods.apply(build_pod("killed", PATIENT))
    before = pods.until_running("killed")
    pods.until_said("killed")
    second = timedelta(seconds=1)
    killed_at = datetime.now(UTC)
    os.kill(pid_of(before), signal.SIGKILL)

    pods.until(lambda: pods.container("killed")["restartCount"] == 1, "the restart")
    after = pods.until_running("killed")
    ended = after["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")
    assert ended["containerID"] == before["containerID"] != after["containerID"]
    finished_at = datetime.fromisoformat(ended["finishedAt"])
    started_at = datetime.fromisoformat(after["state"]["running"]["startedAt"])
    assert killed_at - second <= finished_at <= started_at <= datetime.now(UTC)
    assert ended["startedAt"] == before["state"]["running"]["startedAt"]
    pods.until_said("killed", "argv")
    assert "argv" in pods.logs("killed", "--previous")


def test_what_a_container_left_behind_ends_with_it(pods: PodNamespace) -> None:
    program = """
    import subprocess, time
    inside = subprocess.Popen(["sleep", "600"])
    escaped = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(inside.pid, escaped.pid, flush=True)
    time.sleep(600)
    """
    pods.apply(build_pod("parent", program))
    container = pods.until_running("parent")
    children = [int(pid) for pid in pods.until_said("parent").split()]
    assert all(map(is_alive, children))
    os.kill(pid_of(container), signal.SIGKILL)
    pods.until(lambda: not any(map(is_alive, children)), "the end of its children")


def test_a_crash_loop_backs_off_and_keeps_each_end(pods: PodNamespace) -> None:
    pods.apply(build_pod("crashes", "print('once more'); raise SystemExit(3)"))

    def is_backing_off() -> bool:
        container = pods.container("crashes")
        waiting = container["state"].get("waiting", {})
        return bool(waiting.get("reason") == "CrashLoopBackOff" and container["restartCount"] >= 2)

    pods.until(is_backing_off, "the back-off")
    container = pods.container("crashes")
    assert container["lastState"]["terminated"]["exitCode"] == 3
    assert pods.get("pod", "crashes")["status"]["phase"] == "Running"
    assert pods.logs("crashes") == "once more\n"
    pods.kubectl("delete", "pod", "crashes", "--wait=true")
