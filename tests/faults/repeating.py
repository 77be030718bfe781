"""What happened more often than it may."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.evidence import Evidence, is_excused, is_undone
from tests.faults.history import (
    REDRIVES,
    SECOND_NS,
    Act,
    Disturbance,
    Event,
    History,
    Move,
    Place,
    Process,
)

MILLISECOND_NS = SECOND_NS // 1000
SEEN = frozenset({Act.READ, Act.SKIP})  # by its owner, whatever it did with it
MOVES_AWAY = frozenset({"requeued", "dead-lettered", "payload-gone"}) | REDRIVES
ADDS_COPIES = frozenset({"requeued", "redriven"})


def find_recovered_twice(history: History) -> list[Evidence]:
    """Deliveries that were requeued or offered twice, unknown copies, claims without an offer."""
    return [
        *_requeued_twice(history),
        *_unknown_copies(history),
        *_offered_twice(history),
        *_claimed_twice(history),
        *_shown_to_others(history),
        *_moved_and_still_there(history),
    ]


def find_unexplained_duplicates(history: History) -> list[Evidence]:
    """Entries processed again without a death, a time-out, an unknown answer or lost data."""
    effects: dict[str, list[Event]] = defaultdict(list)
    for event in history.events:
        if event.act is Act.EFFECT:
            effects[event.unique].append(event)
    repeated = {unique: them for unique, them in effects.items() if len(them) > 1}
    attempts = _read_attempts(history, repeated)
    return [
        Evidence(
            anomaly="unexplained duplicate",
            subject=unique,
            text=f"{first.process.consumer} {first.place} and {second.process.consumer} "
            f"{second.place} {(second.at_ns - first.at_ns) / SECOND_NS:.3f} s later",
        )
        for unique, them in repeated.items()
        for first, second in pairwise(them)
        if not _is_explained(first, second, attempts, history)
    ]


def _requeued_twice(history: History) -> Iterator[Evidence]:
    first: dict[Place, Move] = {}
    names = _name_places(history)
    for move in sorted(history.moves, key=lambda one: one.at_ns):
        if move.kind not in MOVES_AWAY:
            continue
        before = first.setdefault(move.place, move)
        if before is not move and not _is_excused_move(history, before, move, names):
            text = f"{before.kind} as {before.new_id} and {move.kind} as {move.new_id}"
            yield Evidence(anomaly="recovered twice", subject=move.place[1], text=text)
        first[move.place] = move


def _name_places(history: History) -> Mapping[Place, str]:
    names = {one.place: one.unique for one in history.produced.values() if one.place}
    names |= {event.place: event.unique for event in history.events if event.place and event.unique}
    return names | {one.place: one.unique for one in history.letters if one.unique}


def _moved_and_still_there(history: History) -> Iterator[Evidence]:
    """Dead letters of which a redrive made a copy, and that it did not delete."""
    moved = {move.place: move for move in history.moves if move.kind in REDRIVES}
    for letter in history.letters:
        move = moved.get(letter.place)
        if move and not is_undone(history, letter.unique, letter.place, move.at_ns):
            text = f"{move.kind} as {move.new_id}, and it is still there"
            yield Evidence(anomaly="recovered twice", subject=letter.letter_id, text=text)


def _is_excused_move(
    history: History, first: Move, second: Move, names: Mapping[Place, str]
) -> bool:
    unique = names.get(first.place, "")
    return any(
        one.excuses_repeat(unique, first.place, first.at_ns, second.at_ns)
        for one in history.disturbances
    )


def _unknown_copies(history: History) -> Iterator[Evidence]:
    known = {move.new_id for move in history.moves if move.kind in ADDS_COPIES}
    for copy in history.copies:
        if copy.place[1] not in known:
            text = f"a copy of {copy.root_id}, retry {copy.retries}, that no ledger knows"
            yield Evidence(anomaly="recovered twice", subject=copy.place[1], text=text)


def _offered_twice(history: History) -> Iterator[Evidence]:
    """The ledger reports each delivery once that it was offered, however often the offer is."""
    known: dict[tuple[Place, str, int], int] = {}
    names = _name_places(history)
    for move in history.moves:
        if move.kind != "released" or move.idle_ms < 0:
            continue
        delivered_ms = move.at_ns // MILLISECOND_NS - move.idle_ms
        delivery = (move.place, move.consumer, delivered_ms)
        may_repeat = any(_may_undo(one, names.get(move.place, "")) for one in history.disturbances)
        before_ns = known.get(delivery)
        if (
            before_ns is not None
            and not may_repeat
            and not _is_read_forgotten(history, move, before_ns)
        ):
            text = f"its delivery to {move.consumer} was offered twice"
            yield Evidence(anomaly="recovered twice", subject=move.place[1], text=text)
        known[delivery] = move.at_ns


def _is_read_forgotten(history: History, move: Move, since_ns: int) -> bool:
    """Whether the owner read its history after the first offer, and Redis restarted after that.

    Such a read is another delivery, and it failed as well, or the owner left alone what it saw. But
    its time is in no append-only file: after a restart the entry has the time of its first delivery
    again.
    """
    return any(
        event.act in SEEN
        and event.place == move.place
        and event.process.consumer == move.consumer
        and since_ns < event.at_ns < one.at_ns < move.at_ns
        for event in history.events
        for one in history.disturbances
        if one.kind == "redis"
    )


def _claimed_twice(history: History) -> Iterator[Evidence]:
    claims = Counter(event.place for event in history.events if event.act is Act.CLAIM)
    offers = Counter(move.place for move in history.moves if move.kind == "released")
    names = _name_places(history)
    for place, count in claims.items():
        if place is None or count <= offers[place]:
            continue
        if not any(_may_undo(one, names.get(place, "")) for one in history.disturbances):
            text = f"claimed {count} times, offered {offers[place]} times"
            yield Evidence(anomaly="recovered twice", subject=place[1], text=text)


def _may_undo(disturbance: Disturbance, unique: str) -> bool:
    return disturbance.forgets_from_ns is not None or unique in disturbance.repeated


def _shown_to_others(history: History) -> Iterator[Evidence]:
    for copy in history.copies:
        if any(began < copy.at_ns < ended for began, ended in history.other_groups):
            text = f"a copy of {copy.root_id} was added while another group read the stream"
            yield Evidence(anomaly="recovered twice", subject=copy.place[1], text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempts:
    """The actions of the processes that may explain duplicates."""

    last_ns: Mapping[Process, int]
    held_ns: Mapping[tuple[Process, Place], int]  # when the entry was read
    results: Mapping[tuple[Process, Place], list[str]]  # of its acknowledgements
    redriven: frozenset[Place | None]  # copies of dead letters


def _read_attempts(history: History, repeated: Mapping[str, object]) -> _Attempts:
    last: dict[Process, int] = {}
    held: dict[tuple[Process, Place], int] = {}
    results: dict[tuple[Process, Place], list[str]] = defaultdict(list)
    for event in history.events:
        last[event.process] = event.at_ns
        if event.place is None or event.unique not in repeated:
            continue
        if event.act is Act.READ:
            held[event.process, event.place] = event.at_ns
        elif event.act is Act.ACK:
            results[event.process, event.place].append(event.result)
    redriven = frozenset(move.new_place for move in history.moves if move.kind == "redriven")
    return _Attempts(last_ns=last, held_ns=held, results=results, redriven=redriven - {None})


def _is_explained(first: Event, second: Event, attempts: _Attempts, history: History) -> bool:
    if first.place is None or is_excused(history, first, second.at_ns):
        return True
    results = attempts.results.get((first.process, first.place), [])
    if "1" in results:
        return False
    if second.place in attempts.redriven:
        return True  # the ledger has it: it was a dead letter, and was redriven
    died = attempts.last_ns[first.process] < second.at_ns
    held_ns = attempts.held_ns.get((first.process, first.place), first.at_ns)
    return died or "?" in results or second.at_ns - held_ns >= history.timeout_ns
