"""Messages show counts, durations and sizes one way."""

from __future__ import annotations

import pytest

from pelops.domain.quantities import render_bytes, render_count, render_seconds


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
