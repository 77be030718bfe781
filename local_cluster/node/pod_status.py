"""The status of a pod, made of what its containers report. Pure: the time is an argument."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from local_cluster.node.container_state import (
    ContainerReport,
    Terminated,
    Waiting,
    render_report,
    render_time,
)
from local_cluster.node.fields import KubeObject
from local_cluster.node.settings import HOST_IP


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """All that the node knows of one pod."""

    pod_ip: str
    started_at: datetime
    init: Sequence[ContainerReport]
    containers: Sequence[ContainerReport]
    sidecars: frozenset[str] = frozenset()  # the init containers that keep running
    restart_policy: str = "Always"
    ended: bool = False  # the node has ended every container, whatever the policy
    reason: str = ""  # why the pod failed as a whole: DeadlineExceeded
    message: str = ""


def decide_phase(state: PodState) -> str:
    """Pending, Running, Succeeded or Failed."""
    if state.reason:
        return "Failed" if state.ended else "Running"
    if state.ended or state.restart_policy != "Always":
        final = _final_phase(state)
        if final is not None:
            return final
    begun = any(not isinstance(one.state, Waiting) or one.last for one in state.containers)
    return "Running" if begun and is_initialized(state) else "Pending"


def _final_phase(state: PodState) -> str | None:
    codes = [one.state.exit_code for one in state.containers if isinstance(one.state, Terminated)]
    init = [one for one in state.init if one.name not in state.sidecars]
    failed_init = any(isinstance(one.state, Terminated) and one.state.exit_code for one in init)
    if failed_init and (state.ended or state.restart_policy == "Never"):
        return "Failed"
    if len(codes) < len(state.containers):
        return None
    if not any(codes):
        return "Succeeded"
    # Under OnFailure a failed container comes back: only a temporary end.
    return "Failed" if state.ended or state.restart_policy == "Never" else None


def is_initialized(state: PodState) -> bool:
    """Whether every init container has completed, and every sidecar has started."""
    return all(_has_initialized(one, sidecar=one.name in state.sidecars) for one in state.init)


def _has_initialized(report: ContainerReport, *, sidecar: bool) -> bool:
    if sidecar:
        # A sidecar that crashed later leaves the pod initialized, as does one that is being ended.
        return report.started or report.restart_count > 0 or isinstance(report.state, Terminated)
    return isinstance(report.state, Terminated) and report.state.exit_code == 0


def build_status(pod: KubeObject, state: PodState, now: datetime) -> KubeObject:
    """The status to report, with the transition times of conditions that did not change."""
    phase = decide_phase(state)
    status: KubeObject = {
        "phase": phase,
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "podIP": state.pod_ip,
        "podIPs": [{"ip": state.pod_ip}],
        "startTime": render_time(state.started_at),
        "observedGeneration": pod["metadata"].get("generation", 0),
        "containerStatuses": [render_report(one) for one in state.containers],
        "conditions": _conditions(pod, state, phase, render_time(now)),
    }
    if state.init:
        status["initContainerStatuses"] = [render_report(one) for one in state.init]
    if state.reason:
        status |= {"reason": state.reason, "message": state.message}
    return status


def _conditions(pod: KubeObject, state: PodState, phase: str, now: str) -> list[KubeObject]:
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    unready = [one.name for one in _must_be_ready(state) if not one.ready]
    unready_message = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    containers_ready = not unready and not done
    gates = _unmet_gates(pod)
    wanted = [
        _condition("PodReadyToStartContainers", not state.ended and not done),
        _condition("Initialized", is_initialized(state), "ContainersNotInitialized"),
        _condition(
            "Ready",
            containers_ready and not gates,
            done or _unready_reason(unready),
            unready_message,
        ),
        _condition(
            "ContainersReady", containers_ready, done or "ContainersNotReady", unready_message
        ),
        _condition("PodScheduled", True),
    ]
    before = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or []}
    return [_with_transition(one, before.get(one["type"]), now) for one in wanted]


def _must_be_ready(state: PodState) -> list[ContainerReport]:
    return [*(one for one in state.init if one.name in state.sidecars), *state.containers]


def _unready_reason(unready: Sequence[str]) -> str:
    return "ContainersNotReady" if unready else "ReadinessGatesNotReady"


def _unmet_gates(pod: KubeObject) -> list[str]:
    conditions = (pod.get("status") or {}).get("conditions") or []
    met = {one["type"] for one in conditions if one["status"] == "True"}
    gates = (gate["conditionType"] for gate in pod["spec"].get("readinessGates") or [])
    return [gate for gate in gates if gate not in met]


def _condition(kind: str, holds: bool, reason: str = "", message: str = "") -> KubeObject:
    # Strategic merge keeps what a patch leaves out, so an emptied reason is written as null.
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": None if holds else (reason or None),
        "message": None if holds else (message or None),
    }


def _with_transition(condition: KubeObject, before: KubeObject | None, now: str) -> KubeObject:
    unchanged = before is not None and before["status"] == condition["status"]
    since = before.get("lastTransitionTime") if before is not None and unchanged else None
    return condition | {"lastTransitionTime": since or now}


def is_reported(wanted: KubeObject, observed: KubeObject) -> bool:
    """Whether the status that the API server holds already says all of `wanted`."""
    held = {one["type"]: one for one in observed.get("conditions") or []}
    if not all(_says(held.get(one["type"]), one) for one in wanted["conditions"]):
        return False
    return all(
        _says(observed.get(key), value) for key, value in wanted.items() if key != "conditions"
    )


def _says(observed: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return all(
            _says((observed or {}).get(key), value)
            for key, value in wanted.items()
            if key != "lastTransitionTime"
        )
    if isinstance(wanted, list):
        same_length = len(wanted) == len(observed or [])
        return same_length and all(map(_says, observed or [], wanted))
    # Empty and absent are one: the API server omits what is empty.
    return observed == wanted or (not observed and not wanted)
