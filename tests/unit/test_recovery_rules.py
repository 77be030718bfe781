"""Which failed attempts are counted for entries that were idle for too long, by what is known of
their owner."""

from dataclasses import replace

import pytest

from pelops.domain.recovery import Cutoff, Death, LivenessReason, no_cutoff
from pelops.policy.recovery.processing_timeouts import counts_attempt, decide_idle_death
from tests.builders import NOW

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
def test_an_idle_entry_is_charged_and_its_worker_excused_only_if_killed(
    cutoff: Cutoff | None, wanted: Death
) -> None:
    assert decide_idle_death(cutoff) is wanted
    assert counts_attempt(decide_idle_death(cutoff))


def test_a_planned_end_alone_is_no_entrys_fault() -> None:
    assert [death for death in Death if not counts_attempt(death)] == [Death.PLANNED]
