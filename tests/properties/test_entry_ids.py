"""Entry IDs compare and count as Redis' do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.redis_core import LARGEST_PART, EntryId, parse_entry_id

parts = st.integers(min_value=0, max_value=LARGEST_PART)
ids = st.builds(EntryId, parts, parts)


@given(ids)
def test_an_id_survives_being_written_and_read(entry_id: EntryId) -> None:
    assert parse_entry_id(str(entry_id)) == entry_id
    assert parse_entry_id(str(entry_id).encode()) == entry_id


@given(ids)
def test_an_id_lies_between_its_neighbours(entry_id: EntryId) -> None:
    assert entry_id.before() < entry_id or entry_id == EntryId.MIN
    assert entry_id < entry_id.after() or entry_id == EntryId.MAX
    if entry_id != EntryId.MAX:
        assert entry_id.after().before() == entry_id


def test_the_sequence_number_may_be_left_out() -> None:
    assert parse_entry_id("5") == EntryId(5, 0)
    assert parse_entry_id("5", missing_seq=LARGEST_PART) == EntryId(5, LARGEST_PART)


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1-2-3", "1.5", f"{2**64}-0", "0x1-0"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an entry ID"):
        parse_entry_id(text)
