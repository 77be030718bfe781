"""How fast entries come and go, how long workers hold them, and what a worker can do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.capacity import FIRST_PATIENCE_S, Capacity, Interval
from pelops.policy.scaling.meter import HandlingTime, Meter
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


# --- How long workers hold an entry, estimated from numbers of the whole group alone


def watch(
    handling: HandlingTime, seconds: int, *, held: float, acknowledged: int, interval: float = 1.0
) -> HandlingTime:
    """The same look so many times."""
    handling = replace(handling)
    for _ in range(seconds):
        handling.add(held=held, acknowledged=acknowledged, seconds=interval)
    return handling


def test_it_is_what_is_held_for_each_entry_that_is_acknowledged() -> None:
    assert watch(HandlingTime(), 60, held=20, acknowledged=50).mean_s == pytest.approx(0.4)


def test_it_does_not_depend_on_how_often_one_looks() -> None:
    seldom = watch(HandlingTime(), 12, held=20, acknowledged=250, interval=5.0)
    assert seldom.mean_s == pytest.approx(0.4)


def test_too_few_entries_give_no_mean() -> None:
    assert watch(HandlingTime(), 4, held=1, acknowledged=1).mean_s is None
    assert watch(HandlingTime(), 6, held=1, acknowledged=1).mean_s == pytest.approx(1.0)


def test_long_jobs_take_as_long_as_they_do() -> None:
    found = HandlingTime()
    for _ in range(20):
        found = watch(found, 59, held=4, acknowledged=0)
        found = watch(found, 1, held=4, acknowledged=4)
    assert found.mean_s == pytest.approx(60, rel=0.01)


def test_failed_entries_do_not_count_as_long_work_without_traffic() -> None:
    quick = watch(HandlingTime(), 60, held=20, acknowledged=50)
    later = watch(quick, 3_600, held=20, acknowledged=0)
    assert later.mean_s == quick.mean_s
    again = watch(later, 30, held=40, acknowledged=5)
    assert quick.mean_s is not None
    assert again.mean_s is not None
    assert again.mean_s > 10 * quick.mean_s


def test_a_long_silence_counts_for_five_minutes_at_most() -> None:
    silent = watch(HandlingTime(), 1, held=1, acknowledged=0, interval=10_000)
    assert watch(silent, 1, held=1, acknowledged=10).mean_s == pytest.approx(30)


def test_work_that_became_quick_is_seen_to_be() -> None:
    slow = watch(HandlingTime(), 600, held=40, acknowledged=1)
    quick = watch(slow, 900, held=2, acknowledged=10)
    assert slow.mean_s is not None
    assert quick.mean_s is not None
    assert slow.mean_s > 10 > quick.mean_s


# --- What a worker can do, from observations of which workers hold entries


def work(**changes: object) -> Interval:
    """A second in which two of eight workers were busy, and finished 100 entries."""
    usual = Interval(
        seconds=1.0,
        finished=100,
        ready=8,
        busy=2.0,
        busy_most=2,
        is_saturated=False,
        has_room=True,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def learn(capacity: Capacity, seconds: int, **changes: object) -> Capacity:
    """The capacity after so many intervals of a second; the one given is not changed."""
    capacity = replace(capacity)
    for _ in range(seconds):
        capacity.learn(work(**changes))
    return capacity


def slow(capacity: Capacity, seconds: int) -> Capacity:
    """All eight have too much to do, and do 20 entries per second each."""
    return learn(capacity, seconds, finished=160, busy=8.0, busy_most=8, is_saturated=True)


def test_idle_workers_do_not_make_the_others_look_slow() -> None:
    capacity = learn(Capacity(), 60)
    assert capacity.per_replica == pytest.approx(50, rel=0.25)
    assert learn(capacity, 600, ready=20).per_replica == pytest.approx(50, rel=0.25)


def test_pods_that_do_not_read_yet_leave_the_capacity_unchanged() -> None:
    capacity = learn(Capacity(), 10, is_saturated=True)
    assert capacity.per_replica == pytest.approx(50)
    assert learn(capacity, 30, finished=0, busy=0.0, busy_most=0, is_saturated=True) == capacity


def test_a_slow_minute_is_measured_and_forgotten_when_workers_stand_idle() -> None:
    capacity = slow(learn(Capacity(), 60, is_saturated=True), 60)
    assert capacity.per_replica == pytest.approx(20, rel=0.05)
    assert (learn(capacity, 60).per_replica or 0) > 40


def test_never_idle_workers_return_to_the_best_rate_within_two_minutes() -> None:
    capacity = slow(learn(Capacity(), 60, is_saturated=True), 60)
    capacity = learn(capacity, 115, busy=8.0, busy_most=8)
    assert capacity.per_replica == pytest.approx(capacity.best)
    assert capacity.best == pytest.approx(50)
    assert learn(capacity, 3600, busy=8.0, busy_most=8).per_replica == capacity.per_replica


def hope(capacity: Capacity, seconds: int) -> Capacity:
    """Three workers that are always busy do 40 entries per second each, and nothing waits."""
    return learn(capacity, seconds, finished=120, ready=3, busy=3.0, busy_most=3)


def test_a_slow_minute_is_forgotten_where_nothing_was_ever_measured_before_it() -> None:
    before = hope(Capacity(), 240)
    assert before.proven is None
    capacity = slow(before, 60)
    assert capacity.per_replica == pytest.approx(20, rel=0.05)
    capacity = learn(capacity, 115, finished=120, busy=8.0, busy_most=8)
    assert capacity.per_replica == pytest.approx(before.per_replica, rel=0.05)


def test_an_estimate_that_was_too_high_is_dropped_and_retried_only_later() -> None:
    capacity = Capacity()
    for times in (1, 2, 4):
        capacity = hope(replace(capacity, wait_s=0.0), 400)
        assert (capacity.per_replica or 0) > 60
        capacity = learn(capacity, 2, finished=50, ready=1, busy=1.0, busy_most=1, has_room=False)
        assert capacity.per_replica == pytest.approx(40, rel=0.1)
        assert capacity.wait_s > (times - 0.1) * FIRST_PATIENCE_S
        assert (hope(capacity, 200).per_replica or 0) < 45


def test_workers_without_room_do_not_return_to_it() -> None:
    capacity = slow(learn(Capacity(), 60, is_saturated=True), 60)
    assert learn(capacity, 300, busy=8.0, busy_most=8, has_room=False).per_replica == pytest.approx(
        20, rel=0.05
    )


def test_work_that_is_not_saturated_never_lowers_the_capacity() -> None:
    capacity = learn(Capacity(), 20, is_saturated=True)
    found = learn(capacity, 600, finished=10, busy=8.0, busy_most=8, has_room=False)
    assert found.per_replica == capacity.per_replica


def test_a_raise_that_was_wrong_is_not_tried_again_at_once() -> None:
    capacity = learn(Capacity(), 20, is_saturated=True)
    for times in (1, 2, 4):
        capacity = learn(replace(capacity, wait_s=0.0), 60, finished=200)
        assert (capacity.per_replica or 0) > 70
        capacity = learn(capacity, 60, is_saturated=True)
        assert capacity.per_replica == pytest.approx(50)
        assert capacity.wait_s == times * FIRST_PATIENCE_S
        patient = learn(capacity, 60, finished=200)
        assert patient.per_replica == pytest.approx(50)


def test_a_position_that_was_moved_is_no_work() -> None:
    capacity = learn(Capacity(), 20, is_saturated=True)
    assert learn(capacity, 1, finished=100_000) == capacity
