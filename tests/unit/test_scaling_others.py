"""Who changed the replicas: a write by Pelops whose answer was lost counts as its own."""

from __future__ import annotations

from dataclasses import replace

from pelops.policy.scaling.decision import (
    Others,
    ScalingMemory,
    decide_replicas,
    record_try,
    record_write,
    remember_write,
    settle,
    watch_others,
)
from tests.builders import workload
from tests.scaling_cases import auto, owing

SEEN = workload(uid="u", wished=4)


def wrote(after: int, *, at: float) -> Others:
    """The memory of a write that was answered, and seen."""
    return record_write(Others(uid="u"), before=1, after=after, now=at)


def test_a_write_without_an_answer_counts_as_own_once_observed() -> None:
    others = wrote(4, at=0)
    for at, number in ((100.0, 6), (200.0, 8)):
        others = record_try(others, before=number - 2, after=number)
        others = watch_others(others, replace(SEEN, wished=number), now=at)
        assert (others.written, others.moves, others.is_paused) == (number, (), False)


def test_a_write_that_takes_effect_late_counts_as_own() -> None:
    others = record_try(wrote(4, at=0), before=4, after=6)
    others = watch_others(others, SEEN, now=100)  # not yet
    others = watch_others(others, replace(SEEN, wished=6), now=101)
    assert (others.written, others.moves) == (6, ())


def test_a_number_that_was_not_attempted_was_set_by_others() -> None:
    others = record_try(wrote(4, at=0), before=4, after=6)
    others = watch_others(others, replace(SEEN, wished=7), now=100)
    assert others.moves == (100.0,)


def test_an_answered_write_ends_the_doubt() -> None:
    others = record_try(wrote(4, at=0), before=4, after=6)
    others = record_write(others, before=4, after=5, now=1)
    others = watch_others(others, replace(SEEN, wished=6), now=100)
    assert others.moves == (100.0,)
    assert settle(others, 6, now=100) == 6


def test_policies_count_a_change_whose_answer_was_lost() -> None:
    memory = remember_write(ScalingMemory(others=Others(uid="u")), before=1, after=4, now=0)
    memory = replace(memory, others=record_try(memory.others, before=4, after=6))
    seen = replace(SEEN, wished=6)
    _, memory = decide_replicas(auto(), seen, owing(undelivered=500), memory, now=10)
    assert [change.by for change in memory.history.changes] == [3, 2]
