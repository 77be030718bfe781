"""Which pods that went are certainly dead, and what that says of a successor."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pelops.domain.recovery import LivenessReason
from pelops.domain.workload import NodeObservation, PodObservation
from tests.builders import NOW
from tests.pod_states import (
    GRACE_S,
    LONG,
    S,
    ago,
    container,
    ended,
    finished,
    former,
    judge,
    of,
    restarted,
    running,
)

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
