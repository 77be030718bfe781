"""Whatever pods hold and whatever costs they have, the right ones go, for few writes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pelops.policy.scaling.victims import MOST_WRITES, PodPending, rank
from tests.builders import later

COSTS = st.none() | st.integers(-3, 3) | st.integers(-(2**31) + 1, 2**31 - 2)


@st.composite
def fleets(draw: st.DrawFn, most: int = 30) -> list[PodPending]:
    """Pods with what they hold, their ages and the costs of earlier scale-ins."""
    count = draw(st.integers(0, most))
    return [
        PodPending(
            pod=f"pod-{number}",
            uid=str(number),
            pending=draw(st.integers(0, 3)),
            created=draw(st.none() | st.integers(0, 5).map(lambda s: later(seconds=s))),
            cost=draw(COSTS),
        )
        for number in range(count)
    ]


def marked(fleet: list[PodPending], costs: dict[str, int]) -> list[PodPending]:
    return [replace(one, cost=costs.get(one.pod, one.cost)) for one in fleet]


def by_cost(fleet: list[PodPending]) -> list[PodPending]:
    """As a ReplicaSet orders them; of equal costs the worst choice: who holds most goes first."""
    return sorted(fleet, key=lambda one: (one.cost or 0, -one.pending))


@given(fleets(), st.integers(-2, 35))
def test_removed_pods_never_hold_more_entries_than_remaining_ones(
    fleet: list[PodPending], leaving: int
) -> None:
    ordered = by_cost(marked(fleet, rank(fleet, leaving)))
    if 0 < leaving < len(fleet):
        going, staying = ordered[:leaving], ordered[leaving:]
        assert max(one.pending for one in going) <= min(one.pending for one in staying)


@given(fleets(), st.integers(0, 35))
def test_of_those_that_hold_as_much_no_older_one_goes(
    fleet: list[PodPending], leaving: int
) -> None:
    ordered = by_cost(marked(fleet, rank(fleet, leaving)))
    if not 0 < leaving < len(fleet):
        return
    for going in ordered[:leaving]:
        for staying in ordered[leaving:]:
            if going.pending == staying.pending and going.created and staying.created:
                assert going.created >= staying.created


@given(fleets(most=160), st.integers(-2, 170))
def test_writes_are_few(fleet: list[PodPending], leaving: int) -> None:
    costs = rank(fleet, leaving)
    assert len(costs) <= MOST_WRITES
    assert len(costs) <= max(0, min(leaving, len(fleet) - leaving))
    assert all(one.cost != costs.get(one.pod, "nothing") for one in fleet)
    assert all(-(2**31) <= cost < 2**31 for cost in costs.values())


@given(fleets(most=160), st.integers(0, 170))
def test_what_is_named_needs_no_second_naming(fleet: list[PodPending], leaving: int) -> None:
    assert rank(marked(fleet, rank(fleet, leaving)), leaving) == {}


@given(st.integers(101, 160), st.data())
def test_however_many_leave_no_pod_goes_that_holds_entries_while_few_do(
    count: int, data: st.DataObject
) -> None:
    busy = data.draw(st.sets(st.integers(0, count - 1), max_size=MOST_WRITES))
    leaving = data.draw(st.integers(1, count - len(busy)))
    fleet = [
        PodPending(pod=str(n), uid=str(n), pending=int(n in busy), cost=data.draw(COSTS))
        for n in range(count)
    ]
    assert not any(one.pending for one in by_cost(marked(fleet, rank(fleet, leaving)))[:leaving])
