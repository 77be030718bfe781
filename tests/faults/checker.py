"""What is wrong with a history: one pure function for each anomaly, each answering its evidence.

An empty answer is a proof only as far as the history goes: it shows nothing that was not recorded.
So each rule errs on the side that can be shown: a process counts as alive until its own last line,
and a disturbance excuses exactly what it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.faults.evidence import Evidence, is_excused, is_excused_loss, is_undone
from tests.faults.history import Act, Event, History, Letter, Source
from tests.faults.premature_recovery import find_premature_recoveries
from tests.faults.repeating import find_recovered_twice, find_unexplained_duplicates

MOST_CRASHES = 10  # that two poison entries may cost
PAYLOAD_GONE = "PayloadGone"
LETTER_MOVES = frozenset({"discarded", "restored"})


def find_lost(history: History) -> list[Evidence]:
    """Entries that Redis had taken and that no worker processed, has, or will get."""
    effected = {event.unique for event in history.events if event.act is Act.EFFECT}
    lettered = {letter.unique for letter in history.letters}
    accounted = effected | lettered | history.owed
    return [
        Evidence(anomaly="lost", subject=unique, text=f"added as {one.entry_id}, then nothing")
        for unique, one in history.produced.items()
        if one.is_certain and unique not in accounted and not is_excused_loss(history, unique)
    ]


def find_innocents_dead_lettered(history: History) -> list[Evidence]:
    """Dead letters of entries other than poison; a body that a fault took away is excused."""
    return [
        Evidence(
            anomaly="innocent dead-lettered",
            subject=letter.unique or letter.root_id,
            text=f"letter {letter.letter_id}, {letter.reason}",
        )
        for letter in history.letters
        if not _is_just(letter, history)
    ]


def find_acknowledged_and_dead_lettered(history: History) -> list[Evidence]:
    """Dead letters of entries that a worker had acknowledged."""
    acknowledged = {
        event.unique: event
        for event in history.events
        if event.act is Act.ACK and event.result == "1"
    }
    return [
        Evidence(
            anomaly="acknowledged and dead-lettered",
            subject=letter.unique,
            text=f"letter {letter.letter_id}, acknowledged as {acknowledged[letter.unique].place}",
        )
        for letter in history.letters
        if letter.unique in acknowledged
        and not _is_excused_letter(letter, acknowledged[letter.unique], history)
    ]


def find_excess_crashes(history: History) -> list[Evidence]:
    """More crashes than it takes to find the poison, where nothing else ended workers."""
    crashes = sum(event.act is Act.CRASH for event in history.events)
    if not history.is_poisoned_fleet or crashes <= MOST_CRASHES:
        return []
    text = f"{crashes} crashes, {MOST_CRASHES} are enough"
    return [Evidence(anomaly="excess crashes", subject=history.name, text=text)]


def find_unsettled(history: History) -> list[Evidence]:
    """Why a history proves nothing: entries are left to process, or poison still goes round."""
    found = [
        Evidence(anomaly="not drained", subject=history.name, text=text)
        for text in history.problems
    ]
    if history.owed:
        some = ", ".join(sorted(history.owed)[:5])
        text = f"{len(history.owed)} entries are still owed, such as {some}"
        found.append(Evidence(anomaly="not drained", subject=history.name, text=text))
    return found


def find_unreported(history: History) -> list[Evidence]:
    """Losses by a fault that the operator could know of and did not report."""
    return [
        Evidence(anomaly="loss not reported", subject=history.name, text=text)
        for text in history.unreported
    ]


def find_disagreements(history: History) -> list[Evidence]:
    """Objects that two versions of the operator wrote by turns while they ran side by side."""
    return [
        Evidence(anomaly="versions disagree", subject=history.name, text=text)
        for text in history.disagreements
    ]


def _is_excused_letter(letter: Letter, acknowledged: Event, history: History) -> bool:
    """Whether its acknowledgement was undone before, or the redrive that it came after."""
    if is_excused(history, acknowledged, letter.at_ns):
        return True
    is_older = letter.at_ns < acknowledged.at_ns  # its copy was acknowledged
    return is_older and is_undone(history, letter.unique, acknowledged.place, acknowledged.at_ns)


def _is_just(letter: Letter, history: History) -> bool:
    produced = history.produced.get(letter.unique)
    if produced is not None and (produced.is_poison or produced.place == letter.place):
        return True
    was_moved_here = any(
        move.new_place == letter.place for move in history.moves if move.kind in LETTER_MOVES
    )
    if was_moved_here and produced is not None and produced.source is Source.DEAD_LETTER:
        return True
    return letter.reason == PAYLOAD_GONE and is_excused_loss(history, letter.unique)


Check = Callable[[History], list[Evidence]]

# By the names of the report's fields.
ANOMALIES: Mapping[str, Check] = {
    "lost": find_lost,
    "robbed": find_premature_recoveries,
    "recovered_twice": find_recovered_twice,
    "innocents_dead_lettered": find_innocents_dead_lettered,
    "acknowledged_and_dead_lettered": find_acknowledged_and_dead_lettered,
    "unexplained_duplicates": find_unexplained_duplicates,
}
# Those that make a run fail without a field of their own.
OTHERS: tuple[Check, ...] = (
    find_excess_crashes,
    find_unsettled,
    find_unreported,
    find_disagreements,
)
