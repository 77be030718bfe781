"""Whether more workers would help: nothing is gained by pods that never become ready, and nothing
by workers that fail at what they are given. Times are seconds on a clock that never jumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pelops.domain.workload import WorkloadObservation
from pelops.policy.rates import Meter

PATIENCE_S: Final = 120.0  # a slow start, an image to pull, a node to be added
LEAST_LETTERS: Final = 10.0  # fewer dead letters in the last minute are chance
FLOOD: Final = 0.5  # of what is processed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Fewer workers are ready than are there to be, and since when no further one became so."""

    since: float
    ready: int


def watch_shortage(
    shortage: Shortage | None, workload: WorkloadObservation, *, wished: int, now: float
) -> Shortage | None:
    """The shortage after one more look; None while there is none. Total."""
    ready = workload.ready
    if ready >= wished:
        return None
    if shortage is None or ready > shortage.ready:
        return Shortage(since=now, ready=ready)
    return Shortage(since=shortage.since, ready=ready)


def find_hindrance(
    workload: WorkloadObservation, meter: Meter, shortage: Shortage | None, *, now: float
) -> str | None:
    """Why further workers would not help, for people; None when they may. Total."""
    if workload.failure is not None:
        return f"pods cannot be created: {workload.failure}"
    if workload.ready == 0 and any(p.waiting_reason == "CrashLoopBackOff" for p in workload.pods):
        return "every worker crashes: see the condition WorkloadReady"
    if shortage is not None and now - shortage.since >= PATIENCE_S:
        return (
            f"only {workload.ready} of {workload.wished} workers are ready, and none became ready "
            f"in the last {PATIENCE_S:g} s: see the condition WorkloadReady"
        )
    if meter.dead_lettered >= LEAST_LETTERS and meter.dead_lettered >= FLOOD * meter.finished:
        return (
            f"{meter.dead_lettered / max(meter.finished, meter.dead_lettered):.0%} of what is "
            "processed ends as dead letters: read them, their last fields say why"
        )
    return None
