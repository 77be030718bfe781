"""Who handled or acknowledged what was not theirs is found; who was kept from work is excused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.history import Act, Event, Hindrance, History
from tests.faults.owning import (
    find_acknowledged_without_effect,
    find_foreign_acknowledgements,
    find_inexplicable_duplicates,
    find_overlaps,
    find_unexpected_ends,
)
from tests.unit.small_histories import FIRST, OTHER, at, event, history, place

pytestmark = pytest.mark.full

LIVING = frozenset({FIRST, OTHER})


def of(*events: Event, hindrances: tuple[Hindrance, ...] = ()) -> History:
    """One entry's history, by two workers that live on."""
    return replace(history(*events), hindrances=hindrances, alive=LIVING)


def hindered(kind: str, began: float, ended: float, pid: int = FIRST.pid) -> Hindrance:
    return Hindrance(kind=kind, began_ns=at(began), ended_ns=at(ended), pid=pid)


# --- two at once


def test_two_handlers_at_once_whose_workers_own_the_entry_overlap() -> None:
    both = of(event(1, Act.START, result="3000"), event(2, Act.START, OTHER, result="3000"))
    assert len(find_overlaps(both)) == 1


def test_a_worker_owns_no_entries_between_expiry_and_renewal() -> None:
    first, other = event(1, Act.START, result="500"), event(2, Act.START, OTHER, result="3000")
    assert find_overlaps(of(first, other, event(3, Act.OWNERSHIP_LIFETIME, result="0"))) == []
    assert len(find_overlaps(of(first, other, event(3, Act.OWNERSHIP_LIFETIME, result="900")))) == 1


def test_a_dropped_handler_or_dead_worker_causes_no_later_overlap() -> None:
    first, other = event(1, Act.START, result="3000"), event(2, Act.START, OTHER, result="3000")
    assert find_overlaps(of(first, event(1.5, Act.DROP), other)) == []
    assert find_overlaps(replace(of(first, other), alive=frozenset({OTHER}))) == []


# --- acknowledgements


def test_an_acknowledgement_before_the_effect_is_found() -> None:
    start, early = event(1, Act.START), event(2, Act.ACK, result="1")
    assert len(find_acknowledged_without_effect(of(start, early, event(3, Act.EFFECT)))) == 1
    late = of(start, event(1.5, Act.EFFECT), early)
    assert find_acknowledged_without_effect(late) == []


def test_an_acknowledged_entry_without_an_effect_is_found() -> None:
    reported = replace(of(event(1, Act.START)), acknowledged=frozenset({place(1)}))
    assert len(find_acknowledged_without_effect(reported)) == 1
    handled = replace(of(event(1, Act.EFFECT)), acknowledged=frozenset({place(1)}))
    assert find_acknowledged_without_effect(handled) == []


def test_a_foreign_acknowledgement_is_found_unless_the_network_delayed_it() -> None:
    foreign = (
        event(1, Act.START),
        event(2, Act.EFFECT),
        event(3, Act.START, OTHER),
        event(4, Act.ACK, result="1"),
    )
    assert len(find_foreign_acknowledgements(of(*foreign))) == 1
    stopped = hindered("stopped", 2.1, 3.9)
    assert len(find_foreign_acknowledgements(of(*foreign, hindrances=(stopped,)))) == 1
    stalled = hindered("stalled", 2.1, 3.9)
    assert find_foreign_acknowledgements(of(*foreign, hindrances=(stalled,))) == []


# --- duplicates


def test_a_second_effect_is_explained_by_a_fault_of_either_owner_alone() -> None:
    twice = (event(1, Act.EFFECT), event(30, Act.EFFECT, OTHER))
    assert len(find_inexplicable_duplicates(of(*twice))) == 1
    for pid in (FIRST.pid, OTHER.pid):
        stopped = hindered("stopped", 20, 29, pid)
        assert find_inexplicable_duplicates(of(*twice, hindrances=(stopped,))) == []
    slow = hindered("slow", 2, 29)
    assert len(find_inexplicable_duplicates(of(*twice, hindrances=(slow,)))) == 1


def test_stopping_a_worker_does_not_explain_repeating_an_acknowledged_entry() -> None:
    twice = (
        event(1, Act.EFFECT),
        event(2, Act.ACK, result="1"),
        event(30, Act.EFFECT, OTHER),
    )
    stopped = hindered("stopped", 3, 29)
    assert len(find_inexplicable_duplicates(of(*twice, hindrances=(stopped,)))) == 1


# --- ends


def test_a_worker_that_ended_without_being_killed_is_found() -> None:
    gone = replace(of(event(1, Act.START)), alive=frozenset())
    assert len(find_unexpected_ends(gone)) == 1
    assert find_unexpected_ends(replace(gone, hindrances=(hindered("killed", 2, 2),))) == []
    reported = (Event(at(2), FIRST, Act.END, result="0"), Event(at(2), FIRST, Act.END, result="1"))
    ended = [replace(gone, events=(*gone.events, end)) for end in reported]
    assert [len(find_unexpected_ends(one)) for one in ended] == [0, 1]
