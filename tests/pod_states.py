"""Pods in every state of their lives, with times before NOW, and what is decided about them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pelops.domain.recovery import Cutoff, FormerPod, PodEvidence
from pelops.domain.workload import ContainerObservation, NodeObservation, PodObservation
from pelops.policy.recovery.liveness import REPORTS_WITHIN, decide_cutoff
from tests.builders import NOW, later, pod

S = timedelta(seconds=2)
SECOND = timedelta(seconds=1)
GRACE_S = 30.0
LONG = GRACE_S + REPORTS_WITHIN.total_seconds()


def ago(seconds: float) -> datetime:
    return later(seconds=-seconds)


def container(name: str = "worker", **more: Any) -> ContainerObservation:
    return ContainerObservation(name=name, **more)


def running(since: float = 100, **more: Any) -> ContainerObservation:
    """A container that has run since its beginning."""
    return container(**{"state": "running", "started": ago(since), **more})


def restarted(since: float, ended: float, code: int = 1, **more: Any) -> ContainerObservation:
    """A container whose process ended and that runs again."""
    return running(since, last_finished=ago(ended), last_exit_code=code, restarts=1, **more)


def ended(since: float = 10, code: int = 0, **more: Any) -> ContainerObservation:
    return container(state="terminated", finished=ago(since), exit_code=code, **more)


def looping(since: float, pause: float | None = 10.0, **more: Any) -> ContainerObservation:
    """A container in a crash loop."""
    return container(
        state="waiting",
        waiting_reason="CrashLoopBackOff",
        back_off_s=pause,
        last_finished=ago(since),
        last_exit_code=1,
        restarts=1,
        **more,
    )


def finished(**more: Any) -> PodObservation:
    """A pod whose kubelet reported the end of everything."""
    return pod(**{"phase": "Succeeded", "containers": (ended(),), "is_deleting": True, **more})


def former(**more: Any) -> FormerPod:
    """A deleted pod whose end was not observed."""
    usual: dict[str, Any] = {
        "name": "w-1",
        "uid": "pod-1",
        "absent_since": ago(1),
        "grace_s": GRACE_S,
        "node": NodeObservation(name="n1", is_ready=True),
    }
    return FormerPod(**{**usual, **more})


def judge(live: PodObservation | None, *formers: FormerPod, **more: Any) -> Cutoff:
    """The cut of consumer w-1; `skew` and the arguments of decide_cut may be given."""
    how = {name: more.pop(name) for name in ("master_since", "container") if name in more}
    skew = more.pop("skew", S)
    evidence = PodEvidence(consumer="w-1", live=live, formers=formers, **more)
    return decide_cutoff(evidence, server_time=NOW, skew=skew, **how)


def of(*containers: ContainerObservation, **more: Any) -> PodObservation:
    return pod(containers=containers, **more)
