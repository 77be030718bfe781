"""How fast entries come and go, from looks at odd intervals and counters that jump."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.meter import Meter
from tests.scaling_cases import after, owing


@dataclass
class Fleet:
    """Workers of a known speed, and a meter that watches them."""

    ready: int
    per_replica: float
    meter: Meter = field(default_factory=Meter)
    seen: Backlog = field(default_factory=owing)
    _carried: float = 0.0

    def run(self, seconds: float, *, arrivals: float, looks_s: tuple[float, ...] = (1.0,)) -> None:
        """Let time pass; the intervals between looks repeat."""
        passed, turn = 0.0, 0
        while passed < seconds:
            interval = looks_s[turn % len(looks_s)]
            self.look(interval, arrived=interval * arrivals)
            passed, turn = passed + interval, turn + 1

    def look(self, interval: float, *, arrived: float) -> None:
        """One look, after so many entries came."""
        self._carried += arrived
        came = int(self._carried)
        self._carried -= came
        owed = self.seen.undelivered + came
        done = min(owed, round(interval * self.ready * self.per_replica))
        self.see(
            added=(self.seen.added or 0) + came,
            undelivered=owed - done,
            at=self.seen.at + after(seconds=interval),
        )

    def see(self, **changes: object) -> None:
        """One look that shows this."""
        self.seen = replace(self.seen, **changes)  # type: ignore[arg-type]
        self.meter.measure(self.seen, ready=self.ready)


def test_a_steady_flow_is_measured_whatever_the_intervals() -> None:
    fleet = Fleet(ready=4, per_replica=50)
    fleet.run(120, arrivals=120, looks_s=(0.2, 1.0, 3.0, 0.7))
    assert fleet.meter.rates.arrivals == pytest.approx(120, rel=0.03)
    assert fleet.meter.rates.acknowledged == pytest.approx(120, rel=0.03)


def test_the_rate_of_a_worker_is_measured_under_full_load() -> None:
    fleet = Fleet(ready=2, per_replica=50)
    fleet.run(20, arrivals=300)
    assert fleet.meter.rates.per_replica == pytest.approx(50, rel=0.02)
    assert fleet.meter.rates.is_proven


def test_without_full_load_the_rate_is_an_unproven_lower_bound() -> None:
    fleet = Fleet(ready=4, per_replica=50)
    fleet.run(10, arrivals=40)
    rates = fleet.meter.rates
    assert not rates.is_proven
    assert rates.per_replica is not None
    assert 8 <= rates.per_replica < 50


def test_a_quiet_time_says_nothing_of_what_a_worker_can_do() -> None:
    fleet = Fleet(ready=4, per_replica=50)
    fleet.run(600, arrivals=0)
    fleet.look(1.0, arrived=150)
    fleet.look(1.0, arrived=150)
    assert 25 <= (fleet.meter.rates.per_replica or 0) <= 37.5


def test_slow_work_is_measured_without_noise() -> None:
    chance = random.Random(7)
    fleet = Fleet(ready=2, per_replica=0.0)
    fleet.see(undelivered=5_000)
    found = []
    for second in range(3_000):
        done = sum(chance.random() < 1 / 40 for _ in range(2))
        fleet.see(undelivered=fleet.seen.undelivered - done, at=fleet.seen.at + after(seconds=1))
        if second > 900:
            found.append(fleet.meter.rates.per_replica or 0.0)
    assert min(found) > 0.5 / 40
    assert max(found) < 2 / 40


def test_a_burst_is_no_steady_flow() -> None:
    fleet = Fleet(ready=5, per_replica=50)
    fleet.run(60, arrivals=0)
    fleet.look(1.0, arrived=1_000)
    assert (fleet.meter.rates.arrivals or 0) <= 1_000 / 30
    fleet.run(15, arrivals=0)
    assert (fleet.meter.rates.arrivals or 0) < 3


def test_a_worker_that_became_slower_is_seen_to_be() -> None:
    fleet = Fleet(ready=2, per_replica=50)
    fleet.run(60, arrivals=300)
    fleet.per_replica = 10
    fleet.run(240, arrivals=300)
    assert fleet.meter.rates.per_replica == pytest.approx(10, rel=0.2)


def test_a_worker_that_became_faster_is_seen_to_be_without_a_backlog() -> None:
    fleet = Fleet(ready=2, per_replica=10)
    fleet.run(60, arrivals=30)
    fleet.per_replica = 100
    fleet.run(400, arrivals=90)
    assert (fleet.meter.rates.per_replica or 0) >= 40


def test_a_rate_that_was_never_tested_creeps_up_slowly() -> None:
    fleet = Fleet(ready=3, per_replica=50)
    fleet.run(60, arrivals=100)
    first = fleet.meter.rates.per_replica or 0.0
    fleet.run(300, arrivals=100)
    assert not fleet.meter.rates.is_proven
    assert 1.2 * first < (fleet.meter.rates.per_replica or 0) < 2 * first


def test_a_few_seconds_of_full_load_prove_the_rate() -> None:
    fleet = Fleet(ready=3, per_replica=50)
    fleet.run(60, arrivals=100)
    fleet.ready = 1
    fleet.run(4, arrivals=100)
    assert fleet.meter.rates.is_proven
    assert fleet.meter.rates.per_replica == pytest.approx(50, rel=0.05)


def test_too_much_to_do_ends_what_was_only_hoped() -> None:
    fleet = Fleet(ready=4, per_replica=2)
    fleet.run(1_200, arrivals=4)
    assert (fleet.meter.rates.per_replica or 0) > 4
    fleet.ready = 1
    fleet.run(4, arrivals=10)
    assert not fleet.meter.rates.is_proven
    assert fleet.meter.rates.per_replica == pytest.approx(2)


def test_nothing_is_learned_from_an_idle_group() -> None:
    fleet = Fleet(ready=2, per_replica=50)
    fleet.run(30, arrivals=300)
    fleet.ready = 0
    before = fleet.meter.rates.per_replica
    fleet.see(undelivered=0, at=fleet.seen.at + after(seconds=1))
    fleet.run(5_000, arrivals=0, looks_s=(20.0,))
    assert fleet.meter.rates.per_replica == before
    assert fleet.meter.rates.arrivals == pytest.approx(0, abs=0.01)


JUMPS: dict[str, dict[str, object]] = {
    "the counter went back": {"added": 3},
    "the counter is not known": {"added": None},
    "the lag is not known": {"is_exact": False},
    "the position was set back": {"undelivered": 900_000},
    "the position was set ahead": {"undelivered": 0},
    "the group was gone": {"exists": False, "is_exact": False},
    "the server's clock went back": {"at": owing().at - after(seconds=500)},
    "it is the same instant": {"at": owing().at},
}


@pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)
def test_what_was_learned_survives(jump: dict[str, object]) -> None:
    fleet = Fleet(ready=2, per_replica=50)
    fleet.see(undelivered=800_000)
    fleet.run(60, arrivals=120)
    known = fleet.seen
    arrivals = fleet.meter.rates.arrivals
    shift = {"at": known.at + after(seconds=1), **jump}
    if jump.get("at") == owing().at:
        shift = {"at": known.at}
    fleet.see(**shift)
    fleet.see(**{**shift, "at": fleet.seen.at + after(seconds=1)})
    assert fleet.meter.rates.per_replica == pytest.approx(50, rel=0.1)
    assert fleet.meter.rates.arrivals == pytest.approx(arrivals, rel=0.7)
    assert 0 <= fleet.meter.finished < 10**6


def test_looks_at_one_instant_change_nothing() -> None:
    fleet = Fleet(ready=2, per_replica=50)
    fleet.run(10, arrivals=120)
    before = fleet.meter
    fleet.see(undelivered=7)
    assert fleet.meter == before


def test_dead_letters_are_counted_and_are_no_work_done() -> None:
    fleet = Fleet(ready=2, per_replica=0)
    fleet.see(undelivered=100)
    for _ in range(10):
        fleet.see(
            undelivered=fleet.seen.undelivered - 4,
            dead_letters=fleet.seen.dead_letters + 3,
            at=fleet.seen.at + after(seconds=1),
        )
    assert fleet.meter.dead_lettered == pytest.approx(0.75 * fleet.meter.finished)
    assert fleet.meter.rates.per_replica == pytest.approx(0.5)
