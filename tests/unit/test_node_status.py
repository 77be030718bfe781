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
    close_report,
    decide_backoff_s,
    exit_code_of,
    parse_report,
    render_report,
    resume_report,
    will_restart,
)
from local_cluster.node.light import build_light_status
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


def test_a_container_in_its_back_off_leaves_the_pod_running() -> None:
    waiting = report(Waiting(reason="CrashLoopBackOff"), last=CRASHED, restart_count=3)
    assert decide_phase(pod_state(containers=[waiting])) == "Running"


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status["conditions"]}


def test_a_pod_is_ready_when_all_its_containers_are() -> None:
    ready, unready = report(RUNNING, ready=True, started=True), report(RUNNING, "slow")
    assert conditions(build_status(POD, pod_state(containers=[ready]), AT))["Ready"] == "True"
    status = build_status(POD, pod_state(containers=[ready, unready]), AT)
    assert conditions(status)["Ready"] == conditions(status)["ContainersReady"] == "False"
    messages = {one["type"]: one["message"] for one in status["conditions"]}
    assert messages["Ready"] == "containers with unready status: [slow]"


def test_a_readiness_gate_holds_the_pod_back() -> None:
    gated = POD | {"spec": {"readinessGates": [{"conditionType": "example.dev/in"}]}}
    state = pod_state(containers=[report(RUNNING, ready=True)])
    seen = conditions(build_status(gated, state, AT))
    assert (seen["ContainersReady"], seen["Ready"]) == ("True", "False")


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    later = AT + timedelta(minutes=1)
    first = build_status(POD, pod_state(RUNNING), AT)
    ready = pod_state(containers=[report(RUNNING, ready=True)])
    second = build_status(POD | {"status": first}, ready, later)
    times = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert times["Ready"] == "2026-03-01T12:01:00Z"
    assert times["Initialized"] == "2026-03-01T12:00:00Z"


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


@pytest.mark.parametrize("state", [WAITING, RUNNING, DONE, CRASHED])
def test_a_report_is_read_back_as_it_was_written(state: State) -> None:
    whole = AT.replace(microsecond=0)
    if isinstance(state, Running):
        state = Running(started_at=whole)
    if isinstance(state, Terminated):
        state = replace(state, started_at=whole, finished_at=whole, container_id="process://1-2")
    written = report(state, restart_count=2, ready=True, started=True, container_id="process://3-4")
    assert parse_report(render_report(written)) == written


def test_times_are_cut_to_seconds() -> None:
    assert render_report(report(RUNNING))["state"] == {
        "running": {"startedAt": "2026-03-01T12:00:00Z"}
    }


def test_a_running_container_without_its_process_is_lost() -> None:
    before = report(RUNNING, restart_count=4, ready=True)
    after = resume_report(before)
    assert (after.state, after.restart_count, after.ready) == (LOST, 4, False)
    assert resume_report(report(DONE)).state == DONE


def test_a_closed_container_shows_its_last_end() -> None:
    backing_off = report(Waiting(reason="CrashLoopBackOff"), last=CRASHED)
    assert close_report(backing_off).state == CRASHED
    assert close_report(report(DONE)).state == DONE
    assert close_report(report(WAITING)).state == LOST


def test_the_back_off_doubles_from_nothing_to_its_cap() -> None:
    assert [decide_backoff_s(ends) for ends in range(9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]
    assert decide_backoff_s(10_000) == 30


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


def test_a_signal_shows_as_128_and_its_number() -> None:
    assert [exit_code_of(code) for code in (0, 3, -9, -15)] == [0, 3, 137, 143]


def test_a_pod_without_processes_that_ended_reports_the_end_of_its_containers() -> None:
    pod = {"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    running = build_light_status(pod, "127.0.0.2", AT)
    ended = build_light_status(pod, "127.0.0.2", AT, ended=True)
    assert [next(iter(one["state"])) for one in running["containerStatuses"]] == ["running"] * 2
    assert [next(iter(one["state"])) for one in ended["containerStatuses"]] == ["terminated"] * 2
    assert (running["phase"], ended["phase"]) == ("Running", "Succeeded")
