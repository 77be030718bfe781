"""The simulated world keeps count, its verdict is right, and Pelops does well in it."""

import pytest

from benchmarks.scaling_sim.contest import AUTOSCALERS, run
from benchmarks.scaling_sim.ours import NAME
from benchmarks.scaling_sim.outcome import judge
from benchmarks.scaling_sim.play import play
from benchmarks.scaling_sim.traces import TRACES, Trace
from benchmarks.scaling_sim.workers import WorkerKind
from benchmarks.scaling_sim.world import World
from benchmarks.scaling_sim.wrong import wrong_decisions

pytestmark = pytest.mark.full


class _Script:
    """Sets the given numbers of replicas at the given seconds."""

    name = "script"

    def __init__(self, replicas: dict[int, int]) -> None:
        self._replicas = replicas

    def act(self, world: World) -> None:
        if world.now in self._replicas:
            world.scale(self._replicas[int(world.now)])


def _trace(arrivals: list[float], kind: WorkerKind | None = None, poison_every: int = 0) -> Trace:
    kind = kind or WorkerKind()
    return Trace(name="t", what="", arrivals=arrivals, kind=kind, poison_every=poison_every)


def _wrong(arrivals: list[float], replicas: dict[int, int]) -> dict[str, int]:
    trace = _trace(arrivals)
    return wrong_decisions(trace, play(trace, _Script(replicas)))


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_pelops_makes_no_wrong_decision(trace: Trace) -> None:
    outcome = judge(trace, run(trace, NAME, 0.0))
    assert outcome.wrong == {}
    assert outcome.unserved == 0
    assert outcome.longest_s <= 60
    assert outcome.above is None or outcome.above <= 1


@pytest.mark.parametrize("autoscaler", AUTOSCALERS)
def test_every_entry_waits_once_and_is_begun_or_left(autoscaler: str) -> None:
    trace = next(one for one in TRACES if one.name == "sawtooth")
    world = run(trace, autoscaler, 0.25)
    begun = sum(world.waits.values())
    assert begun + sum(one.count for one in world.unserved()) == world.group.added
    assert world.group.added == sum(trace.arrivals)


def test_an_entry_whose_handler_outlasts_the_grace_period_is_requeued() -> None:
    slow = WorkerKind(rate=0.02, prefetch=1)
    world = play(_trace([1.0] + [0.0] * 99, slow), _Script({1: 1, 5: 0}))
    assert world.interrupted == 1
    assert world.requeued == 1
    assert world.group.undelivered == 1


def test_ending_all_workers_with_a_backlog_is_wrong() -> None:
    kinds = _wrong([60.0] * 60, {1: 1, 30: 0})
    assert kinds["ended the last worker while there were a backlog"] == 1


def test_staying_at_zero_for_more_than_a_minute_is_wrong() -> None:
    assert _wrong([1.0] + [0.0] * 120, {}) == {"zero while owed": 1}
    assert _wrong([1.0] + [0.0] * 120, {50: 1}) == {}


def test_one_worker_for_a_backlog_of_hundreds_is_wrong() -> None:
    kinds = _wrong([100.0] * 120, {1: 1})
    assert kinds == {"frozen while the backlog was in the hundreds": 1}


def test_the_maximum_for_nothing_is_wrong_after_the_longest_window() -> None:
    assert _wrong([0.0] * 400, {1: 20}) == {"the maximum held for nothing": 1}
    assert _wrong([0.0] * 400, {1: 20, 350: 1}) == {}


def test_shrinking_below_the_traffic_and_growing_back_is_flapping() -> None:
    swings = {1: 4, 100: 1, 150: 4, 200: 1, 250: 4}
    assert _wrong([120.0] * 300, swings)["flapping"] == 2
    # With nothing to do in between, the same moves are right.
    assert "flapping" not in _wrong([0.0] * 300, swings)
