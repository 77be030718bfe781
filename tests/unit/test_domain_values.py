"""Entry IDs, backoff, and how messages show numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.backoff import backoff_s
from pelops.domain.entry_id import EntryId, parse_entry_id, render_entry_id
from pelops.domain.quantities import render_bytes, render_count, render_seconds
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


# --- Messages show counts, durations and sizes one way


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 entries"), (1, "1 entry"), (1_240, "1,240 entries")]
)
def test_a_count_has_its_noun_and_separators(number: int, shown: str) -> None:
    assert render_count(number, "entry", "entries") == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.5, "0.5 s"),
        (300, "300 s"),
        (3_600, "3,600 s"),
        (5_400, "5,400 s"),
        (7_200, "2 hours"),
        (86_400, "1 day"),
        (129_600, "36 hours"),
        (1_209_600, "14 days"),
    ],
)
def test_a_duration_is_shown_in_the_largest_unit_that_is_exact(seconds: float, shown: str) -> None:
    assert render_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [(1, "1 byte"), (1_500, "1,500 bytes"), (8_388_608, "8 MiB"), (8_000_000, "8,000,000 bytes")],
)
def test_a_size_is_shown_in_the_largest_unit_that_is_exact(size: int, shown: str) -> None:
    assert render_bytes(size) == shown


# --- How long a failure is waited out


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 2), (2, 6), (3, 18), (4, 20), (10**6, 20)]
)
def test_each_failure_waits_longer_up_to_the_longest(failures: int, seconds: float) -> None:
    assert backoff_s(failures, first_s=2, longest_s=20, factor=3) == seconds


def test_who_does_not_wait_at_first_never_waits() -> None:
    assert backoff_s(10**6, first_s=0, longest_s=20) == 0


@given(st.integers(-5, 10**9), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 1e3))
def test_no_wait_is_negative_or_too_long(
    failures: int, first_s: float, longest_s: float, factor: float
) -> None:
    assert (
        0 <= backoff_s(failures, first_s=first_s, longest_s=longest_s, factor=factor) <= longest_s
    )
