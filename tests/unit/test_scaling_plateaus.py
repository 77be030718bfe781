"""On a plateau the fleet stays at what is needed, whatever came before and however workers read."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial
from math import ceil

import pytest

from benchmarks.scaling_sim.contest import run
from benchmarks.scaling_sim.ours import NAME
from benchmarks.scaling_sim.outcome import judge
from benchmarks.scaling_sim.traces import TRACES, Act, Plateau, Trace
from benchmarks.scaling_sim.workers import WorkerKind
from benchmarks.scaling_sim.world import World

SETTLED_S = 120
MOST_BUSY = 0.95  # of what workers can do; what is needed has some room
# More seeds: PELOPS_PLATEAU_SEEDS=200 python -m pytest tests/unit/test_scaling_plateaus.py
SEEDS = int(os.environ.get("PELOPS_PLATEAU_SEEDS", "12"))


def _trace(name: str) -> Trace:
    return next(one for one in TRACES if one.name == name)


def _needed(per_second: float, rate: float) -> int:
    return ceil(per_second / (MOST_BUSY * rate))


def _set_speed(speed: float, world: World) -> None:
    world.speed = speed


@pytest.mark.parametrize(
    ("lump_s", "pause_s"),
    [
        (0.0, 0.0),
        (1.0, 1.0),
        *(
            pytest.param(*seconds, marks=pytest.mark.full)
            for seconds in [(0.0, 1.0), (0.5, 0.0), (0.5, 1.0), (1.0, 0.0)]
        ),
    ],
)
def test_workers_that_read_batches_do_not_make_the_fleet_grow(
    lump_s: float, pause_s: float
) -> None:
    steady = _trace("steady for an hour")
    trace = replace(
        steady,
        arrivals=[120.0] * 900,
        lump_s=lump_s,
        kind=replace(steady.kind, pause_s=pause_s),
        plateaus=(Plateau(first=240, last=900, needed=3),),
    )
    for phase in (0.0, 0.25, 0.5, 0.75):
        outcome = judge(trace, run(trace, NAME, phase))
        assert (outcome.wrong, outcome.late) == ({}, 0.0)
        assert outcome.above is not None
        assert outcome.above <= 1


@pytest.mark.full
def test_hours_of_steady_load_change_nothing() -> None:
    steady = _trace("steady for an hour")
    hours = 8 if "PELOPS_PLATEAU_SEEDS" in os.environ else 1
    trace = replace(
        steady,
        arrivals=[120.0] * 3600 * hours,
        plateaus=(Plateau(first=120, last=3600 * hours, needed=3),),
    )
    world = run(trace, NAME, 0.5)
    outcome = judge(trace, world)
    assert (outcome.wrong, outcome.late) == ({}, 0.0)
    assert outcome.above is not None
    assert outcome.above <= 1
    assert outcome.writes <= 10


def test_a_slow_drift_is_followed() -> None:
    trace = _trace("slow drift")
    for phase in (0.0, 0.5):
        world = run(trace, NAME, phase)
        assert judge(trace, world).late == 0
        for sample in world.samples[SETTLED_S:1800]:
            # Two minutes are allowed for what becomes quicker.
            passed = range(0, SETTLED_S + 20, 10)
            speed = 0.5 + min(abs((sample.at - ago) / 1800 - 0.5) for ago in passed)
            needed = _needed(200.0, 50.0 * speed)
            assert sample.replicas <= max(needed + 1, ceil(1.3 * needed))


@pytest.mark.full
def test_a_second_slow_minute_is_forgotten_as_the_first_one_was() -> None:
    trace = _trace("slow minute")
    befalls: dict[int, Act] = {}
    for first in (300, 660):
        befalls |= {first: partial(_set_speed, 0.4), first + 60: partial(_set_speed, 1.0)}
    trace = replace(
        trace,
        befalls=befalls,
        plateaus=(
            Plateau(first=480, last=660, needed=3),
            Plateau(first=840, last=1200, needed=3),
        ),
    )
    for phase in (0.0, 0.25, 0.5, 0.75):
        outcome = judge(trace, run(trace, NAME, phase))
        assert outcome.above is not None
        assert outcome.above <= 1


def _random_trace(seed: int) -> Trace:
    """Some rates, each for a while; perhaps a slow minute or a burst; then a plateau."""
    chance = random.Random(seed)
    rate = chance.choice((200.0, 50.0, 50.0, 10.0))
    arrivals: list[float] = []
    while len(arrivals) < 600:
        per_second = rate * chance.choice((0.0, 0.3, 1.0, 2.4, 5.0, 9.0))
        arrivals += [per_second * chance.uniform(0.9, 1.1) for _ in range(chance.randint(20, 200))]
    if chance.random() < 0.5:
        arrivals[chance.randint(0, 500)] += rate * 100
    last = rate * chance.choice((0.7, 2.4, 5.0, 8.0, 12.0))
    start = len(arrivals)
    befalls: dict[int, Act] = {}
    if chance.random() < 0.5:
        befalls = {start: partial(_set_speed, 0.4), start + 60: partial(_set_speed, 1.0)}
    settled = start + 60 + SETTLED_S
    arrivals += [last * chance.uniform(0.95, 1.05) for _ in range(60 + SETTLED_S + 420)]
    return Trace(
        name=f"random {seed}",
        what="",
        arrivals=arrivals,
        kind=WorkerKind(
            rate=rate,
            starts_in_s=chance.choice((1.0, 2.0, 5.0)),
            first_read_s=chance.choice((0.0, 3.0)),
            pause_s=chance.choice((0.0, 0.5, 1.0)),
            batch=chance.choice((0, int(rate / 2), int(rate / 2))),
        ),
        per_replica=int(2 * rate),
        lump_s=chance.choice((0.0, 0.0, 1.0)),
        befalls=befalls,
        plateaus=(Plateau(first=settled, last=len(arrivals), needed=_needed(last, rate)),),
    )


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(6, SEEDS))]
)
def test_after_random_traffic_a_plateau_is_served_by_what_it_needs(seed: int) -> None:
    trace = _random_trace(seed)
    world = run(trace, NAME, seed * 0.618 % 1)
    outcome = judge(trace, world)
    needed = trace.plateaus[0].needed
    assert outcome.above is not None
    assert needed + outcome.above <= max(needed + 1, 1.3 * needed)
    assert outcome.wrong == {}
