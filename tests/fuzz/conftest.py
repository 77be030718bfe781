"""What every fuzz test reports to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fuzz.tally import Tally


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Call it once, when the test has done what it does."""
    return Tally(record_property)
