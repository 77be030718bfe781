"""Which Leases count as alive members."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pelops.controller.members import DURATION, alive_members
from tests.builders import NOW


def lease(holder: str | None, *, age_s: float | None) -> dict[str, Any]:
    """A Lease that was renewed so long ago; None: never."""
    spec: dict[str, Any] = {"leaseDurationSeconds": 30}
    if holder is not None:
        spec["holderIdentity"] = holder
    if age_s is not None:
        renewed = NOW - timedelta(seconds=age_s)
        spec["renewTime"] = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"name": str(holder)}, "spec": spec}


@pytest.mark.parametrize(
    ("age_s", "alive"),
    [(0.0, True), (29.999, True), (30.0, True), (30.001, False), (86400.0, False), (None, False)],
)
def test_a_member_is_alive_until_its_lease_has_run_out(age_s: float | None, alive: bool) -> None:
    assert timedelta(seconds=30) == DURATION
    assert alive_members([lease("a", age_s=age_s)], NOW) == ({"a"} if alive else set())


def test_a_clock_that_runs_ahead_makes_no_member_dead() -> None:
    assert alive_members([lease("a", age_s=-20)], NOW) == {"a"}


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": ""}, None])
def test_a_lease_without_a_holder_is_nobodys(spec: dict[str, Any] | None) -> None:
    nobodys = {"metadata": {"name": "x"}, "spec": spec} if spec is not None else {"metadata": {}}
    assert alive_members([nobodys, lease(None, age_s=0)], NOW) == set()


def test_all_alive_members_count_once() -> None:
    leases = [lease("a", age_s=1), lease("b", age_s=2), lease("b", age_s=3), lease("c", age_s=99)]
    assert alive_members(leases, NOW) == {"a", "b"}
