"""Which processes certainly are no more (rules A1 to A3 of the protocol), and how they ended."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from pelops.domain.recovery import Cutoff, Death, LivenessReason
from pelops.domain.workload import NodeObservation, PodObservation
from pelops.policy.recovery.liveness import combine, could_be_dead, is_end
from tests.builders import NOW
from tests.pod_states import (
    GRACE_S,
    LONG,
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


# --- Which pods that went are certainly dead, and what that says of a successor


# --- a pod that no longer exists


def test_a_pod_that_ended_before_it_went_is_dead_now() -> None:
    cutoff = judge(None, former(last=finished()))
    assert (cutoff.at, cutoff.reason) == (NOW, LivenessReason.GONE)


@pytest.mark.parametrize(
    "last",
    [
        None,
        of(running(), is_deleting=True),
        of(ended(), running(name="second"), phase="Failed"),
        of(ended(), phase="Running", is_deleting=True),
        of(phase="Failed"),
        finished(is_collected=True),
        of(ended(), container("never-reported"), phase="Failed"),
    ],
    ids=[
        "nobody saw it",
        "a forced deletion",
        "one container runs",
        "it may have started again",
        "no container was reported",
        "the garbage collector wrote its phase",
        "a container was never reported",
    ],
)
def test_a_pod_whose_end_was_not_observed_may_be_alive(last: PodObservation | None) -> None:
    cutoff = judge(None, former(last=last))
    assert (cutoff.at, cutoff.reason) == (None, LivenessReason.MAYBE_ALIVE)


READY = NodeObservation(name="n1", is_ready=True)
NODES: dict[str, tuple[NodeObservation | None, bool]] = {
    "its node is Ready": (READY, True),
    "its node has been Ready for long": (
        NodeObservation(name="n1", is_ready=True, ready_since=ago(LONG + 2)),
        True,
    ),
    "its node came back just now": (
        NodeObservation(name="n1", is_ready=True, ready_since=ago(LONG)),
        False,
    ),
    "its node is NotReady": (NodeObservation(name="n1", is_ready=False), False),
    "its node never said": (NodeObservation(name="n1", is_ready=None), False),
    "its node is deleted": (NodeObservation(name="n1", is_ready=None, exists=False), True),
    "its node is out of service": (
        NodeObservation(name="n1", is_ready=False, is_out_of_service=True),
        True,
    ),
    "nobody knows its node": (None, False),
}


@pytest.mark.parametrize("case", NODES.values(), ids=NODES)
def test_a_vanished_pod_is_dead_once_its_node_must_have_ended_it(
    case: tuple[NodeObservation | None, bool],
) -> None:
    node, is_dead = case
    cutoff = judge(None, former(absent_since=ago(LONG), node=node))
    assert cutoff.at == (NOW if is_dead else None)
    assert cutoff.reason is (LivenessReason.VANISHED if is_dead else LivenessReason.MAYBE_ALIVE)


def test_a_vanished_pod_may_be_alive_until_a_silent_node_is_noticed() -> None:
    early = former(absent_since=ago(LONG - 0.001))
    assert judge(None, early).at is None
    assert judge(None, former(absent_since=ago(LONG))).at == NOW
    assert judge(None, former(absent_since=ago(LONG), grace_s=GRACE_S + 1)).at is None


def test_a_vanished_pod_is_judged_again_after_the_required_absence() -> None:
    early = judge(None, former(absent_since=ago(LONG - 7)))
    assert early.again_at == NOW + timedelta(seconds=7)
    # From then on its node decides, and no time is known.
    late = judge(None, former(absent_since=ago(LONG), node=NODES["its node is NotReady"][0]))
    assert (late.at, late.again_at) == (None, None)


def test_a_pod_of_an_unknown_node_is_dead_if_all_are_ready() -> None:
    anywhere = former(absent_since=ago(LONG), node=None, are_all_nodes_ready=True)
    assert judge(None, anywhere).at == NOW


def test_a_pod_that_was_never_observed_gives_no_cutoff() -> None:
    assert judge(None).reason is LivenessReason.NEVER_SEEN


# --- a pod of the same name


def test_the_cutoff_of_a_replaced_pod_precedes_its_successors_start() -> None:
    cutoff = judge(of(running(20), uid="pod-2"), former(last=finished()))
    assert (cutoff.at, cutoff.reason) == (ago(20) - S, LivenessReason.REPLACED)


def test_the_cutoff_of_an_unstarted_successor_precedes_its_creation() -> None:
    live = of(container(state="waiting"), uid="pod-2", created=ago(4))
    assert judge(live, former(last=finished())).at == ago(4) - S


def test_a_successor_says_nothing_while_the_former_one_may_live() -> None:
    for live in (of(running(20)), of(restarted(20, 21)), finished()):
        cutoff = judge(live, former(last=finished()), former(uid="pod-0"))
        assert (cutoff.at, cutoff.reason) == (None, LivenessReason.MAYBE_ALIVE)


def test_a_succession_that_was_proven_once_stays_proven() -> None:
    assert judge(of(running(20)), has_proven_formers=True).at == ago(20) - S


# --- How processes of a pod ended, and which change of a pod is an end


DEATHS: dict[str, tuple[Cutoff, Death]] = {
    "deleted": (judge(None, former(last=finished(deletion_requested=ago(11)))), Death.PLANNED),
    "deleted, and it ended within the second": (
        judge(None, former(last=finished(deletion_requested=ago(9)))),
        Death.PLANNED,
    ),
    "it exited when asked, on a slower clock": (
        judge(None, former(last=finished(deletion_requested=ago(8)))),
        Death.PLANNED,
    ),
    "it crashed, and then was deleted": (
        judge(
            None,
            former(last=finished(containers=(ended(10, 1),), deletion_requested=ago(8))),
        ),
        Death.CRASHED,
    ),
    "it had to be killed at the end of its grace": (
        judge(
            None, former(last=finished(containers=(ended(10, 137),), deletion_requested=ago(40)))
        ),
        Death.PLANNED,
    ),
    "evicted": (judge(finished(is_disrupted=True, phase="Failed")), Death.PLANNED),
    "crashed": (judge(of(restarted(5, 6, 1))), Death.CRASHED),
    "ended by itself": (judge(of(restarted(5, 6, 0))), Death.CRASHED),
    "out of memory": (judge(of(restarted(5, 6, 137, last_reason="OOMKilled"))), Death.CRASHED),
    "killed": (judge(of(restarted(5, 6, 137, last_reason="Error"))), Death.KILLED),
    "vanished": (
        judge(None, former(absent_since=ago(LONG), last=of(running()))),
        Death.KILLED,
    ),
    "vanished, and only remembered": (judge(None, former(absent_since=ago(LONG))), Death.KILLED),
    "deleted by force": (
        judge(
            None,
            former(absent_since=ago(LONG), last=of(running(), deletion_requested=ago(LONG))),
        ),
        Death.PLANNED,
    ),
    "in a crash loop": (judge(of(looping(8))), Death.CRASHED),
    "replaced": (
        judge(of(running(5)), former(last=finished(deletion_requested=ago(11)))),
        Death.PLANNED,
    ),
    "restarted after it replaced another": (
        judge(of(restarted(5, 6)), former(last=finished(deletion_requested=ago(11)))),
        Death.CRASHED,
    ),
}


@pytest.mark.parametrize("case", DEATHS.values(), ids=DEATHS)
def test_the_kind_of_an_end_follows_from_its_cause(case: tuple[Cutoff, Death]) -> None:
    cut, death = case
    assert cut.at is not None
    assert cut.death is death


# --- when to look, and when at once


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (of(running()), False),
        (of(running(), is_deleting=True), False),
        (of(container(state="waiting")), False),
        (of(restarted(5, 6)), True),
        (of(looping(5)), True),
        (of(ended()), True),
        (of(phase="Failed"), True),
    ],
)
def test_only_a_pod_that_may_have_ended_is_looked_at(live: PodObservation, expected: bool) -> None:
    assert could_be_dead(live) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (of(running()), of(ended()), True),
        (of(running()), of(looping(1)), True),
        (of(running()), of(restarted(1, 2)), True),
        (of(ended()), of(looping(1)), True),
        (of(container(state="waiting")), of(ended()), True),
        (of(running()), of(running(), phase="Failed"), True),
        (of(running()), of(running(), is_ready=False), False),
        (of(running()), of(running(), is_deleting=True), False),
        (of(container(state="waiting")), of(running()), False),
        (of(), of(restarted(1, 2)), False),
        (of(restarted(1, 2)), of(restarted(1, 2)), False),
    ],
)
def test_an_end_is_worth_a_scan(
    before: PodObservation, after: PodObservation, expected: bool
) -> None:
    assert is_end(before, after) is expected
