"""Every trace through every autoscaler, in several phases, and how the results compare."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from benchmarks.report import Target
from benchmarks.scaling_sim.keda import KEDA_LAG, KEDA_PENDING, KEDA_TUNED, Keda, KedaSettings
from benchmarks.scaling_sim.ours import NAME, Pelops
from benchmarks.scaling_sim.outcome import Outcome, Summary, judge, summarize
from benchmarks.scaling_sim.play import Autoscaler, play
from benchmarks.scaling_sim.traces import Trace
from benchmarks.scaling_sim.world import World

TUNED: Final = KEDA_TUNED.name
MAX_REPLICA_SECONDS = 0.6  # of tuned KEDA's, in sum
MAX_ON_ONE_TRACE = 1.15  # where tuned KEDA is good
MAX_LATE = 0.3  # of tuned KEDA's
MAX_ABOVE = 1  # the replicas needed on a plateau

Results = Mapping[str, Mapping[str, Summary]]  # by trace, by autoscaler


def _pelops(trace: Trace, phase: float) -> Autoscaler:
    return Pelops(per_replica=trace.per_replica, most=trace.most, phase=phase)


def _keda(settings: KedaSettings, trace: Trace, phase: float) -> Autoscaler:
    return Keda(settings, per_replica=trace.per_replica, most=trace.most, phase=phase)


# Made for a trace and a phase: where in their intervals its clocks stand, from 0 to 1.
AUTOSCALERS: Final[Mapping[str, Callable[[Trace, float], Autoscaler]]] = {
    NAME: _pelops,
    **{
        settings.name: partial(_keda, settings) for settings in (KEDA_TUNED, KEDA_LAG, KEDA_PENDING)
    },
}


def run(trace: Trace, autoscaler: str, phase: float) -> World:
    """One trace through one autoscaler."""
    return play(trace, AUTOSCALERS[autoscaler](trace, phase))


def compete(traces: Sequence[Trace], phases: int) -> Results:
    """All of them; the same for every call, however many processes share the work."""
    tasks = [
        (trace, name, phase / phases)
        for trace in traces
        for name in AUTOSCALERS
        for phase in range(phases)
    ]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        outcomes = list(pool.map(_outcome, *zip(*tasks, strict=True), chunksize=phases))
    found: dict[str, dict[str, list[Outcome]]] = {}
    for (trace, name, _), outcome in zip(tasks, outcomes, strict=True):
        found.setdefault(trace.name, {}).setdefault(name, []).append(outcome)
    return {
        trace: {name: summarize(of) for name, of in by_name.items()}
        for trace, by_name in found.items()
    }


def _outcome(trace: Trace, autoscaler: str, phase: float) -> Outcome:
    return judge(trace, run(trace, autoscaler, phase))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Pelops' results by tuned KEDA's. None: nothing to divide by."""

    replica_seconds: float | None  # in sum
    worst_where_tuned_is_good: float | None  # replica-seconds, of one trace
    worst_trace: str | None
    late: float | None  # in sum
    late_where_tuned_serves: float | None  # in sum over traces on which it lets nothing wait > 60 s


def compare(results: Results) -> Ratios:
    """Compare Pelops with tuned KEDA."""
    pairs = {trace: (of[NAME], of[TUNED]) for trace, of in results.items()}
    good = {
        trace: ours.replica_seconds / tuned.replica_seconds
        for trace, (ours, tuned) in pairs.items()
        if tuned.is_good and tuned.replica_seconds
    }
    worst = max(good, key=lambda trace: good[trace], default=None)
    served = [pair for pair in pairs.values() if pair[1].longest_s <= 60]
    return Ratios(
        replica_seconds=_ratio(list(pairs.values()), lambda one: one.replica_seconds),
        worst_where_tuned_is_good=good[worst] if worst is not None else None,
        worst_trace=worst,
        late=_ratio(list(pairs.values()), lambda one: one.late),
        late_where_tuned_serves=_ratio(served, lambda one: one.late),
    )


def _ratio(
    pairs: Sequence[tuple[Summary, Summary]], figure: Callable[[Summary], float]
) -> float | None:
    below = sum(figure(tuned) for _, tuned in pairs)
    return sum(figure(ours) for ours, _ in pairs) / below if below else None


def targets(results: Results) -> list[Target]:
    """What is promised; a few traces alone may leave nothing to compare with."""
    ratios = compare(results)
    wrong = sum(sum(of[NAME].wrong.values()) for of in results.values())
    above = _most_above(results, NAME)
    rows = (
        ("replica_seconds_to_tuned_keda", ratios.replica_seconds, MAX_REPLICA_SECONDS),
        ("worst_trace_to_tuned_keda", ratios.worst_where_tuned_is_good, MAX_ON_ONE_TRACE),
        ("late_to_tuned_keda", ratios.late, MAX_LATE),
        ("late_where_tuned_keda_serves", ratios.late_where_tuned_serves, MAX_LATE),
        ("wrong_decisions", float(wrong), 0.0),
        ("most_above_needed", None if above is None else float(above), float(MAX_ABOVE)),
    )
    return [
        Target(name=name, value=value, target=target)
        for name, value, target in rows
        if value is not None
    ]


def _most_above(results: Results, name: str) -> int | None:
    found = [of[name].above for of in results.values()]
    return max((one for one in found if one is not None), default=None)


def figures(results: Results) -> dict[str, Any]:
    """All numbers, for the JSON form."""
    ratios = compare(results)
    return {
        "worst_trace": ratios.worst_trace,
        "wrong_decisions": {
            name: sum(sum(of[name].wrong.values()) for of in results.values())
            for name in AUTOSCALERS
        },
        "most_above_needed": {name: _most_above(results, name) for name in AUTOSCALERS},
        "traces": {
            trace: {
                **{name: asdict(summary) for name, summary in of.items()},
                "replica_seconds_to_tuned_keda": _one(of, lambda one: one.replica_seconds),
                "late_to_tuned_keda": _one(of, lambda one: one.late),
                "tuned_keda_is_good": of[TUNED].is_good,
            }
            for trace, of in results.items()
        },
    }


def _one(of: Mapping[str, Summary], figure: Callable[[Summary], float]) -> float | None:
    return _ratio([(of[NAME], of[TUNED])], figure)
