"""Entry IDs compare and step as Redis does it."""

import pytest

from pelops.domain.entry_id import EntryId, parse_entry_id, render_entry_id
from pelops.errors import InvalidSpec

LARGEST = 2**64 - 1


def test_an_id_is_read_and_written_back() -> None:
    assert render_entry_id(parse_entry_id(b"1526919030474-55")) == "1526919030474-55"


def test_milliseconds_alone_mean_the_first_entry_of_them() -> None:
    assert parse_entry_id("1526919030474") == EntryId(1526919030474, 0)


def test_ids_are_ordered_as_numbers_and_not_as_text() -> None:
    assert EntryId(9, 10) < EntryId(10, 2) < EntryId(10, 10)


@pytest.mark.parametrize(
    ("entry_id", "before"),
    [
        (EntryId(5, 3), EntryId(5, 2)),
        (EntryId(5, 0), EntryId(4, LARGEST)),
        (EntryId.MIN, EntryId.MIN),
        (EntryId.MAX, EntryId(LARGEST, LARGEST - 1)),
    ],
)
def test_before_an_id_comes_the_greatest_smaller_one(entry_id: EntryId, before: EntryId) -> None:
    assert entry_id.before() == before


@pytest.mark.parametrize(
    "text",
    ["", "-", "1-", "-1", "1-2-3", "+1-1", " 1-1", "1_0-1", "$", "x", "1-*", "٣-1", "9" * 5000],
)
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="not an entry ID"):
        parse_entry_id(text)


def test_an_id_beyond_64_bits_is_refused() -> None:
    assert parse_entry_id(f"{LARGEST}-{LARGEST}") == EntryId.MAX
    with pytest.raises(InvalidSpec, match="out of range"):
        parse_entry_id(f"{LARGEST + 1}-0")
