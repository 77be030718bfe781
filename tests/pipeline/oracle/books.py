"""The true end of every entry, for each group: recorded by those who act, never by an audit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Final

from pelops.domain.outcome import EntryStatus


class State(IntEnum):
    """Where an entry is for one group, or how it left it."""

    WAITING = 0  # after the position
    HELD = 1
    ACKNOWLEDGED = 2  # by a worker
    UNRECORDED = 3  # read without a pending record (NOACK)
    REQUEUED = 4
    DEAD_LETTERED = 5
    LETTER_WITHOUT_BODY = 6
    DROPPED = 7  # its pending record went with its consumer
    CLAIMED_AWAY = 8  # a claim found no body and dropped its pending record
    DESTROYED = 9  # its pending record went with the group
    SKIPPED = 10  # the position was moved past it
    PASSED_GONE = 11  # it was deleted when the position passed it
    BEFORE_GROUP = 12  # the group was created after it
    REDRIVEN = 13  # its dead letter was moved back, as a copy
    DISCARDED = 14


class Mark(IntFlag):
    """What happened to an entry at least once, whatever came later."""

    DONE = 1
    REQUEUED = 2
    DEAD_LETTERED = 4
    LETTER_WITHOUT_BODY = 8
    UNRECORDED = 16
    REDRIVEN = 32
    DISCARDED = 64


_MARKS: Final = {
    State.ACKNOWLEDGED: Mark.DONE,
    State.UNRECORDED: Mark.UNRECORDED,
    State.REQUEUED: Mark.REQUEUED,
    State.DEAD_LETTERED: Mark.DEAD_LETTERED,
    State.LETTER_WITHOUT_BODY: Mark.LETTER_WITHOUT_BODY,
    State.REDRIVEN: Mark.REDRIVEN,
    State.DISCARDED: Mark.DISCARDED,
}
_STATUSES: Final = {
    State.ACKNOWLEDGED: EntryStatus.ACKNOWLEDGED_PROVEN,
    State.UNRECORDED: EntryStatus.ACKNOWLEDGED_INFERRED,
    State.REQUEUED: EntryStatus.REQUEUED,
    State.DEAD_LETTERED: EntryStatus.DEAD_LETTERED,
    State.LETTER_WITHOUT_BODY: EntryStatus.PAYLOAD_GONE,
    State.REDRIVEN: EntryStatus.REDRIVEN,
    State.DISCARDED: EntryStatus.DISCARDED,
}
# Of an entry that has a dead letter, and nothing newer.
OF_LETTERS: Final = {State.DEAD_LETTERED, State.DISCARDED}
NEVER_DELIVERED: Final = {State.WAITING, State.SKIPPED, State.PASSED_GONE, State.BEFORE_GROUP}


@dataclass(slots=True)
class StreamBook:
    """The entries of one stream since it was made, in order; a place is an index into them."""

    name: str
    ids: list[bytes] = field(default_factory=list)
    bodies: bytearray = field(default_factory=bytearray)
    copies: dict[int, bytes] = field(default_factory=dict)  # place of a copy: the ID of its root
    groups: dict[str, GroupBook] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=list)  # the IDs as numbers
    trimmed: int = 0  # entries that went by trimming
    deleted: int = 0  # by XDEL
    first: int = 0  # no entry before this place is there

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, ids: Iterable[bytes], roots: Sequence[bytes] = ()) -> list[int]:
        """Entries were added; `roots` names those of copies. Answers their places."""
        start = len(self.ids)
        for entry_id in ids:
            self.places[entry_id] = len(self.ids)
            self.ids.append(entry_id)
            ms, _, seq = entry_id.partition(b"-")
            self.pairs.append((int(ms), int(seq)))
        added = len(self.ids) - start
        self.bodies.extend(b"\x01" * added)
        self.copies.update(zip(range(start, len(self.ids)), roots, strict=False))
        for group in self.groups.values():
            group.grow(added)
        return list(range(start, len(self.ids)))

    def upto(self, ms: int, seq: int) -> int:
        """How many entries lie at or before an ID."""
        return bisect_right(self.pairs, (ms, seq))

    def present(self) -> list[int]:
        """The places of what is there."""
        return [one for one in range(self.first, len(self.ids)) if self.bodies[one]]

    def delete(self, places: Iterable[int]) -> None:
        for place in places:
            self.deleted += self.bodies[place]
            self.bodies[place] = 0

    def trim_to(self, first: bytes | None) -> int:
        """The stream begins with this entry now; None: it is empty. Answers how many went."""
        end = len(self.ids) if first is None else self.places[first]
        went = 0
        if end > self.first:
            went = sum(self.bodies[self.first : end])
            self.bodies[self.first : end] = bytes(end - self.first)
            self.first = end
        self.trimmed += went
        return went

    def group(self, name: str) -> GroupBook:
        """What became of the entries for one group."""
        if name not in self.groups:
            self.groups[name] = GroupBook(self)
            self.groups[name].grow(len(self.ids))
        return self.groups[name]


@dataclass(slots=True)
class GroupBook:
    """One group's part of the truth about a stream."""

    stream: StreamBook
    states: bytearray = field(default_factory=bytearray)
    marks: bytearray = field(default_factory=bytearray)
    held: dict[str, set[int]] = field(default_factory=dict)  # by consumer
    stuck: set[int] = field(default_factory=set)
    # Copies of requeued and redriven entries, in order.
    following: dict[int, list[tuple[StreamBook, int]]] = field(default_factory=dict)
    reached: int = 0  # so many entries lie at or before the position
    exists: bool = False
    has_been: bool = False
    # In the operator's ledger: dropped entries, and those that were removed while they were in the
    # group's backlog, by its position then.
    reported_by_ledger: set[int] = field(default_factory=set)
    lost_by_ledger: set[int] = field(default_factory=set)

    def grow(self, number: int) -> None:
        self.states.extend(bytes(number))
        self.marks.extend(bytes(number))

    def give(self, consumer: str, places: Sequence[int]) -> None:
        """These were delivered to a consumer, as new ones or from another."""
        for owner in self.held.values():
            owner.difference_update(places)
        self.held.setdefault(consumer, set()).update(places)
        self.stuck.difference_update(places)
        self._put(places, State.HELD)

    def read(self, consumer: str, places: Sequence[int], end: State = State.HELD) -> None:
        """New entries were delivered; deleted ones before them were passed over."""
        if not places:
            return
        self._pass(places[-1] + 1, State.PASSED_GONE, State.PASSED_GONE)
        if end is State.HELD:
            self.give(consumer, places)
        else:
            self._put(places, end)

    def finish(self, places: Iterable[int], end: State) -> None:
        """These are pending no more."""
        done = list(places)
        for owner in self.held.values():
            owner.difference_update(done)
        self.stuck.difference_update(done)
        self._put(done, end)
        for place in done:
            if place >= self.reached:  # the position went back: it will be delivered again
                self.states[place] = State.WAITING

    def follow(self, place: int, stream: StreamBook, copy: int) -> None:
        """The entry continues as a copy; one that was delivered again has an end beside it."""
        known = self.following.setdefault(place, [])
        is_end = self.states[place] in {State.REQUEUED, *OF_LETTERS}
        known.insert(len(known) if is_end else 0, (stream, copy))

    def move_letter(self, place: int, end: State) -> None:
        """The dead letter of an entry was moved; an entry that was delivered again stays so."""
        self.marks[place] |= _MARKS[end]
        if self.states[place] in OF_LETTERS:
            self.states[place] = end

    def create(self, reached: int) -> None:
        """The group was created with its position after so many entries."""
        skipped = State.SKIPPED if self.has_been else State.BEFORE_GROUP
        self.exists = self.has_been = True
        self.reached = 0
        self.set_reached(reached, skipped)

    def destroy(self) -> None:
        """The group went, and its pending records with it."""
        self.finish(self.pending(), State.DESTROYED)
        self.held.clear()
        self.exists = False

    def set_reached(self, reached: int, skipped: State = State.SKIPPED) -> None:
        """The position was set by hand: over what was not delivered, or back.

        Entries from before the group that are removed count as if it had been created there.
        """
        pending, bodies = set(self.pending()), self.stream.bodies
        for place in range(reached, len(self.states)):
            was_never_owed = self.states[place] == State.BEFORE_GROUP and not bodies[place]
            if place not in pending and not was_never_owed:
                self.states[place] = State.WAITING
        self.reached = min(self.reached, reached)
        gone = skipped if skipped is State.BEFORE_GROUP else State.PASSED_GONE
        self._pass(reached, skipped, gone)

    def pending(self) -> list[int]:
        return sorted(place for held in self.held.values() for place in held)

    def undelivered(self) -> list[int]:
        """What is there and waits."""
        bodies = self.stream.bodies
        return [
            one
            for one in range(self.reached, len(self.states))
            if bodies[one] and self.states[one] == State.WAITING
        ]

    def owed_and_gone(self) -> list[int]:
        """What is not there and waits: it can be delivered no more."""
        bodies, states = self.stream.bodies, self.states
        after = range(self.reached, len(states))
        return [one for one in after if not bodies[one] and states[one] == State.WAITING]

    def is_done(self, place: int) -> bool:
        return bool(self.marks[place] & Mark.DONE)

    def status(self, place: int) -> EntryStatus:
        """What an observer who sees everything says of an entry now."""
        state, body = State(self.states[place]), self.stream.bodies[place]
        if state is State.WAITING:
            return EntryStatus.UNDELIVERED if body else EntryStatus.LOST
        if state is State.HELD:
            if not body:
                return EntryStatus.PAYLOAD_GONE
            return EntryStatus.STUCK if place in self.stuck else EntryStatus.IN_FLIGHT
        return _STATUSES.get(state, EntryStatus.LOST)

    def end_of_root(self, place: int) -> EntryStatus:
        """The status of the last copy of what was added there."""
        book, at = self, place
        while book.states[at] in {State.REQUEUED, State.REDRIVEN} and at in book.following:
            stream, at_next = book.following[at][-1]
            name = next(key for key, one in self.stream.groups.items() if one is self)
            book, at = stream.group(name), at_next
        return book.status(at)

    def _pass(self, upto: int, present: State, gone: State) -> None:
        for place in range(self.reached, upto):
            if self.states[place] == State.WAITING:
                self.states[place] = present if self.stream.bodies[place] else gone
        self.reached = max(self.reached, upto)

    def _put(self, places: Iterable[int], state: State) -> None:
        mark = _MARKS.get(state, Mark(0))
        for place in places:
            self.states[place] = state
            self.marks[place] |= mark

    def chains(self) -> Iterator[tuple[int, EntryStatus]]:
        """What users added, each with the end of its last copy."""
        for place in range(len(self.states)):
            if place not in self.stream.copies:
                yield place, self.end_of_root(place)
