"""Which processes certainly are no more (rules A1 to A3 of the recovery protocol)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from pelops.domain.recovery import Cutoff, Death, LivenessReason
from pelops.domain.workload import NodeObservation, PodObservation
from pelops.policy.recovery.liveness import combine
from tests.builders import NOW
from tests.pod_states import (
    SECOND,
    S,
    ago,
    container,
    ended,
    finished,
    former,
    judge,
    looping,
    of,
    restarted,
    running,
)

# --- a pod that is there


def test_a_finished_pod_with_all_containers_terminated_is_dead_now() -> None:
    cutoff = judge(finished(is_deleting=False, phase="Failed"))
    assert (cutoff.at, cutoff.reason) == (NOW, LivenessReason.FINISHED)


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        (of(restarted(50, 60), phase="Failed"), LivenessReason.NOT_REPORTED),
        (of(ended(), running(name="other"), phase="Succeeded"), LivenessReason.NOT_REPORTED),
        (of(phase="Failed"), LivenessReason.NOT_REPORTED),
        (of(restarted(50, 60), is_deleting=True), LivenessReason.ENDING),
        (of(running()), LivenessReason.ALIVE),
        (of(container(state="waiting", waiting_reason="ErrImagePull")), LivenessReason.ALIVE),
        (of(container()), LivenessReason.ALIVE),
        (of(), LivenessReason.NO_CONTAINER),
    ],
)
def test_a_phase_or_a_deletion_request_alone_proves_no_end(
    live: PodObservation, reason: LivenessReason
) -> None:
    cutoff = judge(live)
    assert (cutoff.at, cutoff.reason) == (None, reason)


@pytest.mark.parametrize(
    ("node", "has_cutoff"),
    [
        (NodeObservation(name="n1", is_ready=True), True),
        (None, True),
        (NodeObservation(name="n1", is_ready=False), False),
        (NodeObservation(name="n1", is_ready=None, exists=False), False),
    ],
)
def test_a_node_that_is_not_ready_gives_no_cutoff(
    node: NodeObservation | None, has_cutoff: bool
) -> None:
    cutoff = judge(of(restarted(50, 60)), node=node)
    assert (cutoff.at is not None) is has_cutoff


def test_the_cutoff_of_a_restarted_container_precedes_its_start() -> None:
    cutoff = judge(of(restarted(50, 51)))
    assert (cutoff.at, cutoff.reason) == (ago(50) - S, LivenessReason.RESTARTED)


def test_the_cutoff_of_a_restart_after_a_pause_follows_the_end() -> None:
    pause = 2 * (2 + 1)
    assert judge(of(restarted(50, 50 + pause))).at == ago(50) - S
    assert judge(of(restarted(50, 50 + pause + 1))).at == ago(50 + pause + 1) + SECOND + S


def test_a_start_that_was_watched_is_not_later_than_that() -> None:
    # A node whose clock is ahead by more than it may be.
    live = of(restarted(5, 6))
    assert judge(live, first_seen={"worker": ago(9)}).at == ago(9) - S
    assert judge(live, first_seen={"worker": ago(1)}).at == ago(5) - S


def test_a_time_in_the_future_proves_skew_and_gives_no_cutoff() -> None:
    assert judge(of(restarted(-2, 6))).at is not None
    for one in (restarted(-2.001, 6), ended(-3), looping(-3)):
        cutoff = judge(of(one))
        assert (cutoff.at, cutoff.reason) == (None, LivenessReason.CLOCK_SKEW)


def test_no_cutoff_lies_in_the_future() -> None:
    assert judge(of(looping(1))).at == NOW
    assert judge(of(restarted(-2, 60))).at == ago(60) + SECOND + S
    assert judge(of(restarted(-2, 3)), skew=timedelta()).at is None


def test_the_cutoff_of_a_crash_loop_follows_the_last_end() -> None:
    cutoff = judge(of(looping(8)))
    assert (cutoff.at, cutoff.reason) == (ago(8) + SECOND + S, LivenessReason.CRASH_LOOP)
    assert judge(of(looping(8, pause=None))).at == ago(8) + SECOND + S


def test_a_crash_loop_that_may_end_before_the_cutoff_does_not_count() -> None:
    for live, skew in ((looping(8, pause=1.0), S), (looping(8), timedelta(seconds=4))):
        assert judge(of(live), skew=skew).at == ago(8) - skew


def test_the_cutoff_of_an_ended_container_precedes_its_end() -> None:
    assert judge(of(ended(8))).at == ago(8) - S
    pulling = container(
        state="waiting",
        waiting_reason="ImagePullBackOff",
        last_finished=ago(8),
        last_exit_code=0,
    )
    assert judge(of(pulling)).at == ago(8) - S


def test_an_end_without_a_time_gives_no_cutoff() -> None:
    lost = container(state="terminated", exit_code=137, reason="ContainerStatusUnknown")
    assert judge(of(lost)).reason is LivenessReason.NOT_REPORTED
    assert judge(of(restarted(5, 6, started=None))).reason is LivenessReason.NOT_REPORTED


# --- several containers


def test_a_sidecar_that_restarts_says_nothing_of_the_named_reader() -> None:
    live = of(running(name="worker"), restarted(5, 6, name="proxy"))
    assert judge(live, container="worker").at is None
    assert judge(live, container="proxy").at == ago(5) - S


def test_without_a_name_every_container_must_have_restarted_and_the_smallest_counts() -> None:
    one, other = restarted(50, 51, name="a"), restarted(20, 21, name="b")
    assert judge(of(one, other)).at == ago(50) - S
    assert judge(of(one, running(name="b"))).at is None


def test_a_missing_container_gives_no_cutoff() -> None:
    assert judge(of(restarted(5, 6)), container="reader").reason is LivenessReason.NO_CONTAINER


# --- the worker's own word


def test_the_workers_record_of_its_start_is_exact() -> None:
    cutoff = judge(of(restarted(20, 21)), boot=ago(19))
    assert (cutoff.at, cutoff.reason) == (ago(19), LivenessReason.BOOTED)


@pytest.mark.parametrize("boot", [ago(-0.001), ago(30)])
def test_a_record_of_the_future_or_of_an_earlier_process_changes_nothing(boot: datetime) -> None:
    assert judge(of(restarted(20, 21)), boot=boot).at == ago(20) - S


def test_a_record_alone_proves_no_end() -> None:
    assert judge(of(running()), boot=ago(1)).at is None
    assert judge(of(running()), former(), boot=ago(1)).at is None


# --- a change of the master


def test_after_a_change_of_the_master_only_later_starts_count() -> None:
    live = of(restarted(20, 21))
    assert judge(live, master_since=ago(22)).at == ago(20) - S
    for since in (ago(21.999), ago(5)):
        cutoff = judge(live, master_since=since)
        assert (cutoff.at, cutoff.reason) == (None, LivenessReason.MASTER_CHANGED)
    assert judge(live, master_since=ago(21.999), first_seen={"worker": ago(3)}).at is None


def test_after_a_failover_a_start_counts_only_if_observed_later_too() -> None:
    live = of(restarted(2, 3))
    assert judge(live, master_since=ago(9)).at == ago(2) - S
    assert judge(live, master_since=ago(9), first_seen={"worker": ago(8)}).at is None


def test_after_a_failover_a_boot_record_counts_only_if_it_is_later() -> None:
    live = of(restarted(20, 21))
    assert judge(live, boot=ago(19), master_since=ago(19)).at == ago(19)
    assert judge(live, boot=ago(19), master_since=ago(18)).at is None


def test_a_change_of_the_master_brings_no_dead_pod_to_life() -> None:
    assert judge(None, former(last=finished()), master_since=NOW).at == NOW
    assert judge(finished(), master_since=NOW).at == NOW
    assert judge(of(looping(8)), master_since=ago(5)).at is None


# --- several pods


def test_a_consumer_of_several_pods_is_alive_if_any_is() -> None:
    def cutoff(at: datetime | None, death: Death = Death.PLANNED) -> Cutoff:
        reason = LivenessReason.GONE if at else LivenessReason.ALIVE
        return Cutoff(at=at, reason=reason, message="", death=death)

    assert combine([cutoff(ago(1)), cutoff(None)]).at is None
    assert combine([cutoff(ago(1)), cutoff(ago(2))]).at == ago(2)
    assert combine([cutoff(ago(1), Death.CRASHED), cutoff(ago(2))]).death is Death.CRASHED


def test_every_answer_says_why() -> None:
    cuts = [judge(of(running())), judge(None), judge(None, former()), judge(finished())]
    assert all(cutoff.message and "w-1" in cutoff.message for cutoff in cuts)
