"""What is charged to entries that were idle for too long, by what is known of their owner."""

from dataclasses import replace

import pytest

from pelops.domain.liveness import Cut, Death, LivenessReason, no_cut
from pelops.policy.recovery.stuck import decide_idle_death, is_charged
from tests.builders import NOW

KILLED = Cut(at=NOW, reason=LivenessReason.GONE, message="gone", death=Death.KILLED)


@pytest.mark.parametrize(
    ("cut", "wanted"),
    [
        pytest.param(None, Death.CRASHED, id="a name that is no pod's"),
        pytest.param(no_cut(LivenessReason.ALIVE, "runs"), Death.CRASHED, id="a live worker"),
        pytest.param(
            replace(KILLED, reason=LivenessReason.ALIVE), Death.CRASHED, id="alive once more"
        ),
        pytest.param(KILLED, Death.KILLED, id="killed from outside"),
        pytest.param(no_cut(LivenessReason.MAYBE_ALIVE, ""), Death.KILLED, id="an unseen end"),
        pytest.param(replace(KILLED, death=Death.CRASHED), Death.CRASHED, id="a crash"),
        pytest.param(replace(KILLED, death=Death.PLANNED), Death.CRASHED, id="a planned end"),
    ],
)
def test_an_idle_entry_is_charged_and_its_worker_excused_only_if_killed(
    cut: Cut | None, wanted: Death
) -> None:
    assert decide_idle_death(cut) is wanted
    assert is_charged(decide_idle_death(cut))


def test_a_planned_end_alone_is_no_entrys_fault() -> None:
    assert [death for death in Death if not is_charged(death)] == [Death.PLANNED]
