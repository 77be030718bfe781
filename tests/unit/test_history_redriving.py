"""What a redrive may do to a dead letter: move it once, and lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.checker import (
    find_acknowledged_and_dead_lettered,
    find_innocents_dead_lettered,
    find_lost,
)
from tests.faults.history import Act, Copy, Disturbance, History, Move, Place, Produced, Source
from tests.faults.repeating import find_recovered_twice, find_unexplained_duplicates
from tests.unit.small_histories import OTHER, at, event, history, letter, move, place, subjects

pytestmark = pytest.mark.full

LETTER = place(1, Source.DEAD_LETTER)
COPY = place(1001)
UNDONE = Disturbance(kind="redis", at_ns=at(4), repeated=frozenset({"a"}))


def redriven(seconds: float, **changes: Any) -> Move:
    return move(
        seconds, **{"kind": "redriven", "place": LETTER, "target": Source.STREAM, **changes}
    )


def history_of_letter(*events: Any, **changes: Any) -> History:
    """One entry that was added as a dead letter."""
    produced = Produced(unique="a", entry_id=LETTER[1], at_ns=at(0), source=Source.DEAD_LETTER)
    return history(*events, produced={"a": produced}, **changes)


def copy_at(where: Place) -> Copy:
    return Copy(place=where, at_ns=at(2), unique="a", root_id="1-1", retries=0)


def test_a_dead_letter_whose_copy_was_processed_is_correct() -> None:
    fine = history_of_letter(
        event(3, Act.EFFECT, number=1001),
        event(3.1, Act.ACK, number=1001, result="1"),
        moves=(redriven(2),),
        copies=(copy_at(COPY),),
    )
    checks = (find_lost, find_recovered_twice, find_unexplained_duplicates)
    assert [found for check in checks for found in check(fine)] == []


def test_a_dead_letter_that_was_redriven_twice_is_found() -> None:
    twice = history_of_letter(moves=(redriven(2), redriven(3, new_id=place(2000)[1])))
    assert subjects(find_recovered_twice(twice)) == [LETTER[1]]


@pytest.mark.parametrize("kind", ["discarded", "restored"])
def test_a_dead_letter_that_was_redriven_and_moved_elsewhere_is_found(kind: str) -> None:
    twice = history_of_letter(moves=(redriven(2), redriven(3, kind=kind)))
    assert subjects(find_recovered_twice(twice)) == [LETTER[1]]


def test_a_lost_sync_explains_a_second_redrive_of_a_dead_letter() -> None:
    again = history_of_letter(moves=(redriven(2), redriven(5)), disturbances=(UNDONE,))
    assert find_recovered_twice(again) == []


def test_a_dead_letter_that_vanished_without_a_redrive_is_lost() -> None:
    assert subjects(find_lost(history_of_letter())) == ["a"]


def test_a_dead_letter_whose_copy_was_not_processed_is_lost() -> None:
    assert subjects(find_lost(history_of_letter(moves=(redriven(2),)))) == ["a"]


@pytest.mark.parametrize("source", [Source.DEAD_LETTER, Source.DISCARDED])
def test_a_dead_letter_that_is_still_there_is_not_lost(source: Source) -> None:
    there = history_of_letter(letters=(letter(0, source=source, letter_id=LETTER[1]),))
    assert find_lost(there) == []


def test_a_dead_letter_that_was_copied_and_not_deleted_is_found() -> None:
    there = letter(0, letter_id=LETTER[1])
    both = history_of_letter(
        event(3, Act.ACK, number=1001, result="1"), moves=(redriven(2),), letters=(there,)
    )
    assert subjects(find_recovered_twice(both)) == [LETTER[1]]
    assert subjects(find_acknowledged_and_dead_lettered(both)) == ["a"]


def test_a_lost_sync_explains_a_dead_letter_that_came_back() -> None:
    both = history_of_letter(
        event(3, Act.ACK, number=1001, result="1"),
        moves=(redriven(2),),
        letters=(letter(0, letter_id=LETTER[1]),),
        disturbances=(UNDONE,),
    )
    assert find_recovered_twice(both) == []
    assert find_acknowledged_and_dead_lettered(both) == []


def test_a_lost_sync_before_the_move_excuses_nothing() -> None:
    both = history_of_letter(
        event(6, Act.ACK, number=1001, result="1"),
        moves=(redriven(5),),
        letters=(letter(0, letter_id=LETTER[1]),),
        disturbances=(UNDONE,),
    )
    assert subjects(find_recovered_twice(both)) == [LETTER[1]]
    assert subjects(find_acknowledged_and_dead_lettered(both)) == ["a"]


def test_a_copy_of_a_redrive_that_no_ledger_knows_is_found() -> None:
    assert subjects(find_recovered_twice(history_of_letter(copies=(copy_at(COPY),)))) == [COPY[1]]


def test_the_ledger_explains_a_second_effect_after_a_redrive() -> None:
    effects = (event(1, Act.EFFECT), event(3, Act.EFFECT, OTHER, number=1001))
    still_alive = event(4, Act.BEAT)
    explained = history(*effects, still_alive, moves=(redriven(2),))
    assert find_unexplained_duplicates(explained) == []
    assert subjects(find_unexplained_duplicates(history(*effects, still_alive))) == ["a"]


def test_the_ledger_explains_no_second_effect_after_an_acknowledgement() -> None:
    acknowledged = event(1.1, Act.ACK, result="1")
    effects = (event(1, Act.EFFECT), acknowledged, event(3, Act.EFFECT, OTHER, number=1001))
    assert subjects(find_unexplained_duplicates(history(*effects, moves=(redriven(2),)))) == ["a"]


def test_a_dead_letter_that_a_redrive_restored_is_explained() -> None:
    restored = redriven(2, kind="restored", target=Source.DEAD_LETTER, new_id="5-0")
    back = letter(letter_id="5-0")
    assert find_innocents_dead_lettered(history_of_letter(moves=(restored,), letters=(back,))) == []
    assert subjects(find_innocents_dead_lettered(history_of_letter(letters=(back,)))) == ["a"]
