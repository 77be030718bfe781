"""The node stand-in reports pods as a kubelet does."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from local_cluster.node.container_state import (
    LOST,
    ContainerReport,
    Running,
    State,
    Terminated,
    Waiting,
    resume_report,
    will_restart,
)
from local_cluster.node.pod_status import PodState, build_status, decide_phase, is_reported

pytestmark = pytest.mark.full

AT = datetime(2026, 3, 1, 12, 0, 0, 900_000, tzinfo=UTC)
POD: dict[str, Any] = {"metadata": {"name": "p", "generation": 2}, "spec": {}}
WAITING = Waiting(reason="ContainerCreating")
RUNNING = Running(started_at=AT)
DONE = Terminated(exit_code=0, reason="Completed", started_at=AT, finished_at=AT)
CRASHED = Terminated(exit_code=137, reason="Error", started_at=AT, finished_at=AT)


def report(state: State, name: str = "main", **more: Any) -> ContainerReport:
    return ContainerReport(name=name, image="none", state=state, **more)


def pod_state(*states: State, policy: str = "Always", **more: Any) -> PodState:
    reports = [report(state, f"c{number}") for number, state in enumerate(states)]
    facts: dict[str, Any] = {"pod_ip": "127.20.0.1", "started_at": AT, "init": ()}
    facts |= {"containers": reports}
    return PodState(**(facts | {"restart_policy": policy} | more))


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("Pending", pod_state(WAITING)),
        ("Running", pod_state(RUNNING, WAITING)),
        ("Running", pod_state(DONE, policy="Always")),
        ("Running", pod_state(CRASHED, policy="OnFailure")),
        ("Running", pod_state(CRASHED, RUNNING, policy="Never")),
        ("Succeeded", pod_state(DONE, DONE, policy="OnFailure")),
        ("Failed", pod_state(DONE, CRASHED, policy="Never")),
        ("Failed", pod_state(DONE, CRASHED, policy="Always", ended=True)),
        ("Succeeded", pod_state(DONE, policy="Always", ended=True)),
        ("Running", pod_state(RUNNING, reason="DeadlineExceeded")),
        ("Failed", pod_state(DONE, reason="DeadlineExceeded", ended=True)),
        ("Pending", pod_state(WAITING, init=[report(RUNNING, "i")])),
        ("Pending", pod_state(WAITING, init=[report(CRASHED, "i")])),
        ("Failed", pod_state(WAITING, init=[report(CRASHED, "i")], policy="Never")),
        ("Running", pod_state(RUNNING, init=[report(DONE, "i")])),
    ],
)
def test_the_phase_follows_from_the_containers(phase: str, state: PodState) -> None:
    assert decide_phase(state) == phase


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status["conditions"]}


def test_a_status_that_the_api_server_holds_is_not_written_again() -> None:
    state = pod_state(containers=[report(RUNNING, ready=True, restart_count=1, last=CRASHED)])
    status = build_status(POD, state, AT)
    # What the API server makes of it: nulls and empty values go, defaults come.
    held = {key: value for key, value in status.items() if value} | {"qosClass": "BestEffort"}
    held["conditions"] = [
        {key: value for key, value in one.items() if value is not None} | {"lastProbeTime": None}
        for one in status["conditions"]
    ]
    assert is_reported(build_status(POD | {"status": held}, state, AT + timedelta(1)), held)
    restarted = replace(state.containers[0], restart_count=2)
    again = build_status(POD | {"status": held}, replace(state, containers=[restarted]), AT)
    assert not is_reported(again, held)
    # The control plane took the readiness of a pod whose node fell silent: it is said again.
    for one in held["conditions"]:
        one["status"] = "False" if one["type"] == "Ready" else one["status"]
    assert not is_reported(build_status(POD | {"status": held}, state, AT), held)


def test_a_running_container_without_its_process_is_lost() -> None:
    before = report(RUNNING, restart_count=4, ready=True)
    after = resume_report(before)
    assert (after.state, after.restart_count, after.ready) == (LOST, 4, False)
    assert resume_report(report(DONE)).state == DONE


@pytest.mark.parametrize(
    ("policy", "exit_code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 1, False),
    ],
)
def test_the_restart_policy_decides(policy: str, exit_code: int, again: bool) -> None:
    assert will_restart(policy, exit_code) is again
