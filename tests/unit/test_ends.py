"""How processes of a pod ended, and which change of a pod is an end."""

from __future__ import annotations

import pytest

from pelops.domain.recovery import Cutoff, Death
from pelops.domain.workload import PodObservation
from pelops.policy.recovery.liveness import could_be_dead, is_end
from tests.pod_states import (
    LONG,
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
