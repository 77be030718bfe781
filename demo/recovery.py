"""What became of entries whose workers died: facts of ledger, API server and dead letters. Pure."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.workers import SECOND_MS, End, History
from pelops.domain.ledger import LedgerEvent, LedgerKind

MOVES = (LedgerKind.REQUEUED, LedgerKind.DEAD_LETTERED, LedgerKind.PAYLOAD_GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An entry that a worker was given and has not acknowledged."""

    entry_id: str
    delivered_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A worker that the demo killed, and what it held then."""

    pod: str
    consumer: str
    process: str
    how: str  # for people
    held: tuple[Held, ...]
    killed_ms: int
    is_to_blame: bool  # whether this end is charged


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter."""

    path: str
    original_id: str
    reason: str
    error: str
    retry_count: int

    @classmethod
    def parse(cls, pairs: Mapping[str, bytes]) -> "Letter":
        """The letter that these pairs are; what lacks is empty, a number that is none -1."""
        texts = {key: os.fsdecode(value) for key, value in pairs.items()}
        retries = texts.get("_retry_count", "")
        return cls(
            path=texts.get("path", ""),
            original_id=texts.get("_original_id", ""),
            reason=texts.get("_reason", ""),
            error=texts.get("_error", ""),
            retry_count=int(retries) if retries.isdecimal() else -1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One entry that the operator took from a worker."""

    kind: str
    entry_id: str
    consumer: str
    delivered_ms: int
    moved_ms: int
    copied_ms: int  # when the copy, or the letter, was there to be read
    charges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """What became of the entries of one victim."""

    victim: Victim
    lost: int  # still not moved
    at_once: int  # given to it before what Kubernetes tells of its end
    late: int  # the others, of which only time or the next process can tell
    told_to_deliverable_ms: int  # the slowest of those at once, from the first news; 0 without any
    kill_to_deliverable_ms: int
    charges: frozenset[int]


def list_moves(events: Iterable[LedgerEvent]) -> list[Move]:
    """Every entry of every move that the ledger tells of."""
    return [
        Move(
            kind=event.kind,
            entry_id=str(entry.entry_id),
            consumer=event.details.get("consumer", ""),
            delivered_ms=event.entry_id.ms - round(entry.idle.total_seconds() * 1000),
            moved_ms=event.entry_id.ms,
            copied_ms=entry.new_id.ms if entry.new_id else event.entry_id.ms,
            charges=entry.retry_count,
        )
        for event in events
        if event.kind in MOVES
        for entry in event.entries
    ]


def count_moves(moves: Iterable[Move], kind: LedgerKind) -> int:
    """How many entries had this happen to them."""
    return sum(move.kind == kind for move in moves)


def are_moved(victims: Iterable[Victim], moves: Iterable[Move]) -> bool:
    """Whether nothing that the victims held is left."""
    moved = {(move.consumer, move.entry_id) for move in moves}
    return all((one.consumer, held.entry_id) in moved for one in victims for held in one.held)


def assess_rescue(victim: Victim, moves: Iterable[Move], history: History) -> Rescue | None:
    """What became of what a victim held; None as long as nobody told its end."""
    end = find_end(victim, history)
    cut = history.cut_of(end) if end is not None else None
    if end is None or cut is None:
        return None
    by_id = {move.entry_id: move for move in moves if move.consumer == victim.consumer}
    moved = [(held, by_id[held.entry_id]) for held in victim.held if held.entry_id in by_id]
    at_once = [move.copied_ms for held, move in moved if held.delivered_ms < cut]
    slowest = max(at_once, default=0)
    return Rescue(
        victim=victim,
        lost=len(victim.held) - len(moved),
        at_once=len(at_once),
        late=len(moved) - len(at_once),
        told_to_deliverable_ms=max(0, slowest - end.told_ms) if at_once else 0,
        kill_to_deliverable_ms=slowest - victim.killed_ms if at_once else 0,
        charges=frozenset(move.charges for _, move in moved),
    )


def find_end(victim: Victim, history: History) -> End | None:
    """The end of the very process that was killed."""
    return history.ends.get(victim.process)


def find_robberies(moves: Iterable[Move], history: History) -> list[Move]:
    """The entries that were taken though no process that had them was seen to end."""
    return [move for move in moves if find_cause(move, history) is None]


def find_cause(move: Move, history: History) -> End | None:
    """The first end that freed the entry; None: its process may have lived. Ends have seconds."""
    for end in history.ends_of(move.consumer):
        if end.finished_ms + SECOND_MS > move.delivered_ms and end.finished_ms <= move.moved_ms:
            return end
    return None


def list_delays(moves: Iterable[Move], history: History) -> list[int]:
    """How long each entry that had not failed before took from the first news to its copy, in ms.

    Sorted. What had failed before waits for its turn, and is left out.
    """
    fresh = [move for move in moves if move.charges <= 1 and move.kind == LedgerKind.REQUEUED]
    causes = [(move, find_cause(move, history)) for move in fresh]
    return sorted(max(0, move.copied_ms - end.told_ms) for move, end in causes if end is not None)
