"""Each anomaly of a small history is found, and what only looks like one is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.checker import (
    find_acknowledged_and_dead_lettered,
    find_excess_crashes,
    find_innocents_dead_lettered,
    find_lost,
    find_unreported,
    find_unsettled,
)
from tests.faults.evidence import Evidence
from tests.faults.history import Act, Copy, Disturbance, Event, Hindrance, History, Produced, Source
from tests.faults.owning import (
    find_acknowledged_without_effect,
    find_foreign_acknowledgements,
    find_inexplicable_duplicates,
    find_overlaps,
    find_unexpected_ends,
)
from tests.faults.premature_recovery import find_premature_recoveries
from tests.faults.repeating import find_recovered_twice, find_unexplained_duplicates
from tests.unit.small_histories import (
    FIRST,
    OTHER,
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

Case = tuple[str, History, int]  # what it is, and how many anomalies it has
Checker = Callable[[History], Sequence[Evidence]]


def lost(kind: str, at_s: float, *entries: str) -> Disturbance:
    return Disturbance(kind=kind, at_ns=at(at_s), lost=frozenset(entries))


def undone(at_s: float) -> tuple[Disturbance, ...]:
    """A restart of Redis that lost what came last."""
    return (Disturbance(kind="redis", at_ns=at(at_s), repeated=frozenset({"a"})),)


# --- lost entries, and dead letters

LETTER = place(1, Source.DEAD_LETTER)
COPY = Copy(place=place(1001), at_ns=at(2), unique="a", root_id=place(1)[1], retries=1)
THERE = letter(0, letter_id=LETTER[1])
ACKED_COPY = event(3, Act.ACK, number=1001, result="1")


def redriven(seconds: float, **changes: Any) -> Any:
    usual = {"kind": "redriven", "place": LETTER, "target": Source.STREAM}
    return move(seconds, **{**usual, **changes})


def of_letter(*events: Event, **changes: Any) -> History:
    """One entry that was added as a dead letter."""
    produced = Produced(unique="a", entry_id=LETTER[1], at_ns=at(0), source=Source.DEAD_LETTER)
    return history(*events, produced={"a": produced}, **changes)


NEVER_ADDED = {"a": Produced(unique="a", entry_id=None, at_ns=at(0))}
LOST: list[Case] = [
    ("no trace", history(), 1),
    ("processed", history(event(1, Act.EFFECT)), 0),
    ("pending or undelivered", history(owed=frozenset({"a"})), 0),
    ("a dead letter", history(letters=(letter(),)), 0),
    ("trimmed by hand", history(disturbances=(lost("trim", 1, "a"),)), 0),
    ("another entry was flushed", history(disturbances=(lost("flush", 1, "other"),)), 1),
    ("perhaps never added", history(produced=NEVER_ADDED), 0),
    ("a dead letter vanished", of_letter(), 1),
    (
        "the copy of a dead letter was processed",
        of_letter(event(3, Act.EFFECT, number=1001), moves=(redriven(2),)),
        0,
    ),
    ("the copy of a dead letter was not processed", of_letter(moves=(redriven(2),)), 1),
    *(
        (
            f"the dead letter is still in {source}",
            of_letter(letters=(letter(0, source=source, letter_id=LETTER[1]),)),
            0,
        )
        for source in (Source.DEAD_LETTER, Source.DISCARDED)
    ),
]
GONE = letter(reason="PayloadGone")
RESTORED = redriven(2, kind="restored", target=Source.DEAD_LETTER, new_id="5-0")
BACK = letter(letter_id="5-0")
INNOCENT: list[Case] = [
    ("no poison", history(letters=(letter(),)), 1),
    ("poison", history(letters=(letter(),), poison=True), 0),
    ("trimmed", history(letters=(GONE,), disturbances=(lost("trim", 1, "a"),)), 0),
    ("gone, and never trimmed", history(letters=(GONE,)), 1),
    ("restored by a redrive", of_letter(moves=(RESTORED,), letters=(BACK,)), 0),
    ("a second letter without a move", of_letter(letters=(BACK,)), 1),
]
ACKNOWLEDGED: list[Case] = [
    ("both", history(event(3, Act.ACK, result="1"), letters=(letter(),)), 1),
    ("too late", history(event(10, Act.ACK, result="0"), letters=(letter(),)), 0),
    ("copied, not deleted", of_letter(ACKED_COPY, moves=(redriven(2),), letters=(THERE,)), 1),
    (
        "a lost sync brought it back",
        of_letter(ACKED_COPY, moves=(redriven(2),), letters=(THERE,), disturbances=undone(4)),
        0,
    ),
    (
        "a lost sync before the move",
        of_letter(
            event(6, Act.ACK, number=1001, result="1"),
            moves=(redriven(5),),
            letters=(THERE,),
            disturbances=undone(4),
        ),
        1,
    ),
]

# --- recovered prematurely

READ = (booted(0), event(1, Act.READ), event(1.1, Act.START))
AGAIN = (booted(1.4, RESTARTED), event(1.6, Act.READ, RESTARTED), alive(3, RESTARTED))
OFFER = move(2, kind="released", new_id=None)
PREMATURE: list[Case] = [
    ("the worker lives", history(*READ, alive(3), moves=(move(2),)), 1),
    ("an offer while the owner lives", history(*READ, alive(3), moves=(OFFER,)), 1),
    ("after its last activity", history(*READ, moves=(move(2),)), 0),
    (
        "only its successor lives",
        history(*READ, booted(1.8, RESTARTED), alive(3, RESTARTED), moves=(move(2),)),
        0,
    ),
    ("its successor read it again", history(*READ, *AGAIN, moves=(move(2, idle_ms=420),)), 1),
    ("timed out", history(*READ, alive(23), moves=(move(22, idle_ms=20_500),)), 0),
    ("its answer never arrived", history(booted(0), alive(3), moves=(move(2),)), 0),
    (
        "a paused worker went on later",
        history(*READ, event(12, Act.EFFECT), moves=(move(5, idle_ms=4000),)),
        1,
    ),
]

# --- recovered twice

TWICE = (move(2), move(3, new_id=place(2000)[1]))
CLAIMS = (event(2.1, Act.CLAIM, OTHER), event(2.2, Act.CLAIM, RESTARTED))
SAME_DELIVERY = (OFFER, replace(OFFER, at_ns=at(5), idle_ms=OFFER.idle_ms + 3000))
RESTART = (Disturbance(kind="redis", at_ns=at(4)),)
RETRIED = move(3, place=place(1, Source.RETRY))
SHOWN = history(moves=(move(2),), copies=(COPY,), other_groups=((at(1), at(3)),))


def offered(*events: Event, disturbances: tuple[Disturbance, ...] = RESTART) -> History:
    """One delivery that was offered twice."""
    return history(*events, moves=SAME_DELIVERY, disturbances=disturbances)


def undo(at_s: float) -> History:
    moves = (move(2), move(3))
    return history(event(1, Act.READ), moves=moves, disturbances=undone(at_s))


RECOVERED_TWICE: list[Case] = [
    ("one delivery was requeued twice", history(moves=TWICE), 1),
    ("equal IDs in both streams", history(moves=(move(2), RETRIED)), 0),
    ("a lost sync undid the first move", undo(2.5), 0),
    ("a lost sync came after both moves", undo(5), 1),
    ("a copy of the ledger", history(moves=(move(2),), copies=(COPY,)), 0),
    ("a copy that no ledger has", history(copies=(COPY,)), 1),
    ("one offer, two claims", history(*CLAIMS, moves=(OFFER,)), 1),
    ("two offers", history(*CLAIMS, moves=(OFFER, move(2.15, kind="released"))), 0),
    ("one delivery was offered twice", offered(disturbances=()), 1),
    ("offered again after a new delivery", history(moves=(OFFER, replace(OFFER, at_ns=at(3)))), 0),
    ("a restart lost the time of a read", offered(event(3, Act.READ, RESTARTED)), 0),
    ("no restart", offered(event(3, Act.READ, RESTARTED), disturbances=()), 1),
    ("a restart without a read", offered(), 1),
    ("a read after the restart", offered(event(4.5, Act.READ, RESTARTED)), 1),
    ("left out of the history of a worker", offered(event(3, Act.SKIP, RESTARTED)), 0),
    ("left out before the offer", offered(event(1.5, Act.SKIP, RESTARTED)), 1),
    ("left out of the history of another", offered(event(3, Act.SKIP, OTHER)), 1),
    ("left out, and no restart", offered(event(3, Act.SKIP, RESTARTED), disturbances=()), 1),
    ("another group got the copy", SHOWN, 1),
    ("another group came later", replace(SHOWN, other_groups=((at(3), at(4)),)), 0),
    ("redriven once", of_letter(ACKED_COPY, moves=(redriven(2),), copies=(COPY,)), 0),
    ("redriven twice", of_letter(moves=(redriven(2), redriven(3, new_id=place(2000)[1]))), 1),
    *(
        (f"redriven and {kind}", of_letter(moves=(redriven(2), redriven(3, kind=kind))), 1)
        for kind in ("discarded", "restored")
    ),
    (
        "a lost sync undid the redrive",
        of_letter(moves=(redriven(2), redriven(5)), disturbances=undone(4)),
        0,
    ),
    ("redriven, not deleted", of_letter(ACKED_COPY, moves=(redriven(2),), letters=(THERE,)), 1),
    (
        "a lost sync brought the dead letter back",
        of_letter(ACKED_COPY, moves=(redriven(2),), letters=(THERE,), disturbances=undone(4)),
        0,
    ),
    (
        "a lost sync before the redrive",
        of_letter(moves=(redriven(5),), letters=(THERE,), disturbances=undone(4)),
        1,
    ),
    ("a redriven copy that no ledger has", of_letter(copies=(COPY,)), 1),
]

# --- effects made twice

DONE = (booted(0), event(1, Act.READ), event(2, Act.EFFECT))
ACKED = event(2.1, Act.ACK, result="1")
EFFECT_AGAIN = event(5, Act.EFFECT, OTHER)
REDONE = history(*DONE, ACKED, EFFECT_AGAIN)
FAILOVER = Disturbance(kind="failover", at_ns=at(3), forgets_from_ns=at(1), until_ns=at(3.5))
MOVED = (event(1, Act.EFFECT), event(3, Act.EFFECT, OTHER, number=1001), event(4, Act.BEAT))


def recreated(above: int) -> Disturbance:
    return Disturbance(kind="destroy", at_ns=at(3), repeats_above=place(above))


UNEXPLAINED: list[Case] = [
    ("no reason", history(*DONE, alive(9), event(5, Act.EFFECT, OTHER, number=2)), 1),
    ("a death before the acknowledgement", history(*DONE, EFFECT_AGAIN), 0),
    ("a death after it", REDONE, 1),
    (
        "perhaps acknowledged",
        history(*DONE, event(2.1, Act.ACK, result="?"), alive(9), EFFECT_AGAIN),
        0,
    ),
    (
        "acknowledged by another",
        history(*DONE, event(2.1, Act.ACK, RESTARTED, result="1"), alive(9), EFFECT_AGAIN),
        1,
    ),
    ("a timeout", history(*DONE, event(21.5, Act.EFFECT, OTHER), alive(30)), 0),
    ("the group was created below it", replace(REDONE, disturbances=(recreated(0),)), 0),
    ("the group was created above it", replace(REDONE, disturbances=(recreated(1),)), 1),
    ("a failover", replace(REDONE, disturbances=(FAILOVER,)), 0),
    (
        "a failover that lost only later writes",
        replace(REDONE, disturbances=(replace(FAILOVER, forgets_from_ns=at(2.5)),)),
        1,
    ),
    ("a redrive in the ledger", history(*MOVED, moves=(redriven(2),)), 0),
    ("a copy without a redrive", history(*MOVED), 1),
    (
        "a redrive after an acknowledgement",
        history(event(1.1, Act.ACK, result="1"), *MOVED, moves=(redriven(2),)),
        1,
    ),
]

# --- the worker SDK


def of_two(*events: Event, hindrances: tuple[Hindrance, ...] = ()) -> History:
    """One entry's history, by two workers that live on."""
    return replace(history(*events), hindrances=hindrances, alive=frozenset({FIRST, OTHER}))


