"""The numbers of docs/guides/scaling.md are those that the code gives."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest

from pelops.api.group.scaling import ScalingSpec
from pelops.policy.scaling.decision import ScalingMemory, decide_replicas, remember_write
from pelops.policy.scaling.demand import judge_demand
from pelops.policy.scaling.measurement import Capacity, Rates, WorkDone, learn_capacity
from tests.builders import workload
from tests.scaling_cases import after, auto, owing

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "scaling.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    lines = iter(PAGE.splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            next(lines)
            return [
                [cell.strip().replace(",", "") for cell in row.strip("|").split("|")]
                for row in iter(lambda: next(lines), "")
            ]
    raise AssertionError(f"docs/guides/scaling.md has no table of {heading}")


def number(cell: str) -> float | None:
    return None if cell == "-" else float(cell)


@pytest.mark.parametrize("row", rows("undelivered"), ids=" ".join)
def test_a_worked_example_is_what_the_code_does(row: list[str]) -> None:
    undelivered, pending, ready = map(int, row[:3])
    within = number(row[5])
    scaling = ScalingSpec(drain_within_seconds=None if within is None else int(within))
    rates = Rates(arrivals=number(row[3]), per_replica=number(row[4]), is_proven=True)
    backlog = owing(undelivered=undelivered, held=pending)
    demand = judge_demand(scaling, backlog, rates, ready=ready)
    found = (demand.by_backlog, demand.by_drain, demand.by_arrivals, demand.highest)
    assert [None if one is None else ceil(one) for one in found] == [
        number(cell) for cell in row[6:]
    ]


def test_the_story_of_the_rate_of_a_worker_is_true() -> None:
    capacity = Capacity()
    for row in rows("for so many seconds"):
        busy, waits = float(row[2]), row[4] == "yes"
        work = WorkDone(
            seconds=1.0,
            finished=int(row[3]),
            ready=int(row[1]),
            busy=busy,
            busy_most=ceil(busy),
            is_saturated=waits,
            has_room=not waits,
        )
        for _ in range(int(row[0])):
            capacity = learn_capacity(capacity, work)
        assert round(capacity.per_replica or 0) == int(row[5])


def test_the_story_of_ten_thousand_entries_is_true() -> None:
    reported = {int(row[0]): (int(row[1]), int(row[3])) for row in rows("second")}
    spec, memory, replicas, owed = auto(maxReplicas=20), ScalingMemory(), 0, 10_000
    for second in range(max(reported) + 1):
        backlog = owing(undelivered=owed, at=owing().at + after(seconds=second), added=1_000)
        seen = workload(wished=replicas, ready=replicas)
        decision, memory = decide_replicas(spec, seen, backlog, memory, now=float(second))
        if decision.is_change and decision.replicas is not None:
            memory = remember_write(
                memory, before=replicas, after=decision.replicas, now=float(second)
            )
            replicas = decision.replicas
        if second in reported:
            assert (owed, replicas) == reported[second]
        owed = max(0, owed - 50 * replicas)
    assert replicas == 0
