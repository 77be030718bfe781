"""Pelops in random traffic: it serves everything and makes no wrong decision."""

import random
from collections.abc import Callable

import pytest

from benchmarks.scaling_sim.contest import run
from benchmarks.scaling_sim.ours import NAME
from benchmarks.scaling_sim.outcome import judge
from benchmarks.scaling_sim.traces import Trace
from benchmarks.scaling_sim.workers import WorkerKind

SECONDS = 1000
QUIET_S = 300
RATES = (0.0, 0.05, 0.5, 3.0, 10.0, 40.0, 100.0, 300.0, 700.0)  # for workers that do 50 a second
AT_ONCE = (500.0, 2000.0, 8000.0)


def _stretch(chance: random.Random) -> list[float]:
    """Nothing, a noisy flow, a ramp, or a batch."""
    length = chance.randint(5, 300)
    first, last = chance.choice(RATES), chance.choice(RATES)
    kinds: dict[str, Callable[[int], float]] = {
        "nothing": lambda second: 0.0,
        "flow": lambda second: first * chance.uniform(0.8, 1.2),
        "ramp": lambda second: first + (last - first) * second / length,
        "batch": lambda second: chance.choice(AT_ONCE) if second == 0 else 0.0,
    }
    rate = kinds[chance.choice(sorted(kinds))]
    return [rate(second) for second in range(length)]


def _trace(seed: int) -> Trace:
    chance = random.Random(seed)
    arrivals: list[float] = []
    while len(arrivals) < SECONDS:
        arrivals += _stretch(chance)
    rate = chance.choice((200.0, 50.0, 50.0, 5.0, 1.0))
    share = rate / 50
    return Trace(
        name=f"random {seed}",
        what="",
        arrivals=[count * share for count in arrivals[:SECONDS]] + [0.0] * QUIET_S,
        kind=WorkerKind(
            rate=rate,
            starts_in_s=chance.choice((2.0, 10.0, 30.0)),
            prefetch=chance.choice((1, 10, 100)),
            varies=chance.random() < 0.3,
        ),
        per_replica=max(1, int(100 * share)),
        poison_every=chance.choice((0, 0, 500)),
        deletes=chance.random() < 0.3,
    )


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(6, 12))]
)
def test_random_traffic_is_served_without_a_wrong_decision(seed: int) -> None:
    trace = _trace(seed)
    outcome = judge(trace, run(trace, NAME, seed / 12))
    assert outcome.wrong == {}
    assert (outcome.unserved, outcome.interrupted) == (0, 0)
