"""What happened, as those who took part wrote it down outside Redis: facts for the checker.

All times are nanoseconds of this machine's real clock, which no fault changes. The collectors
convert times of Redis to it. An entry has an ID in each stream it is copied to; the unique name in
its payload identifies it in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SECOND_NS = 1_000_000_000
# Kinds of the ledger: a redrive moved dead letters.
REDRIVES = frozenset({"redriven", "discarded", "restored"})


class Act(StrEnum):
    """The events that a worker records: one line each, before or after the event as noted."""

    BOOT = "boot"  # the process began
    READ = "read"  # after the entry arrived, however
    SKIP = "skip"  # after its history showed what a former process died of: it leaves that alone
    CLAIM = "claim"  # after it was claimed from a dead owner; a READ follows
    START = "start"  # before its handler runs; with ms for which it is surely this worker's
    HOLD = "hold"  # it is at work, and will be the owner for so many ms yet
    DROP = "drop"  # its handler was ended, or ended otherwise than well
    EFFECT = "effect"  # the effect itself: this line is what the handler does
    ACK = "ack"  # after an acknowledgement: 1 taken, 0 was not pending, ? not known
    CRASH = "crash"  # before a poison entry ends the process
    BEAT = "beat"  # alive with nothing to do
    END = "end"  # before an exit that was asked for


class Source(StrEnum):
    """The streams in which an entry can have an ID."""

    STREAM = "s"
    RETRY = "r"
    DEAD_LETTER = "d"
    DISCARDED = "x"


Place = tuple[Source, str]  # an entry's ID, and in which stream


@dataclass(frozen=True, slots=True)
class Process:
    """One life of a worker; a restarted container has the consumer's name of the last one."""

    consumer: str
    boot: str  # unique: when it began, in ns, and its number
    pid: int

    @property
    def began_ns(self) -> int:
        """When it began to write."""
        return int(self.boot.partition("-")[0])


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a worker."""

    at_ns: int
    process: Process
    act: Act
    place: Place | None = None
    unique: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """An entry that a producer sent."""

    unique: str
    entry_id: str | None  # None: no answer came, so it may exist
    at_ns: int
    is_poison: bool = False  # or to be a dead letter for another reason
    source: Source = Source.STREAM  # or it was added as a dead letter

    @property
    def place(self) -> Place | None:
        """Where it was added, if that is known."""
        return None if self.entry_id is None else (self.source, self.entry_id)

    @property
    def is_certain(self) -> bool:
        """Whether Redis answered with its ID."""
        return self.entry_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What the ledger records of one entry: it was requeued, released or dead-lettered.

    Or it was a dead letter, or a discarded one, that a redrive moved.
    """

    kind: str
    at_ns: int
    place: Place
    new_id: str | None
    consumer: str  # the owner until then
    actor: str = ""  # who did it: an operator, or the owner itself
    idle_ms: int
    deliveries: int = 1
    retries: int = 0
    reason: str = ""
    target: Source | None = None  # of the new ID, where a redrive moved a dead letter

    @property
    def new_place(self) -> Place | None:
        """Where a redrive moved a dead letter."""
        return None if self.target is None or self.new_id is None else (self.target, self.new_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter, discarded or not."""

    letter_id: str
    at_ns: int
    unique: str  # empty: its body was deleted, and no record has its name
    root_id: str
    reason: str
    source: Source = Source.DEAD_LETTER

    @property
    def place(self) -> Place:
        """Where it is."""
        return (self.source, self.letter_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """An entry that the operator added to a stream."""

    place: Place
    at_ns: int
    unique: str
    root_id: str
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """The damage of a fault to the data. Only this damage excuses a finding."""

    kind: str
    at_ns: int
    lost: frozenset[str] = frozenset()  # unique names that it took away
    repeated: frozenset[str] = frozenset()  # unique names whose acknowledgement or move it undid
    repeats_above: Place | None = None  # from then on all above this ID may come again
    forgets_from_ns: int | None = None  # what was done from then to `until_ns` may be undone
    until_ns: int = 0

    def excuses_loss(self, unique: str) -> bool:
        """Whether this took the entry away."""
        return unique in self.lost

    def excuses_repeat(self, unique: str, place: Place | None, done_ns: int, again_ns: int) -> bool:
        """Whether what was done to an entry at one time may happen to it once more at the other."""
        if again_ns < self.at_ns:
            return False
        if unique in self.repeated:
            return True
        if self.forgets_from_ns is not None and self.forgets_from_ns <= done_ns <= self.until_ns:
            return True
        return self.repeats_above is not None and _is_above(place, self.repeats_above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """An interruption that kept workers from sending heartbeats."""

    kind: str
    began_ns: int
    ended_ns: int
    pid: int = 0  # 0: each process that uses the wire
    wire: int = 0
    wires: int = 0

    def hits(self, process: Process) -> bool:
        """Whether it was this worker's."""
        if self.pid:
            return self.pid == process.pid
        return process.pid % self.wires == self.wire


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that is known of one consumer group when everything has come to rest."""

    name: str
    timeout_ns: int  # processingTimeoutSeconds
    produced: Mapping[str, Produced]
    events: tuple[Event, ...] = ()
    moves: tuple[Move, ...] = ()
    letters: tuple[Letter, ...] = ()
    copies: tuple[Copy, ...] = ()
    disturbances: tuple[Disturbance, ...] = ()
    owed: frozenset[str] = frozenset()  # undelivered or pending at the end
    other_groups: tuple[tuple[int, int], ...] = ()  # when another group was there
    is_poisoned_fleet: bool = False  # only poison ended workers
    problems: tuple[str, ...] = field(default=())  # why it did not come to rest
    unreported: tuple[str, ...] = ()  # losses by a fault that the operator did not report
    disagreements: tuple[str, ...] = ()  # what versions of the operator wrote by turns
    # Of workers whose every fault was written down; None: of others.
    hindrances: tuple[Hindrance, ...] | None = None
    acknowledged: frozenset[Place] = frozenset()  # by Redis' own file, whichever client did it
    alive: frozenset[Process] = frozenset()  # at the end


def parse_id(entry_id: str) -> tuple[int, int]:
    """An entry ID in its order."""
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence or 0)


def _is_above(place: Place | None, limit: Place) -> bool:
    if place is None or place[0] is not limit[0]:
        return False
    return parse_id(place[1]) > parse_id(limit[1])
