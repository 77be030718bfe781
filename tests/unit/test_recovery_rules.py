"""Which failed attempts are counted for entries that were idle for too long, by what is known of
their owner."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from pelops.api import RecoverySpec
from pelops.domain.recovery import Cutoff, Death, LivenessReason, no_cutoff
from pelops.policy.recovery.processing_timeouts import (
    EVER,
    counts_attempt,
    decide_idle_death,
    decide_process_since,
    decide_processing_timeouts,
)
from tests.builders import NOW, later

KILLED = Cutoff(at=NOW, reason=LivenessReason.GONE, message="gone", death=Death.KILLED)


@pytest.mark.parametrize(
    ("cutoff", "wanted"),
    [
        pytest.param(None, Death.CRASHED, id="a name that is no pod's"),
        pytest.param(no_cutoff(LivenessReason.ALIVE, "runs"), Death.CRASHED, id="a live worker"),
        pytest.param(
            replace(KILLED, reason=LivenessReason.ALIVE), Death.CRASHED, id="alive once more"
        ),
        pytest.param(KILLED, Death.KILLED, id="killed from outside"),
        pytest.param(no_cutoff(LivenessReason.MAYBE_ALIVE, ""), Death.KILLED, id="an unseen end"),
        pytest.param(replace(KILLED, death=Death.CRASHED), Death.CRASHED, id="a crash"),
        pytest.param(replace(KILLED, death=Death.PLANNED), Death.CRASHED, id="a planned end"),
    ],
)
def test_an_idle_entry_counts_an_attempt_whatever_ended_its_worker(
    cutoff: Cutoff | None, wanted: Death
) -> None:
    assert decide_idle_death(cutoff) is wanted
    assert counts_attempt(decide_idle_death(cutoff))


@pytest.mark.parametrize(
    ("recovery", "unmatched", "unlocked"),
    [
        ({}, 300, None),
        ({"unmatchedConsumerTimeoutSeconds": 5}, 5, None),
        ({"locks": {}}, 300, 30),
        ({"locks": {"graceSeconds": 7}}, 300, 7),
        ({"locks": {"graceSeconds": 7}, "unmatchedConsumerTimeoutSeconds": 5}, 5, 7),
    ],
)
def test_locks_and_unmatched_consumers_have_a_timeout_each(
    recovery: dict[str, Any], unmatched: int, unlocked: int | None
) -> None:
    timeouts = decide_processing_timeouts(RecoverySpec.model_validate(recovery))

    assert timeouts.alive == timedelta(seconds=300)
    assert timeouts.unknown == timedelta(seconds=unmatched)
    assert timeouts.unlocked == (None if unlocked is None else timedelta(seconds=unlocked))


@pytest.mark.parametrize(
    ("recovery", "is_unknown", "is_unowned", "seconds"),
    [
        pytest.param({}, False, False, 300, id="a live pod"),
        pytest.param({}, True, False, 5, id="no pod of that name"),
        pytest.param({"locks": {"graceSeconds": 7}}, False, False, 7, id="a live pod, and locks"),
        pytest.param({"locks": {"graceSeconds": 7}}, True, False, 7, id="no pod, and locks"),
        pytest.param({}, True, True, 0, id="given back to the group"),
    ],
)
def test_invariant_2_the_timeout_of_an_entry_is_that_of_its_owner(
    recovery: dict[str, Any], is_unknown: bool, is_unowned: bool, seconds: int
) -> None:
    spec = RecoverySpec.model_validate({"unmatchedConsumerTimeoutSeconds": 5, **recovery})
    limit = decide_processing_timeouts(spec).limit(is_unknown=is_unknown, is_unowned=is_unowned)
    assert limit == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("cutoff", "master_since", "since"),
    [
        pytest.param(None, None, EVER, id="no pod of that name"),
        pytest.param(no_cutoff(LivenessReason.ALIVE, "runs"), None, EVER, id="a live worker"),
        pytest.param(KILLED, None, later(minutes=1), id="an earlier process has ended"),
        pytest.param(no_cutoff(LivenessReason.MAYBE_ALIVE, ""), None, None, id="an unseen end"),
        pytest.param(
            no_cutoff(LivenessReason.MASTER_CHANGED, ""),
            later(minutes=5),
            later(minutes=6),
            id="a process from before the change of the master",
        ),
    ],
)
def test_deliveries_count_for_the_present_process_a_minute_after_its_start(
    cutoff: Cutoff | None, master_since: datetime | None, since: datetime | None
) -> None:
    assert decide_process_since(cutoff, master_since) == since


def test_a_planned_end_alone_is_no_entrys_fault() -> None:
    assert [death for death in Death if not counts_attempt(death)] == [Death.PLANNED]
