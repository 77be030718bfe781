"""What scaling remembers from one look to the next, and what it makes of it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from pelops.policy.scaling.autoscaler import Autoscaler, next_observation
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.scaling.replica_writes import ReplicaWrites
from pelops.policy.status.reasons import Reason
from tests.builders import workload
from tests.scaling_cases import SECOND, after, auto, owing


class Group:
    """A resource that is looked at again and again, and written to."""

    def __init__(self, *, current: int, ready: int | None = None, **scaling: Any) -> None:
        self.spec = auto(**scaling)
        self.current = current
        self.ready = current if ready is None else ready
        self.now = SECOND
        self.autoscaler = Autoscaler()

    def look(
        self, backlog: Backlog | None, *, after_s: float = 1.0, **seen: Any
    ) -> ScalingDecision:
        """One look, and the write that it asks for."""
        self.now += after_s
        shown = workload(**{"wished": self.current, "ready": self.ready, **seen})
        decision = self.autoscaler.observe(self.spec, shown, backlog, now=self.now)
        if decision.is_change and decision.replicas is not None:
            self.autoscaler.record_write(
                before=decision.current, after=decision.replicas, now=self.now
            )
            self.current = decision.replicas
        return decision


def test_entries_that_no_look_ever_finds_keep_the_last_worker() -> None:
    group = Group(current=1)
    for second in range(300):
        group.look(owing(added=1_000 + second // 20))
    assert group.current == 1


def test_the_last_worker_goes_when_nothing_came_for_the_cool_down() -> None:
    group = Group(current=1, cooldownSeconds=30)
    looks = [group.look(owing()).replicas for _ in range(80)]
    assert looks.index(0) >= 30
    assert group.current == 0


def test_one_unknown_observation_restarts_the_cooldown() -> None:
    group = Group(current=1, cooldownSeconds=100)
    for second in range(190):
        group.look(None if second == 95 else owing())
    assert group.current == 1


def test_an_outage_ends_no_worker_right_after_it() -> None:
    group = Group(current=6)
    for _ in range(200):
        group.look(None)
    assert group.look(owing(undelivered=10)).replicas == 6


def test_workers_that_never_become_ready_stop_growth_with_a_message() -> None:
    group = Group(current=1, ready=0, maxReplicas=50)
    reasons = [group.look(owing(undelivered=20_000)).reason for _ in range(200)]
    assert reasons[-1] is Reason.SCALING_INEFFECTIVE
    assert reasons.index(Reason.SCALING_INEFFECTIVE) == 120
    message = group.look(owing(undelivered=20_000)).message
    assert message.endswith(
        "because only 0 of 50 workers are ready, and none became ready in the last 120 s: see the "
        "condition WorkloadReady"
    )


def test_workers_that_become_ready_slowly_do_not_end_growth() -> None:
    group = Group(current=1, ready=0, maxReplicas=50)
    for second in range(400):
        group.ready = min(group.current, second // 100)
        assert group.look(owing(undelivered=20_000)).reason is not Reason.SCALING_INEFFECTIVE


def test_ineffective_workers_may_become_fewer() -> None:
    group = Group(current=8, ready=2, maxReplicas=8)
    for _ in range(200):
        group.look(owing(undelivered=800))
    for _ in range(70):
        group.look(owing(undelivered=300))
    assert group.current == 3


def test_a_hand_that_moves_the_replicas_once_is_corrected() -> None:
    group = Group(current=1)
    group.look(owing(undelivered=400))
    for _ in range(20):
        group.look(owing(undelivered=400))
    group.current = 1
    for _ in range(20):
        decision = group.look(owing(undelivered=400))
    assert (group.current, decision.reason) == (4, Reason.SCALED)


def test_two_changes_by_others_suspend_scaling_for_ten_minutes() -> None:
    group = Group(current=1)
    for _ in range(2):
        for _ in range(20):
            group.look(owing(undelivered=400))
        group.current = 2
    decision = group.look(owing(undelivered=400))
    assert (decision.replicas, decision.reason) == (None, Reason.SCALED_BY_OTHERS)
    assert decision.message == (
        "Another controller or user changed the replicas of Deployment shop/order-workers twice "
        "within 10 minutes after Pelops had set them: Pelops does not change them for 10 minutes. "
        "Stop the other controller or user (an autoscaler, spec.replicas in Git, a script), or set "
        "spec.scaling.mode: Disabled"
    )
    assert group.look(owing(undelivered=400), after_s=598).replicas is None
    group.look(owing(undelivered=400))
    for _ in range(20):
        group.look(owing(undelivered=400))
    assert group.current == 4


def test_two_moves_far_apart_are_no_fight() -> None:
    group = Group(current=1)
    for _ in range(4):
        for _ in range(30):
            decision = group.look(owing(undelivered=400), after_s=20.5)
            group.ready = group.current
            assert decision.reason is not Reason.SCALED_BY_OTHERS
        group.current = 2


def test_an_observation_from_before_the_write_is_no_change_by_others() -> None:
    group = Group(current=1)
    group.look(owing(undelivered=400))
    stale = group.look(owing(undelivered=400), wished=1)
    assert not stale.is_change
    before = copy.deepcopy(group.autoscaler)
    group.autoscaler.record_write(before=1, after=4, now=group.now)
    assert group.autoscaler == before
    group.look(owing(undelivered=400), after_s=16)
    assert group.autoscaler.writes.foreign == ()


def test_a_look_that_is_two_writes_old_is_no_move_of_others() -> None:
    group = Group(current=1)
    group.look(owing(undelivered=200))
    group.look(owing(undelivered=300))
    assert not group.look(owing(undelivered=300), wished=1).is_change
    assert group.autoscaler.writes.foreign == ()


def test_a_recreated_workload_is_no_change_by_others() -> None:
    group = Group(current=1)
    for uid in ("a", "b", "c", "d"):
        group.current = 1
        for _ in range(20):
            decision = group.look(owing(undelivered=400), uid=uid)
    assert (group.current, decision.reason) == (4, Reason.SCALED)


def test_an_inexact_lag_adds_workers_only_after_all_are_ready() -> None:
    group = Group(current=2, ready=1, backlogPerReplica=1_000)
    unknown = owing(undelivered=500, is_exact=False)
    for _ in range(100):
        group.look(unknown)
    assert group.current == 2
    group.ready = 2
    replicas = [group.look(unknown).replicas for _ in range(17)]
    assert (replicas[13], replicas[16]) == (2, 3)


def test_handlers_that_failed_do_not_keep_workers_of_quick_entries() -> None:
    group = Group(current=8)
    for second in range(110):
        traffic = min(second, 30)
        decision = group.look(
            owing(held=20, added=traffic * 100, at=owing().at + after(seconds=second))
        )
        assert decision.only_at_work or second < 2
    assert group.current == 1


def test_a_group_with_an_inexact_lag_still_grows() -> None:
    group = Group(current=1, maxReplicas=20, backlogPerReplica=1_000)
    for _ in range(150):
        group.look(owing(undelivered=1_000, is_exact=False))
        group.ready = group.current
    assert group.current == 20


# --- Who changed the replicas: a write by Pelops whose answer was lost counts as its own


SEEN = workload(uid="u", wished=4)


def wrote(after: int, *, at: float) -> ReplicaWrites:
    """A write that was answered, and seen."""
    writes = ReplicaWrites(uid="u")
    writes.record(before=1, after=after, now=at)
    return writes


def test_a_write_without_an_answer_counts_as_own_once_observed() -> None:
    writes = wrote(4, at=0)
    for at, number in ((100.0, 6), (200.0, 8)):
        writes.record_unanswered(before=number - 2, after=number)
        assert writes.observe(replace(SEEN, wished=number), now=at) == 2
        assert (writes.written, writes.foreign, writes.is_paused) == (number, (), False)


def test_a_write_that_takes_effect_late_counts_as_own() -> None:
    writes = wrote(4, at=0)
    writes.record_unanswered(before=4, after=6)
    assert writes.observe(SEEN, now=100) == 0, "not yet"
    assert writes.observe(replace(SEEN, wished=6), now=101) == 2
    assert (writes.written, writes.foreign) == (6, ())


def test_a_number_that_was_not_attempted_was_set_by_others() -> None:
    writes = wrote(4, at=0)
    writes.record_unanswered(before=4, after=6)
    assert writes.observe(replace(SEEN, wished=7), now=100) == 0
    assert writes.foreign == (100.0,)


def test_an_answered_write_ends_the_doubt() -> None:
    writes = wrote(4, at=0)
    writes.record_unanswered(before=4, after=6)
    writes.record(before=4, after=5, now=1)
    assert writes.observe(replace(SEEN, wished=6), now=100) == 0
    assert writes.foreign == (100.0,)
    assert writes.current(6, now=100) == 6


def test_policies_count_a_change_whose_answer_was_lost() -> None:
    autoscaler = Autoscaler(writes=ReplicaWrites(uid="u"))
    autoscaler.record_write(before=1, after=4, now=0)
    autoscaler.writes.record_unanswered(before=4, after=6)
    autoscaler.observe(auto(), replace(SEEN, wished=6), owing(undelivered=500), now=10)
    assert [change.by for change in autoscaler.history.changes] == [3, 2]


# --- Groups with work are looked at often, idle ones seldom


# Each is (backlog, what differs from an idle group at zero that nothing wakes, seconds).
PACES: dict[str, tuple[Backlog | None, dict[str, Any], float]] = {
    "the backlog is not empty": (owing(undelivered=1), {"replicas": 3}, 1.0),
    "something is held": (owing(held=1), {"replicas": 3}, 1.0),
    "more run than the least": (owing(), {"replicas": 2, "least": 1}, 1.0),
    "the number is not known": (owing(is_exact=False), {}, 1.0),
    "the group is missing": (owing(exists=False, is_exact=False), {}, 1.0),
    "zero, and nothing wakes us": (owing(), {}, 2.0),
    "zero, and an entry wakes us": (owing(), {"is_watched": True}, 20.0),
    "idle at the least": (owing(), {"replicas": 1, "least": 1}, 2.0),
    "idle at the least for a while": (
        owing(),
        {"replicas": 1, "least": 1, "idle_observations": 4},
        4.0,
    ),
    "idle at the least for long": (
        owing(),
        {"replicas": 1, "least": 1, "idle_observations": 999},
        5.0,
    ),
    "Redis does not answer": (None, {"replicas": 3}, 2.0),
}


@pytest.mark.parametrize("case", PACES.values(), ids=PACES)
def test_the_next_look_follows_need(case: tuple[Backlog | None, dict[str, Any], float]) -> None:
    backlog, given, seconds = case
    usual = {"replicas": 0, "least": 0, "idle_observations": 0, "is_watched": False}
    assert next_observation(backlog, **{**usual, **given}) == seconds
