"""The models of KEDA and of HorizontalPodAutoscaler do what the real ones were seen to do.

The figures are of KEDA 2.21 with the HPA controller of Kubernetes 1.36 on a real control plane:
the range over the phases that were run. A model that is kinder or harsher than KEDA would make the
benchmark worthless in either way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

import pytest

from benchmarks.scaling_sim.keda import KEDA_LAG, KEDA_TUNED, Keda, KedaSettings
from benchmarks.scaling_sim.outcome import Outcome, judge
from benchmarks.scaling_sim.play import play
from benchmarks.scaling_sim.traces import TRACES, Trace
from benchmarks.scaling_sim.world import World

pytestmark = pytest.mark.full

PHASES = 6
WITHIN = 0.15  # of what was measured
ONE_PHASE_WITHIN = 0.20  # live, three phases were run
QUIET_S = 400  # after the work, for all to come to rest

STEP = Trace(name="step", what="10,000 at once", arrivals=[0.0] * 7 + [10_000.0] + [0.0] * 900)
STEADY = Trace(name="steady", what="120/s", arrivals=[0.0] * 7 + [120.0] * 900 + [0.0] * QUIET_S)


@dataclass(frozen=True, slots=True)
class _Run:
    world: World
    outcome: Outcome

    @property
    def backlog_seconds(self) -> float:
        return float(sum(one.undelivered + one.in_work for one in self.world.samples))


@cache
def _runs(settings: KedaSettings, name: str) -> list[_Run]:
    trace = next(one for one in (STEP, STEADY, *TRACES) if one.name == name)
    worlds = [
        play(
            trace,
            Keda(settings, per_replica=trace.per_replica, most=trace.most, phase=phase / PHASES),
        )
        for phase in range(PHASES)
    ]
    return [_Run(world, judge(trace, world)) for world in worlds]


def _replica_seconds(run: _Run) -> float:
    return run.outcome.replica_seconds


def _backlog_seconds(run: _Run) -> float:
    return run.backlog_seconds


def _p99(run: _Run) -> float:
    return run.outcome.p99_s


@pytest.mark.parametrize(
    ("settings", "trace", "figure", "least", "most"),
    [
        (KEDA_LAG, "step", _replica_seconds, 5_845, 6_100),
        (KEDA_LAG, "step", _backlog_seconds, 257_000, 508_000),
        (KEDA_LAG, "step", _p99, 38, 65),
        (KEDA_LAG, "steady", _replica_seconds, 12_156, 16_500),
        (KEDA_LAG, "steady", _backlog_seconds, 217_000, 403_000),
        (KEDA_LAG, "steady", _p99, 28, 37),
        (KEDA_TUNED, "step", _replica_seconds, 1_232, 1_372),
        (KEDA_TUNED, "step", _backlog_seconds, 104_000, 210_000),
        (KEDA_TUNED, "step", _p99, 15, 26),
        (KEDA_TUNED, "steady", _replica_seconds, 8_091, 8_755),
        (KEDA_TUNED, "steady", _backlog_seconds, 151_000, 166_000),
        (KEDA_TUNED, "steady", _p99, 9, 10),
    ],
)
def test_a_figure_lies_where_a_real_keda_was_measured(
    settings: KedaSettings,
    trace: str,
    figure: Callable[[_Run], float],
    least: float,
    most: float,
) -> None:
    found = [figure(run) for run in _runs(settings, trace)]
    assert least * (1 - WITHIN) <= median(found) <= most * (1 + WITHIN)
    assert least * (1 - ONE_PHASE_WITHIN) <= min(found)
    assert max(found) <= most * (1 + ONE_PHASE_WITHIN)


def _replicas(run: _Run) -> list[int]:
    return [write.after for write in run.world.writes]


def test_tuned_keda_swings_under_constant_traffic() -> None:
    for run in _runs(KEDA_TUNED, "steady"):
        swings = [write for write in run.world.writes if (write.before, write.after) == (11, 1)]
        assert len(swings) >= 8
        assert median(b.at - a.at for a, b in pairwise(swings)) == 75


@pytest.mark.parametrize("name", ["created at $", "SETID back"])
@pytest.mark.parametrize("settings", [KEDA_LAG, KEDA_TUNED], ids=lambda one: one.name)
def test_keda_never_starts_a_group_whose_lag_is_null(settings: KedaSettings, name: str) -> None:
    for run in _runs(settings, name):
        assert _replicas(run) == []
        assert run.outcome.unserved > 0


def test_tuned_keda_stays_at_one_replica_after_a_deleted_entry() -> None:
    for run in _runs(KEDA_TUNED, "XDEL then peak"):
        assert run.world.samples[-1].replicas == 1
        assert run.outcome.unserved > 100_000