def hindered(kind: str, began: float, ended: float, pid: int = FIRST.pid) -> Hindrance:
    return Hindrance(kind=kind, began_ns=at(began), ended_ns=at(ended), pid=pid)


FIRST_STARTS = event(1, Act.START, result="3000")
OTHER_STARTS = event(2, Act.START, OTHER, result="3000")
BOTH_START = of_two(FIRST_STARTS, OTHER_STARTS)


def expiring(left_ms: str) -> History:
    """The first worker owned its entries for 500 ms more; at 3 s it sees how long it does."""
    later = event(3, Act.HOLD, result=left_ms)
    return of_two(event(1, Act.START, result="500"), OTHER_STARTS, later)


OVERLAPS: list[Case] = [
    ("both own it", BOTH_START, 1),
    ("expired before the other began", expiring("0"), 0),
    ("renewed in between", expiring("900"), 1),
    ("dropped before", of_two(FIRST_STARTS, event(1.5, Act.DROP), OTHER_STARTS), 0),
    ("the first one died", replace(BOTH_START, alive=frozenset({OTHER})), 0),
]
STARTED, EARLY_ACK = event(1, Act.START), event(2, Act.ACK, result="1")
REPORTED = frozenset({place(1)})
WITHOUT_EFFECT: list[Case] = [
    ("before the effect", of_two(STARTED, EARLY_ACK, event(3, Act.EFFECT)), 1),
    ("after the effect", of_two(STARTED, event(1.5, Act.EFFECT), EARLY_ACK), 0),
    ("never an effect", replace(of_two(STARTED), acknowledged=REPORTED), 1),
    ("handled", replace(of_two(event(1, Act.EFFECT)), acknowledged=REPORTED), 0),
]
FOREIGN_ACK = of_two(
    STARTED, event(2, Act.EFFECT), event(3, Act.START, OTHER), event(4, Act.ACK, result="1")
)
FOREIGN: list[Case] = [
    ("no hindrance", FOREIGN_ACK, 1),
    ("stopped", replace(FOREIGN_ACK, hindrances=(hindered("stopped", 2.1, 3.9),)), 1),
    ("its network stalled", replace(FOREIGN_ACK, hindrances=(hindered("stalled", 2.1, 3.9),)), 0),
]
TWO_EFFECTS = of_two(event(1, Act.EFFECT), event(30, Act.EFFECT, OTHER))
ACKED_BETWEEN = of_two(event(1, Act.EFFECT), EARLY_ACK, event(30, Act.EFFECT, OTHER))
INEXPLICABLE: list[Case] = [
    ("no fault", TWO_EFFECTS, 1),
    *(
        (f"process {pid} stopped", replace(TWO_EFFECTS, hindrances=(stopped,)), 0)
        for pid in (FIRST.pid, OTHER.pid)
        for stopped in [hindered("stopped", 20, 29, pid)]
    ),
    ("slow", replace(TWO_EFFECTS, hindrances=(hindered("slow", 2, 29),)), 1),
    (
        "stopped after the acknowledgement",
        replace(ACKED_BETWEEN, hindrances=(hindered("stopped", 3, 29),)),
        1,
    ),
]
ENDED = replace(of_two(STARTED), alive=frozenset())


