"""The node stand-in as a node: its failures, its neighbors, and its light mode."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from local_cluster.nodes import Node
from local_cluster.plane import ControlPlane
from tests.e2e.node.pods import (
    PATIENT,
    PodNamespace,
    build_pod,
    build_secret,
    is_alive,
    is_ready,
    pid_of,
)

pytestmark = pytest.mark.full


@pytest.mark.full
def test_a_failed_node_keeps_its_processes_and_recovers(
    pods: PodNamespace, extra_node: Node
) -> None:
    names = ("stays", "restarts")
    ref = {"secretKeyRef": {"name": "redis", "key": "password"}}
    pods.apply(build_secret("redis", password="x"))
    env = [{"name": "PASSWORD", "valueFrom": ref}]
    pods.apply(*(build_pod(one, PATIENT, env=env, nodeName=extra_node.name) for one in names))
    stays, restarts = (pods.until_running(one) for one in names)
    extra_node.fail()
    os.kill(pid_of(restarts), signal.SIGKILL)
    pods.until(lambda: not extra_node.is_ready(), "NotReady")
    noticed_at = datetime.now(UTC)
    assert is_alive(pid_of(stays))
    assert pods.container("restarts") == restarts

    pods.until(lambda: not any(is_ready(pod) for pod in pods.all()), "no pod shown as ready")
    extra_node.recover()
    extra_node.await_ready()
    pods.until(lambda: all(is_ready(pod) for pod in pods.all()), "both pods ready again")
    assert pods.container("stays")["containerID"] == stays["containerID"]
    # What happened meanwhile is reported with its own time, not with that of the recovery.
    after = pods.container("restarts")
    assert after["restartCount"] == 1
    assert datetime.fromisoformat(after["state"]["running"]["startedAt"]) < noticed_at


@pytest.mark.full
def test_an_end_while_the_api_server_is_away_is_reported_later(
    plane: ControlPlane, pods: PodNamespace
) -> None:
    pods.apply(build_pod("outage", PATIENT), build_pod("calm", PATIENT))
    before, calm = pods.until_running("outage"), pods.until_running("calm")
    plane.process("kube-apiserver").kill()
    os.kill(pid_of(before), signal.SIGKILL)
    plane.restart("kube-apiserver")
    pods.until(lambda: pods.container("outage")["restartCount"] == 1, "the restart")
    assert pods.until_running("outage")["lastState"]["terminated"]["exitCode"] == 137
    assert pods.container("calm")["containerID"] == calm["containerID"]


def test_a_killed_node_takes_all_processes_along_and_resumes(
    pods: PodNamespace, extra_node: Node, tmp_path: Path
) -> None:
    program = """
    import subprocess, time
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
    time.sleep(600)
    """
    pods.apply(
        build_pod("again", program, nodeName=extra_node.name),
        build_pod("once", program, nodeName=extra_node.name, restartPolicy="Never"),
    )
    pids = [pid_of(pods.until_running(name)) for name in ("again", "once")]
    pids += [int(pods.until_said(name)) for name in ("again", "once")]
    extra_node.process.kill()
    pods.until(lambda: not any(map(is_alive, pids)), "the end of its processes")

    restarted = Node.start(extra_node.plane, extra_node.name, tmp_path / "state")
    try:
        pods.until(lambda: pods.container("again")["restartCount"] == 1, "the restart")
        ended = pods.until_running("again")["lastState"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("ContainerStatusUnknown", 137)
        assert pods.until_phase("once", "Failed")["status"]["containerStatuses"]
        pid = pid_of(pods.until_running("again"))
    finally:
        restarted.stop()
    assert restarted.process.exit_code == 0
    assert not restarted.plane.get(f"/api/v1/nodes/{restarted.name}").count(b'"KubeletReady"')
    assert not is_alive(pid)
