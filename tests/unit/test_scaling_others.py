"""Who changed the replicas: a write by Pelops whose answer was lost counts as its own."""

from __future__ import annotations

from dataclasses import replace

from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.replica_writes import ReplicaWrites
from tests.builders import workload
from tests.scaling_cases import auto, owing

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
