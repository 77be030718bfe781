"""A second recovery or a second effect is found, unless a fault explains it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.history import Act, Copy, Disturbance, Event, Source
from tests.faults.repeating import find_recovered_twice, find_unexplained_duplicates
from tests.unit.small_histories import (
    OTHER,
    RESTARTED,
    alive,
    at,
    booted,
    event,
    history,
    move,
    place,
    subjects,
)

pytestmark = pytest.mark.full

# --- recovered twice


def test_one_delivery_requeued_twice_is_recovered_twice() -> None:
    twice = history(moves=(move(2), move(3, new_id=place(2000)[1])))
    assert subjects(find_recovered_twice(twice)) == [place(1)[1]]


def test_entries_with_equal_ids_in_both_streams_are_different_entries() -> None:
    both = history(moves=(move(2), move(3, place=place(1, Source.RETRY))))
    assert find_recovered_twice(both) == []


def test_a_move_that_a_lost_sync_undid_may_be_made_again() -> None:
    undone = Disturbance(kind="redis", at_ns=at(2.5), repeated=frozenset({"a"}))
    again = history(event(1, Act.READ), moves=(move(2), move(3)), disturbances=(undone,))
    assert find_recovered_twice(again) == []


def test_an_undone_move_excuses_no_second_one_before_it_was_undone() -> None:
    undone = Disturbance(kind="redis", at_ns=at(5), repeated=frozenset({"a"}))
    twice = history(event(1, Act.READ), moves=(move(2), move(3)), disturbances=(undone,))
    assert len(find_recovered_twice(twice)) == 1


def test_a_copy_that_no_ledger_knows_is_found() -> None:
    copy = Copy(place=place(1001), at_ns=at(2), unique="a", root_id=place(1)[1], retries=1)
    assert find_recovered_twice(history(moves=(move(2),), copies=(copy,))) == []
    assert subjects(find_recovered_twice(history(copies=(copy,)))) == [place(1001)[1]]


def test_an_entry_claimed_twice_after_one_offer_is_recovered_twice() -> None:
    offer = move(2, kind="released", new_id=None)
    claims = (event(2.1, Act.CLAIM, OTHER), event(2.2, Act.CLAIM, RESTARTED))
    assert len(find_recovered_twice(history(*claims, moves=(offer,)))) == 1
    assert find_recovered_twice(history(*claims, moves=(offer, move(2.15, kind="released")))) == []


def test_an_offer_of_one_delivery_that_is_reported_twice_is_found() -> None:
    first = move(2, kind="released", new_id=None)
    repeated = replace(first, at_ns=at(3), idle_ms=first.idle_ms + 1000)
    delivered_anew = replace(first, at_ns=at(3))
    assert len(find_recovered_twice(history(moves=(first, repeated)))) == 1
    assert find_recovered_twice(history(moves=(first, delivered_anew))) == []


def test_a_restart_forgets_the_time_at_which_an_owner_read_its_history() -> None:
    first = move(2, kind="released", new_id=None)
    repeated = replace(first, at_ns=at(5), idle_ms=first.idle_ms + 3000)
    read, restart = event(3, Act.READ, RESTARTED), Disturbance(kind="redis", at_ns=at(4))
    reported = (first, repeated)
    assert find_recovered_twice(history(read, moves=reported, disturbances=(restart,))) == []
    assert len(find_recovered_twice(history(read, moves=reported))) == 1
    assert len(find_recovered_twice(history(moves=reported, disturbances=(restart,)))) == 1
    later = event(4.5, Act.READ, RESTARTED)
    assert len(find_recovered_twice(history(later, moves=reported, disturbances=(restart,)))) == 1


def test_an_entry_skipped_from_a_workers_history_counts_as_delivered_to_it() -> None:
    first = move(2, kind="released", new_id=None)
    repeated = replace(first, at_ns=at(5), idle_ms=first.idle_ms + 3000)
    restart = Disturbance(kind="redis", at_ns=at(4))
    offered = history(moves=(first, repeated), disturbances=(restart,))
    left = replace(offered, events=(event(3, Act.SKIP, RESTARTED),))
    assert find_recovered_twice(left) == []
    for other in (event(1.5, Act.SKIP, RESTARTED), event(3, Act.SKIP, OTHER)):
        assert len(find_recovered_twice(replace(offered, events=(other,)))) == 1
    assert len(find_recovered_twice(replace(left, disturbances=()))) == 1


def test_a_copy_that_another_group_was_shown_too_is_found() -> None:
    copy = Copy(place=place(1001), at_ns=at(2), unique="a", root_id=place(1)[1], retries=1)
    shown = history(moves=(move(2),), copies=(copy,), other_groups=((at(1), at(3)),))
    assert len(find_recovered_twice(shown)) == 1
    assert find_recovered_twice(replace(shown, other_groups=((at(3), at(4)),))) == []


# --- duplicates

DONE = (booted(0), event(1, Act.READ), event(2, Act.EFFECT))


def test_an_effect_made_again_for_no_reason_is_found() -> None:
    twice = history(*DONE, alive(9), event(5, Act.EFFECT, OTHER, number=2))
    assert subjects(find_unexplained_duplicates(twice)) == ["a"]


def test_a_death_before_the_acknowledgement_explains_a_second_effect() -> None:
    assert find_unexplained_duplicates(history(*DONE, event(5, Act.EFFECT, OTHER))) == []


def test_a_death_after_the_acknowledgement_explains_nothing() -> None:
    acked = event(2.1, Act.ACK, result="1")
    twice = history(*DONE, acked, event(5, Act.EFFECT, OTHER))
    assert len(find_unexplained_duplicates(twice)) == 1


@pytest.mark.parametrize(
    "reason",
    [
        event(2.1, Act.ACK, result="?"),
        event(2.1, Act.ACK, RESTARTED, result="1"),
    ],
    ids=["nobody knows whether it was acknowledged", "somebody else's acknowledgement"],
)
def test_only_an_unknown_answer_of_its_own_explains_a_second_effect(reason: Event) -> None:
    twice = history(*DONE, reason, alive(9), event(5, Act.EFFECT, OTHER))
    assert len(find_unexplained_duplicates(twice)) == (reason.result != "?")


def test_a_time_out_explains_a_second_effect() -> None:
    later = (event(21.5, Act.EFFECT, OTHER), alive(30))
    assert find_unexplained_duplicates(history(*DONE, *later)) == []


def test_a_recreated_group_repeats_only_entries_above_its_position() -> None:
    acked = event(2.1, Act.ACK, result="1")
    twice = history(*DONE, acked, event(5, Act.EFFECT, OTHER))
    above = Disturbance(kind="destroy", at_ns=at(3), repeats_above=place(0))
    assert find_unexplained_duplicates(replace(twice, disturbances=(above,))) == []
    below = Disturbance(kind="destroy", at_ns=at(3), repeats_above=place(1))
    assert len(find_unexplained_duplicates(replace(twice, disturbances=(below,)))) == 1


def test_a_failover_undoes_only_what_was_done_shortly_before_it() -> None:
    acked = event(2.1, Act.ACK, result="1")
    twice = history(*DONE, acked, event(5, Act.EFFECT, OTHER))
    recent = Disturbance(kind="failover", at_ns=at(3), forgets_from_ns=at(1), until_ns=at(3.5))
    assert find_unexplained_duplicates(replace(twice, disturbances=(recent,))) == []
    old = replace(recent, forgets_from_ns=at(2.5))
    assert len(find_unexplained_duplicates(replace(twice, disturbances=(old,)))) == 1
