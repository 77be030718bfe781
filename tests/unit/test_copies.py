"""What became of the copies of a redrive, from two observations of the stream."""

import pytest

from pelops.domain.entry_id import EntryId
from pelops.policy.redrive.copies import CopiesObservation, StreamCounters, compare_observations


def at(position: int, *, removed: int, first: int) -> StreamCounters:
    return StreamCounters(
        position=EntryId(position),
        added=20,
        length=20 - removed,
        first=EntryId(first),
        deleted=EntryId.MIN,
    )


@pytest.mark.parametrize(("requeued", "unknown"), [(0, 3), (1, 4), (9, 5)])
def test_a_requeued_copy_can_hide_one_that_was_trimmed(requeued: int, unknown: int) -> None:
    former = CopiesObservation(stream=at(100, removed=0, first=1), moved=5, undelivered=5)
    end = at(200, removed=7, first=150)
    look = compare_observations(
        former,
        begin=end,
        end=end,
        first=EntryId(101),
        moved=5,
        undelivered=2,
        requeued=requeued,
        kept=0,
    )
    assert (look.lost, look.unknown) == (0, unknown)
