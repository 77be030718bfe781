"""Groups with work are looked at often, idle ones seldom."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.policy.scaling.autoscaler import next_observation
from pelops.policy.scaling.backlog import Backlog
from tests.scaling_cases import owing

# Each is (backlog, what differs from an idle group at zero that nothing wakes, seconds).
PACES: dict[str, tuple[Backlog | None, dict[str, Any], float]] = {
    "the backlog is not empty": (owing(undelivered=1), {"replicas": 3}, 1.0),
    "something is held": (owing(held=1), {"replicas": 3}, 1.0),
    "more run than the least": (owing(), {"replicas": 2, "least": 1}, 1.0),
    "the number is not known": (owing(is_exact=False), {}, 1.0),
    "the group is missing": (owing(exists=False, is_exact=False), {}, 1.0),
    "zero, and nothing wakes us": (owing(), {}, 2.0),
    "zero, and an entry wakes us": (owing(), {"is_watched": True}, 20.0),
    "idle at the least": (owing(), {"replicas": 1, "least": 1}, 2.0),
    "idle at the least for a while": (
        owing(),
        {"replicas": 1, "least": 1, "idle_observations": 4},
        4.0,
    ),
    "idle at the least for long": (
        owing(),
        {"replicas": 1, "least": 1, "idle_observations": 999},
        5.0,
    ),
    "Redis does not answer": (None, {"replicas": 3}, 2.0),
}


@pytest.mark.parametrize("case", PACES.values(), ids=PACES)
def test_the_next_look_follows_need(case: tuple[Backlog | None, dict[str, Any], float]) -> None:
    backlog, given, seconds = case
    usual = {"replicas": 0, "least": 0, "idle_observations": 0, "is_watched": False}
    assert next_observation(backlog, **{**usual, **given}) == seconds
