"""Which lag can be believed."""

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.observation import judge_lag


@pytest.mark.parametrize(
    ("reported", "delivered", "generated", "believed"),
    [
        (5, EntryId(1), EntryId(9), 5),
        (0, EntryId(1), EntryId(9), 0),
        (None, EntryId(1), EntryId(9), None),
        (-76, EntryId(1), EntryId(9), None),
        (0, EntryId(10), EntryId(9), None),  # ahead of the stream: new entries are skipped
        (None, EntryId(9), EntryId(9), 0),  # at its very end: nothing can be owed
        (-76, EntryId(9), EntryId(9), 0),
        (None, EntryId.MIN, EntryId.MIN, 0),
    ],
)
def test_a_lag_is_believed_only_when_it_can_be(
    reported: int | None, delivered: EntryId, generated: EntryId, believed: int | None
) -> None:
    assert judge_lag(reported, last_delivered_id=delivered, last_generated_id=generated) == believed
