"""How long a failure is waited out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.backoff import backoff_s


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
