"""What scaling remembers from one look to the next, and what it makes of it."""

from __future__ import annotations

import copy
from typing import Any

from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.decision import ScalingDecision
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
