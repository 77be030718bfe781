"""Decisions that no reading of the traffic justifies.

Each is judged by the world itself, which knows the backlog and what was still to come. The limits
are wide enough for the defaults of every autoscaler: what is slow is counted as waiting, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.scaling_sim.traces import Trace
from benchmarks.scaling_sim.world import Sample, World, Write

ZERO_S = 60.0  # at zero while the backlog is not empty: twice KEDA's polling interval
FROZEN_S = 60.0  # the backlog is in the hundreds, and nothing moves
MAXIMUM_S = 360.0  # the window of HPA's default, and a minute
AFTERWARDS_S = 150  # shrinking and growing again within this is one swing
SWINGS = 2  # once may be bad luck
TRAFFIC = 4  # entries in a minute; with fewer a cool-down of a minute may well run out
MINUTE = 60


def wrong_decisions(trace: Trace, world: World) -> dict[str, int]:
    """How often which was made; kinds that were not made are left out."""
    samples = world.samples
    counts = {
        "ended the last worker while there were a backlog": _ended_all(world.writes),
        "zero while owed": _stretches(samples, _is_zero, ZERO_S),
        "frozen while the backlog was in the hundreds": _stretches(
            samples, _is_frozen(trace), FROZEN_S
        ),
        "the maximum held for nothing": _stretches(samples, _is_idle_maximum(trace), MAXIMUM_S),
    }
    swings = _swings(trace, world.writes)
    if swings >= SWINGS:
        counts["flapping"] = swings
    return {kind: count for kind, count in counts.items() if count}


def _ended_all(writes: Sequence[Write]) -> int:
    return sum(write.after == 0 and write.owed > 0 for write in writes)


def _is_zero(sample: Sample) -> bool:
    return sample.replicas == 0 and sample.undelivered + sample.in_work > 0


def _is_frozen(trace: Trace) -> Callable[[Sample], bool]:
    """Twice as much is undelivered as its replicas are wanted for, and there could be more."""

    def is_frozen(sample: Sample) -> bool:
        plenty = max(200, 2 * trace.per_replica * max(1, sample.replicas))
        return sample.replicas < trace.most and sample.undelivered >= plenty

    return is_frozen


def _is_idle_maximum(trace: Trace) -> Callable[[Sample], bool]:
    """Half of the replicas would do for all that is there, counted as generously as can be."""

    def is_idle(sample: Sample) -> bool:
        if sample.replicas < trace.most:
            return False
        by_backlog = (sample.undelivered + sample.in_work) / trace.per_replica
        return max(by_backlog, sample.arrived / trace.kind.rate) < trace.most / 2

    return is_idle


def _stretches(samples: Sequence[Sample], holds: Callable[[Sample], bool], longest_s: float) -> int:
    """How many stretches lasted longer than that, the replicas unchanged."""
    count = 0
    began: Sample | None = None
    for sample in samples:
        if not holds(sample):
            began = None
        elif began is None or sample.replicas != began.replicas:
            began = sample
        elif sample.at - began.at == int(longest_s) + 1:
            count += 1
    return count


def _swings(trace: Trace, writes: Sequence[Write]) -> int:
    """Scale-ins by half or more, below what came before and after, that were soon taken back."""
    return sum(
        write.after <= write.before / 2
        and write.after < _needed(trace, int(write.at))
        and _grew_back(write, writes)
        for write in writes
    )


def _needed(trace: Trace, second: int) -> float:
    """Replicas for what arrived in the last minute and in the next one, whichever is less."""
    before = trace.arrivals[max(0, second - MINUTE) : second]
    after = trace.arrivals[second : second + MINUTE]
    count = min(sum(before), sum(after))
    return count / MINUTE / trace.kind.rate if count >= TRAFFIC else 0.0


def _grew_back(write: Write, writes: Sequence[Write]) -> bool:
    later = [one for one in writes if write.at < one.at <= write.at + AFTERWARDS_S]
    highest = max((one.after for one in later), default=0)
    return highest >= (write.after + 2 if write.after else 1) and highest >= 2 * write.after
