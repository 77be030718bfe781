"""What became of entries of dead workers, by ledger, API server, dead letters and effects. Pure."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo.effects import Effect
from demo.workers import SECOND_MS, End, History
from pelops.domain.records.ledger import LedgerEvent, LedgerKind

MOVES = (LedgerKind.REQUEUED, LedgerKind.DEAD_LETTERED, LedgerKind.PAYLOAD_GONE)
BY_WORKER = "worker"  # what the SDK names as trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An entry that a worker was given and has not acknowledged."""

    entry_id: str
    delivered_ms: int
    has_started: bool = True  # according to the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A worker that the demo killed, and what it held then."""

    pod: str
    consumer: str
    process: str
    how: str  # for people
    held: tuple[Held, ...]
    killed_ms: int
    counts: bool  # whether this end is a failed attempt


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
        """The dead letter of these pairs; a missing field is empty, an invalid number -1."""
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
class Redriven:
    """The dead letters of a team, and what became of them."""

    letters: Sequence[Letter] = ()  # before the redrive
    left: Sequence[Letter] = ()  # after it
    status: Mapping[str, Any] = field(default_factory=dict)  # of the StreamRedrive


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One entry that the operator took from a worker, or that a worker gave up."""

    kind: str
    entry_id: str
    original_id: str  # before there were copies
    consumer: str
    delivered_ms: int
    moved_ms: int
    copied_ms: int  # when the copy, or the dead letter, could be read
    attempts: int
    is_own: bool = False  # its own worker did it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """What became of the entries of one victim."""

    victim: Victim
    lost: int  # neither processed nor dead-lettered
    at_once: int  # moved, and delivered to it before the cutoff
    late: int  # moved too, but delivered at or after the cutoff
    # Not moved: the next process in the same pod found them in its history, or another worker
    # claimed them at the processing timeout. How long after the kill the slowest was done.
    resumed: int
    kill_to_resumed_ms: int
    reported_to_deliverable_ms: (
        int  # the slowest of those at once, from the first news; 0 without any
    )
    kill_to_deliverable_ms: int
    wrongly_counted: frozenset[str]  # IDs
    counted_attempts: int

    @property
    def moved(self) -> int:
        """How many the operator took."""
        return self.at_once + self.late


def list_moves(events: Iterable[LedgerEvent]) -> list[Move]:
    """Every entry of every move that the ledger reports."""
    return [
        Move(
            kind=event.kind,
            entry_id=str(entry.entry_id),
            original_id=str(entry.root_id),
            consumer=event.details.get("consumer", ""),
            delivered_ms=event.entry_id.ms - round(entry.idle.total_seconds() * 1000),
            moved_ms=event.entry_id.ms,
            copied_ms=entry.new_id.ms if entry.new_id else event.entry_id.ms,
            attempts=entry.retry_count,
            is_own=event.details.get("trigger") == BY_WORKER,
        )
        for event in events
        if event.kind in MOVES
        for entry in event.entries
    ]


def count_moves(moves: Iterable[Move], kind: LedgerKind) -> int:
    """How many entries had this happen to them."""
    return sum(move.kind == kind for move in moves)


def count_operator_moves(moves: Iterable[Move], kind: LedgerKind) -> int:
    """The same, without what workers did themselves: as the status of a resource counts."""
    return count_moves((move for move in moves if not move.is_own), kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """All that entries of one group left behind."""

    moves: Sequence[Move]
    effects: Sequence[Effect]
    letters: Sequence[Letter]

    def settled_since(self, since_ms: int) -> set[str]:
        """The original IDs of what was done since, or is a dead letter."""
        done = {effect.original_id for effect in self.effects if effect.at_ms >= since_ms}
        return done | {letter.original_id for letter in self.letters}

    def orphans(self, victims: Iterable[Victim]) -> set[str]:
        """The original IDs of what workers held when they ended."""
        moved = {move.original_id for move in self.moves if not move.is_own}
        return moved | {held.entry_id for victim in victims for held in victim.held}


def are_rescued(victims: Iterable[Victim], traces: Traces) -> bool:
    """Whether all that the victims held was moved, or done without that."""
    return all(
        {held.entry_id for held in victim.held}
        <= _find_moved(victim, traces.moves) | traces.settled_since(victim.killed_ms)
        for victim in victims
    )


def _find_moved(victim: Victim, moves: Iterable[Move]) -> set[str]:
    return {move.entry_id for move in moves if move.consumer == victim.consumer}


def assess_rescue(victim: Victim, traces: Traces, history: History) -> Rescue | None:
    """What became of what a victim held; None until its end and its cutoff are reported."""
    end = find_end(victim, history)
    cutoff = history.cutoff_of(end) if end is not None else None
    if end is None or cutoff is None:
        return None
    by_id = {move.entry_id: move for move in traces.moves if move.consumer == victim.consumer}
    moved = [
        (held, by_id[held.entry_id])
        for held in victim.held
        if held.entry_id in by_id and not by_id[held.entry_id].is_own
    ]
    at_once = [move.copied_ms for held, move in moved if held.delivered_ms < cutoff]
    slowest = max(at_once, default=0)
    unmoved = {held.entry_id for held in victim.held} - {held.entry_id for held, _ in moved}
    resumed = [one.at_ms for one in traces.effects if one.original_id in unmoved]
    return Rescue(
        victim=victim,
        lost=len({held.entry_id for held in victim.held} - traces.settled_since(victim.killed_ms)),
        at_once=len(at_once),
        late=len(moved) - len(at_once),
        resumed=len(unmoved),
        kill_to_resumed_ms=max(0, max(resumed, default=0) - victim.killed_ms),
        reported_to_deliverable_ms=max(0, slowest - end.reported_ms) if at_once else 0,
        kill_to_deliverable_ms=slowest - victim.killed_ms if at_once else 0,
        wrongly_counted=frozenset(
            move.entry_id
            for held, move in moved
            if move.attempts != int(victim.counts and held.has_started)
        ),
        counted_attempts=sum(move.attempts > 0 for _, move in moved),
    )


def find_end(victim: Victim, history: History) -> End | None:
    """The end of the very process that was killed."""
    return history.ends.get(victim.process)


def find_robberies(moves: Iterable[Move], history: History) -> list[Move]:
    """The entries that were taken though no process that had them was seen to end."""
    return [move for move in moves if not move.is_own and find_cause(move, history) is None]


def find_cause(move: Move, history: History) -> End | None:
    """The first end that freed the entry; None: its process may have lived. Ends have seconds."""
    for end in history.ends_of(move.consumer):
        if end.finished_ms + SECOND_MS > move.delivered_ms and end.finished_ms <= move.moved_ms:
            return end
    return None


def list_delays(moves: Iterable[Move], history: History) -> list[int]:
    """How long each took from the first news of its worker's end to its copy, in ms; sorted."""
    copies = [move for move in moves if move.kind == LedgerKind.REQUEUED]
    causes = [(move, find_cause(move, history)) for move in copies]
    return sorted(
        max(0, move.copied_ms - end.reported_ms) for move, end in causes if end is not None
    )