def exited(code: str) -> History:
    return replace(ENDED, events=(*ENDED.events, Event(at(2), FIRST, Act.END, result=code)))


UNEXPECTED_END: list[Case] = [
    ("without a word", ENDED, 1),
    ("killed", replace(ENDED, hindrances=(hindered("killed", 2, 2),)), 0),
    ("exit code 0", exited("0"), 0),
    ("exit code 1", exited("1"), 1),
]

# --- the whole run

CRASHES = [event(number, Act.CRASH, number=number) for number in range(11)]
UNSETTLED = history(owed=frozenset({"a"}), problems=("redis could not be done",))
RUN: list[tuple[Checker, Case]] = [
    (find_unreported, ("nothing", history(), 0)),
    (find_unreported, ("a loss", history(unreported=("7 entries lost",)), 1)),
    (find_excess_crashes, ("of two poisons", history(*CRASHES[1:], is_poisoned_fleet=True), 0)),
    (find_excess_crashes, ("one more", history(*CRASHES, is_poisoned_fleet=True), 1)),
    (find_excess_crashes, ("without poison", history(*CRASHES), 0)),
    (find_unsettled, ("an entry and a fault", UNSETTLED, 2)),
    (find_unsettled, ("all settled", history(), 0)),
]
TABLES: dict[Checker, list[Case]] = {
    find_lost: LOST,
    find_innocents_dead_lettered: INNOCENT,
    find_acknowledged_and_dead_lettered: ACKNOWLEDGED,
    find_premature_recoveries: PREMATURE,
    find_recovered_twice: RECOVERED_TWICE,
    find_unexplained_duplicates: UNEXPLAINED,
    find_overlaps: OVERLAPS,
    find_acknowledged_without_effect: WITHOUT_EFFECT,
    find_foreign_acknowledgements: FOREIGN,
    find_inexplicable_duplicates: INEXPLICABLE,
    find_unexpected_ends: UNEXPECTED_END,
}


@pytest.mark.parametrize(
    ("check", "happened", "count"),
    [
        pytest.param(check, happened, count, id=f"{check.__name__}-{name}")
        for check, (name, happened, count) in [
            *((check, case) for check, cases in TABLES.items() for case in cases),
            *RUN,
        ]
    ],
)
def test_a_checker_finds_each_anomaly_and_no_other(
    check: Checker, happened: History, count: int
) -> None:
    assert len(check(happened)) == count


def test_a_finding_names_its_entry() -> None:
    assert subjects(find_lost(history())) == ["a"]
    assert subjects(find_recovered_twice(history(moves=TWICE))) == [place(1)[1]]
    assert subjects(find_recovered_twice(history(copies=(COPY,)))) == [COPY.place[1]]
    assert subjects(find_unexplained_duplicates(REDONE)) == ["a"]
