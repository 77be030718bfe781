"""What came of one trace with one autoscaler, and of all phases together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.scaling_sim.traces import Trace
from benchmarks.scaling_sim.world import World
from benchmarks.scaling_sim.wrong import wrong_decisions

LATE_AFTER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run. Waiting is from XADD until a handler begins; what never began waits to the end."""

    late: float  # entry-seconds of waiting beyond 10 s
    p99_s: float
    longest_s: float
    unserved: int  # entries that no handler began with
    replica_seconds: float  # of pods that exist, ending ones too
    busy_seconds: float
    interrupted: int  # handlers that were killed at their work
    writes: int
    wrong: Mapping[str, int]
    above: int | None  # the most replicas above those needed on a plateau; None: it has none

    @property
    def idle_share(self) -> float | None:
        """Of the replica-seconds; None when no replica ever was."""
        if not self.replica_seconds:
            return None
        return max(0.0, 1.0 - self.busy_seconds / self.replica_seconds)


def judge(trace: Trace, world: World) -> Outcome:
    """What came of it."""
    waits = Counter(world.waits)
    unserved = world.unserved()
    for cohort in unserved:
        waits[world.now - cohort.added_at] += cohort.count
    return Outcome(
        late=sum(
            count * (wait - LATE_AFTER_S) for wait, count in waits.items() if wait > LATE_AFTER_S
        ),
        p99_s=weighted_percentile(waits, 99),
        longest_s=max(waits, default=0.0),
        unserved=sum(cohort.count for cohort in unserved),
        replica_seconds=world.pod_seconds,
        busy_seconds=world.busy_seconds,
        interrupted=world.interrupted,
        writes=len(world.writes),
        wrong=wrong_decisions(trace, world),
        above=_above(trace, world),
    )


def _above(trace: Trace, world: World) -> int | None:
    found = [
        one.replicas - plateau.needed
        for plateau in trace.plateaus
        for one in world.samples
        if plateau.first <= one.at <= plateau.last
    ]
    return max(found, default=None)


def weighted_percentile(counts: Mapping[float, int], percent: float) -> float:
    """The smallest value that `percent` of all do not exceed; 0 without any."""
    wanted, passed = sum(counts.values()) * percent / 100, 0
    for value in sorted(counts):
        passed += counts[value]
        if passed >= wanted:
            return value
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All phases of one trace with one autoscaler: sums where sums make sense, else the worst."""

    late: float
    p99_s: float
    longest_s: float
    unserved: int
    replica_seconds: float
    idle_share: float | None
    interrupted: int
    writes: int
    wrong: Mapping[str, int]
    above: int | None

    @property
    def is_good(self) -> bool:
        """No wrong decision, and nothing waited over a minute."""
        return not self.wrong and self.longest_s <= 60.0


def summarize(outcomes: Sequence[Outcome]) -> Summary:
    """All of them together."""
    total = sum(one.replica_seconds for one in outcomes)
    busy = sum(one.busy_seconds for one in outcomes)
    return Summary(
        late=sum(one.late for one in outcomes),
        p99_s=max(one.p99_s for one in outcomes),
        longest_s=max(one.longest_s for one in outcomes),
        unserved=sum(one.unserved for one in outcomes),
        replica_seconds=total,
        idle_share=max(0.0, 1.0 - busy / total) if total else None,
        interrupted=sum(one.interrupted for one in outcomes),
        writes=sum(one.writes for one in outcomes),
        wrong=_add(one.wrong for one in outcomes),
        above=max((one.above for one in outcomes if one.above is not None), default=None),
    )


def _add(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)
