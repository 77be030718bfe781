"""Whether processes of a pod have ended, and how: on purpose, by themselves, or from outside."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.liveness import Death
from pelops.domain.workload import ContainerObservation, PodObservation

SECOND: Final = timedelta(seconds=1)  # what times lose where they are written
FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
PLANNED_EXITS: Final = frozenset({0, 143})  # 128 + SIGTERM


def has_ended(pod: PodObservation) -> bool:
    """Whether a kubelet said that nothing of this pod runs, and nothing will.

    The phase alone may be written by others. Containers alone are not enough either: one that
    ended may have been started again before anybody was reported.
    """
    is_final = pod.phase in FINAL_PHASES and not pod.is_collected
    return is_final and are_all_terminated(pod)


def could_be_dead(pod: PodObservation) -> bool:
    """Whether a process of this pod may have ended, so that a live look is worth its price."""
    return pod.phase in FINAL_PHASES or any(map(ended_once, pod.containers))


def is_end(before: PodObservation, after: PodObservation) -> bool:
    """Whether a process ended between two states of one pod, or its pod came to its last phase."""
    if after.phase in FINAL_PHASES and before.phase not in FINAL_PHASES:
        return True
    known = {one.name: one for one in before.containers}
    return any(_ended(known.get(one.name), one) for one in after.containers)


def are_all_terminated(pod: PodObservation) -> bool:
    """Whether every container was reported as ended; they may be started again."""
    return bool(pod.containers) and all(one.state == "terminated" for one in pod.containers)


def ended_once(one: ContainerObservation) -> bool:
    """Whether a process of this container ended, this one or an earlier one."""
    return one.state == "terminated" or one.has_restarted


def decide_death(
    pod: PodObservation, readers: Sequence[ContainerObservation], *, skew: timedelta
) -> Death:
    """How the last process of these containers ended, as far as it did."""
    if pod.is_disrupted:
        return Death.PLANNED
    if pod.deletion_requested is not None and all(
        _ended_after(one, pod.deletion_requested, skew) for one in readers
    ):
        return Death.PLANNED
    return worst([_death_of_container(one) for one in readers])


def worst(deaths: Sequence[Death]) -> Death:
    """The gravest of these: a crash, then an end that nobody explains."""
    if Death.CRASHED in deaths:
        return Death.CRASHED
    return Death.PLANNED if deaths and set(deaths) == {Death.PLANNED} else Death.KILLED


def _ended(before: ContainerObservation | None, after: ContainerObservation) -> bool:
    if before is None:
        return False
    if after.restarts > before.restarts:
        return True
    is_running = after.state in ("running", "unknown")
    return not is_running and before.state != after.state and ended_once(after)


def _ended_after(one: ContainerObservation, requested: datetime, skew: timedelta) -> bool:
    if one.state != "terminated" or one.finished is None:
        return True
    # Two clocks wrote the times: an end on request is believed within their difference.
    slack = SECOND + (skew if one.exit_code in PLANNED_EXITS else timedelta())
    return one.finished + slack >= requested


def _death_of_container(one: ContainerObservation) -> Death:
    has_ended_now = one.state == "terminated"
    code = one.exit_code if has_ended_now else one.last_exit_code
    reason = one.reason if has_ended_now else one.last_reason
    if code is None or (code == 137 and reason != "OOMKilled"):
        return Death.KILLED
    return Death.CRASHED
