"""What became of a container: its states and their form in a pod's status."""

from dataclasses import dataclass
from datetime import UTC, datetime

from local_cluster.node.fields import KubeObject

_BACKOFF_CAP_S = 30.0
BACKOFF_FORGOTTEN_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminated:
    exit_code: int  # 128 + signal when a signal ended it
    reason: str
    message: str = ""
    started_at: datetime | None = None  # None: not observed
    finished_at: datetime | None = None
    container_id: str = ""


State = Waiting | Running | Terminated

# What the kubelet says of a container that it had started and finds no more.
LOST = Terminated(
    exit_code=137,
    reason="ContainerStatusUnknown",
    message="The container could not be located when the pod was terminated",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerReport:
    name: str
    image: str
    state: State
    last: Terminated | None = None
    restart_count: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""


def decide_backoff_s(quick_ends: int) -> float:
    """How long to wait before the next start, after so many ends in a row: 0, 1, 2, 4 ... 30 s."""
    if quick_ends <= 1:
        return 0
    return min(2.0 ** min(quick_ends - 2, 10), _BACKOFF_CAP_S)


def will_restart(policy: str, exit_code: int) -> bool:
    """Whether a container that ended so is started again."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def exit_code_of(returncode: int) -> int:
    """The exit code that Kubernetes shows for Python's return code (-9 becomes 137)."""
    return returncode if returncode >= 0 else 128 - returncode


def close_report(report: ContainerReport) -> ContainerReport:
    """The report of a container that will not run again: what it waits for no longer matters."""
    state = report.state if isinstance(report.state, Terminated) else (report.last or LOST)
    return _replace_state(report, state)


def resume_report(report: ContainerReport) -> ContainerReport:
    """What to go on from when this node finds a container whose process it does not have."""
    if isinstance(report.state, Running):
        return _replace_state(report, LOST)
    return _replace_state(report, report.state)


def _replace_state(report: ContainerReport, state: State) -> ContainerReport:
    return ContainerReport(
        name=report.name,
        image=report.image,
        state=state,
        last=report.last,
        restart_count=report.restart_count,
        container_id=report.container_id,
    )


def render_time(moment: datetime) -> str:
    """As Kubernetes writes times: UTC, whole seconds, cut and not rounded."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time; None for none."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def render_report(report: ContainerReport) -> KubeObject:
    """One item of containerStatuses."""
    return {
        "name": report.name,
        "image": report.image,
        "imageID": "",
        "state": _render_state(report.state),
        "lastState": _render_state(report.last) if report.last else {},
        "restartCount": report.restart_count,
        "ready": report.ready,
        "started": report.started,
    } | ({"containerID": report.container_id} if report.container_id else {})


def _render_state(state: State) -> KubeObject:
    match state:
        case Waiting(reason=reason, message=message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(started_at=started_at):
            return {"running": {"startedAt": render_time(started_at)}}
        case Terminated():
            return {"terminated": _render_terminated(state)}


def _render_terminated(state: Terminated) -> KubeObject:
    rendered: KubeObject = {"exitCode": state.exit_code, "reason": state.reason}
    texts = {"message": state.message, "containerID": state.container_id}
    times = {"startedAt": state.started_at, "finishedAt": state.finished_at}
    rendered |= {key: text for key, text in texts.items() if text}
    # Absent times are written as null: that is how the API server shows them.
    return rendered | {key: render_time(at) if at else None for key, at in times.items()}


def parse_report(status: KubeObject) -> ContainerReport:
    """A containerStatus as it was reported before."""
    last = _parse_state(status.get("lastState") or {})
    return ContainerReport(
        name=status["name"],
        image=status.get("image", ""),
        state=_parse_state(status.get("state") or {}),
        last=last if isinstance(last, Terminated) else None,
        restart_count=status.get("restartCount", 0),
        ready=bool(status.get("ready")),
        started=bool(status.get("started")),
        container_id=status.get("containerID", ""),
    )


def _parse_state(state: KubeObject) -> State:
    if "running" in state:
        started_at = parse_time(state["running"].get("startedAt"))
        return Running(started_at=started_at or datetime.fromtimestamp(0, UTC))
    if "terminated" in state:
        ended = state["terminated"]
        return Terminated(
            exit_code=ended["exitCode"],
            reason=ended.get("reason", ""),
            message=ended.get("message", ""),
            started_at=parse_time(ended.get("startedAt")),
            finished_at=parse_time(ended.get("finishedAt")),
            container_id=ended.get("containerID", ""),
        )
    waiting = state.get("waiting") or {}
    return Waiting(reason=waiting.get("reason", ""), message=waiting.get("message", ""))
