"""The numbers of docs/guides/scaling.md are those that the code gives."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest

from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.capacity import Capacity, Interval
from tests.builders import workload
from tests.scaling_cases import after, auto, demand_of, knowing, owing

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
    meter = knowing(arrivals=number(row[3]), per_replica=number(row[4]))
    backlog = owing(undelivered=undelivered, held=pending)
    drain = {} if within is None else {"drainWithinSeconds": int(within)}
    demand = demand_of(backlog, meter, ready=ready, **drain)
    found = (demand.by_backlog, demand.by_drain, demand.by_arrivals, demand.highest)
    assert [None if one is None else ceil(one) for one in found] == [
        number(cell) for cell in row[6:]
    ]


def test_the_story_of_the_rate_of_a_worker_is_true() -> None:
    capacity = Capacity()
    for row in rows("for so many seconds"):
        busy, waits = float(row[2]), row[4] == "yes"
        work = Interval(
            seconds=1.0,
            finished=int(row[3]),
            ready=int(row[1]),
            busy=busy,
            busy_most=ceil(busy),
            is_saturated=waits,
            has_room=not waits,
        )
        for _ in range(int(row[0])):
            capacity.learn(work)
        assert round(capacity.per_replica or 0) == int(row[5])


def test_the_story_of_ten_thousand_entries_is_true() -> None:
    reported = {int(row[0]): (int(row[1]), int(row[3])) for row in rows("second")}
    spec, autoscaler, replicas, owed = auto(maxReplicas=20), Autoscaler(), 0, 10_000
    for second in range(max(reported) + 1):
        backlog = owing(undelivered=owed, at=owing().at + after(seconds=second), added=1_000)
        seen = workload(wished=replicas, ready=replicas)
        decision = autoscaler.observe(spec, seen, backlog, now=float(second))
        if decision.is_change and decision.replicas is not None:
            autoscaler.record_write(before=replicas, after=decision.replicas, now=float(second))
            replicas = decision.replicas
        if second in reported:
            assert (owed, replicas) == reported[second]
        owed = max(0, owed - 50 * replicas)
    assert replicas == 0
