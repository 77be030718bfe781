"""Each anomaly of a small history is found, and what only looks like one is not."""

from __future__ import annotations

import pytest

from tests.faults.checker import (
    find_acknowledged_and_dead_lettered,
    find_excess_crashes,
    find_innocents_dead_lettered,
    find_lost,
    find_unreported,
    find_unsettled,
)
from tests.faults.history import Act, Disturbance, History, Produced
from tests.faults.premature_recovery import find_premature_recoveries
from tests.unit.small_histories import (
    RESTARTED,
    alive,
    at,
    booted,
    event,
    history,
    letter,
    move,
    place,
    subjects,
)

pytestmark = pytest.mark.full

# --- lost


def test_an_entry_that_left_no_trace_is_lost() -> None:
    assert subjects(find_lost(history())) == ["a"]


@pytest.mark.parametrize(
    "accounted",
    [
        history(event(1, Act.EFFECT)),
        history(owed=frozenset({"a"})),
        history(letters=(letter(),)),
        history(disturbances=(Disturbance(kind="trim", at_ns=at(1), lost=frozenset({"a"})),)),
        history(produced={"a": Produced(unique="a", entry_id=None, at_ns=at(0))}),
    ],
    ids=["processed", "owed", "a dead letter", "trimmed by hand", "perhaps never added"],
)
def test_an_entry_that_is_accounted_for_is_not_lost(accounted: History) -> None:
    assert find_lost(accounted) == []


def test_a_fault_excuses_only_the_entries_that_it_names() -> None:
    flushed = Disturbance(kind="flush", at_ns=at(1), lost=frozenset({"another"}))
    assert subjects(find_lost(history(disturbances=(flushed,)))) == ["a"]


def test_a_loss_that_the_operator_did_not_report_is_shown() -> None:
    assert find_unreported(history()) == []
    assert subjects(find_unreported(history(unreported=("7 entries lost",))))


# --- recovered prematurely

READ = (booted(0), event(1, Act.READ), event(1.1, Act.START))


def test_recovering_an_entry_of_a_running_process_is_premature() -> None:
    robbed = history(*READ, alive(3), moves=(move(2),))
    assert subjects(find_premature_recoveries(robbed)) == [place(1)[1]]


def test_an_offer_while_the_owner_lives_is_a_premature_recovery() -> None:
    robbed = history(*READ, alive(3), moves=(move(2, kind="released", new_id=None),))
    assert len(find_premature_recoveries(robbed)) == 1


def test_a_recovery_after_the_last_activity_of_the_worker_is_not_premature() -> None:
    assert find_premature_recoveries(history(*READ, moves=(move(2),))) == []


def test_the_successor_in_the_same_container_does_not_speak_for_the_dead() -> None:
    restarted = (booted(1.8, RESTARTED), alive(3, RESTARTED))
    assert find_premature_recoveries(history(*READ, *restarted, moves=(move(2),))) == []


def test_recovering_entries_that_a_restarted_worker_read_again_is_premature() -> None:
    again = (
        booted(1.4, RESTARTED),
        event(1.6, Act.READ, RESTARTED),
        alive(3, RESTARTED),
    )
    robbed = history(*READ, *again, moves=(move(2, idle_ms=420),))
    assert len(find_premature_recoveries(robbed)) == 1


def test_an_entry_beyond_the_processing_timeout_may_be_recovered_from_live_workers() -> None:
    timed_out = history(*READ, alive(23), moves=(move(22, idle_ms=20_500),))
    assert find_premature_recoveries(timed_out) == []


def test_an_entry_whose_answer_never_arrived_has_no_owner() -> None:
    assert find_premature_recoveries(history(booted(0), alive(3), moves=(move(2),))) == []


def test_a_paused_worker_that_goes_on_later_was_alive() -> None:
    robbed = history(*READ, event(12, Act.EFFECT), moves=(move(5, idle_ms=4000),))
    assert len(find_premature_recoveries(robbed)) == 1


# --- dead letters


def test_a_dead_letter_that_is_not_poison_is_found() -> None:
    assert subjects(find_innocents_dead_lettered(history(letters=(letter(),)))) == ["a"]
    assert find_innocents_dead_lettered(history(letters=(letter(),), poison=True)) == []


def test_a_dead_letter_of_a_trimmed_entry_is_explained() -> None:
    gone = letter(reason="PayloadGone")
    trimmed = Disturbance(kind="trim", at_ns=at(1), lost=frozenset({"a"}))
    assert find_innocents_dead_lettered(history(letters=(gone,), disturbances=(trimmed,))) == []
    assert len(find_innocents_dead_lettered(history(letters=(gone,)))) == 1


def test_an_entry_acknowledged_and_dead_lettered_is_found() -> None:
    acked = event(3, Act.ACK, result="1")
    both = history(acked, letters=(letter(),))
    assert subjects(find_acknowledged_and_dead_lettered(both)) == ["a"]


def test_an_acknowledgement_that_came_too_late_counts_for_nothing() -> None:
    late = history(event(10, Act.ACK, result="0"), letters=(letter(),))
    assert find_acknowledged_and_dead_lettered(late) == []


# --- the rest


def test_more_crashes_than_two_poisons_need_fail_the_run() -> None:
    crashes = [event(number, Act.CRASH, number=number) for number in range(11)]
    assert len(find_excess_crashes(history(*crashes, is_poisoned_fleet=True))) == 1
    assert find_excess_crashes(history(*crashes[1:], is_poisoned_fleet=True)) == []
    assert find_excess_crashes(history(*crashes)) == []


def test_unsettled_entries_and_faults_that_never_ran_fail_the_run() -> None:
    unsettled = history(owed=frozenset({"a"}), problems=("redis could not be done",))
    assert len(find_unsettled(unsettled)) == 2
    assert find_unsettled(history()) == []
