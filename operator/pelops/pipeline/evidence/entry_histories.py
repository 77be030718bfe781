"""What the files say of each entry of a stream, and of what each group did with it.

An entry takes 17 bytes, and about 25 more for each group. It is referred to by a number: from 0 on
when the files saw it added, in the stream's order; below 0 when it was there before them (`stray`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from pelops.domain.ledger import LedgerKind
from pelops.policy.audit.classification import Proof


class Fate(IntEnum):
    """The last thing that the files say of an entry; the value is how it is kept."""

    UNDELIVERED = 0
    PENDING = 1
    ACKNOWLEDGED = 2
    CONSUMER_REMOVED = 3  # with its pending record: nobody acknowledged it
    GROUP_DESTROYED = 4
    BODY_MISSED = 5  # a claim found no body, and dropped the record
    REFERENCE_DELETED = 6  # deleted or trimmed together with the record (DELREF)
    STREAM_DELETED = 7
    READ_WITHOUT_RECORD = 8  # NOACK: the position passed it, and no record was made
    SKIPPED = 9  # the position was set past it
    BEFORE_GROUP = 10  # the group began after it, or was created when it was gone already
    # A claim dropped its record, or renewed it: its body may have been there. Or the stream's name
    # was given to something else.
    UNKNOWN = 11


class AcknowledgementKind(IntEnum):
    """Whose acknowledgement it was."""

    WORKER = 0
    REQUEUED = 1
    DEAD_LETTERED = 2
    PAYLOAD_GONE = 3
    OTHER = 4  # with a record in the ledger that names another kind


class Removal(IntEnum):
    """Whether the stream still held the entry at the end of the files."""

    PRESENT = 0
    DELETED = 1
    TRIMMED = 2
    STREAM_DELETED = 3
    UNKNOWN = 4  # trimmed by length, after a command of which the files do not tell the effect


# The acts of the operator that end an entry. Tables name them as the ledger does.
ENDING_ACTS: Final = {
    AcknowledgementKind.REQUEUED: LedgerKind.REQUEUED,
    AcknowledgementKind.DEAD_LETTERED: LedgerKind.DEAD_LETTERED,
    AcknowledgementKind.PAYLOAD_GONE: LedgerKind.PAYLOAD_GONE,
}
ACTS: Final = {kind.value: act for act, kind in ENDING_ACTS.items()}
# What is proven; an entry that waits, or whose end is an act of the operator, needs no proof.
PROOFS: Final = {
    Fate.ACKNOWLEDGED: Proof.ACKNOWLEDGED,
    Fate.CONSUMER_REMOVED: Proof.DROPPED,
    Fate.GROUP_DESTROYED: Proof.DROPPED,
    Fate.BODY_MISSED: Proof.DROPPED,
    Fate.REFERENCE_DELETED: Proof.DROPPED,
    Fate.STREAM_DELETED: Proof.DROPPED,
    Fate.READ_WITHOUT_RECORD: Proof.NOACK,
    Fate.SKIPPED: Proof.SKIPPED,
}


def name_of(member: IntEnum) -> str:
    """What tables call it."""
    return member.name.lower().replace("_", "-")


def prove(
    fate: Fate, act: AcknowledgementKind, removal: Removal, *, is_covered: bool
) -> Proof | None:
    """What the files prove of an entry at or below the position; None proves nothing.

    Never delivered is only proven of an entry that was added before the eyes of the files.
    """
    if fate is Fate.ACKNOWLEDGED and act is not AcknowledgementKind.WORKER:
        return None
    if fate is Fate.UNDELIVERED:
        is_gone = removal in {Removal.DELETED, Removal.TRIMMED, Removal.STREAM_DELETED}
        return Proof.SKIPPED if is_gone and is_covered else None
    return PROOFS.get(fate)


Id: TypeAlias = tuple[int, int]
MIN: Final[Id] = (0, 0)
_PRESENT: Final = int(Removal.PRESENT)  # a plain number is stored faster
_REMEMBERED: Final = 8192  # an ID comes back soon: added, delivered, acknowledged


@lru_cache(maxsize=_REMEMBERED)
def parse_id(word: bytes) -> Id:
    """The ID that a command names; one without a sequence number is the first of its time.

    Raises ValueError for anything else.
    """
    ms, _, seq = word.partition(b"-")
    return int(ms), int(seq or 0)


class EntryTable:
    """Which entries were added, which of them are gone, and why."""

    def __init__(self, after: Id = MIN) -> None:
        self.after = after  # entries up to it are not looked at
        self.ms = array("Q")
        self.seq = array("Q")
        self.removals = bytearray()
        self.strays: dict[Id, int] = {}
        self.last: Id = MIN
        self.uncovered = 0  # so many of the first were there before the files
        self.is_exact = True  # its length is known; False: only what an ID bounds is
        self._newest: Id = MIN  # of those that are kept
        self._present = 0
        self._head = 0  # nothing before it is present
        self._hint = 0  # entries are looked for in their order, mostly

    def __len__(self) -> int:
        return len(self.ms)

    def add(self, entry_id: Id, *, is_covered: bool = True) -> int | None:
        """An entry was added; from which number on others are forgotten, when its ID is not new.

        Only a stream that was deleted gives IDs again.
        """
        forgotten = None
        if entry_id <= self._newest:
            forgotten = self.lower_bound(entry_id)
            self._forget_from(forgotten)
        self.last = entry_id
        if entry_id > self.after:
            self._newest = entry_id
            self.ms.append(entry_id[0])
            self.seq.append(entry_id[1])
            self.removals.append(_PRESENT)
            self._present += 1
            if not is_covered:
                self.uncovered = len(self.ms)
        return forgotten

    def find(self, entry_id: Id) -> int | None:
        """Its number; None when the files did not see it added."""
        at = self._hint
        if at < len(self.ms) and self.ms[at] == entry_id[0] and self.seq[at] == entry_id[1]:
            self._hint = at + 1
            return at
        at = self.lower_bound(entry_id)
        if at < len(self.ms) and self.ms[at] == entry_id[0] and self.seq[at] == entry_id[1]:
            self._hint = at + 1
            return at
        return self.strays.get(entry_id)

    def find_or_note(self, entry_id: Id) -> int | None:
        """Its number, a new one for an entry from before the files; None when not looked at."""
        found = self.find(entry_id)
        if found is None and entry_id > self.after:
            found = self.strays[entry_id] = -1 - len(self.strays)
        return found

    def lower_bound(self, entry_id: Id) -> int:
        """The number of the first entry that is not smaller."""
        ms, seq = entry_id
        start = bisect_left(self.ms, ms)
        end = bisect_right(self.ms, ms, lo=start)
        return bisect_left(self.seq, seq, lo=start, hi=end)

    def upper_bound(self, entry_id: Id) -> int:
        """The number of the first entry that is greater."""
        return self.lower_bound((entry_id[0], entry_id[1] + 1))

    def removal_of(self, number: int) -> int:
        """A `Removal`."""
        return self.removals[number] if number >= 0 else Removal.UNKNOWN

    def delete(self, entry_id: Id, why: Removal = Removal.DELETED) -> int | None:
        """It was deleted, or perhaps; its number."""
        number = self.find(entry_id)
        if number is not None and number >= 0:
            self._remove(number, why)
        return number

    def trim_below(self, entry_id: Id) -> range:
        """Everything smaller was trimmed; the numbers that this concerns."""
        return self._trim_to(min(self.lower_bound(entry_id), len(self.ms)), Removal.TRIMMED)

    def trim_to_length(self, length: int) -> range:
        """All but so many were trimmed; the numbers that this concerns."""
        end, surplus = self._head, self._present - length
        while surplus > 0 and end < len(self.removals):
            surplus -= self.removals[end] == Removal.PRESENT
            end += 1
        return self._trim_to(end, Removal.TRIMMED if self.is_exact else Removal.UNKNOWN)

    def delete_stream(self) -> None:
        """The key went, or holds something else now."""
        self._trim_to(len(self.ms), Removal.STREAM_DELETED)
        self.last = MIN
        self.is_exact = True

    def doubt(self) -> None:
        """What went with the stream may be there again."""
        for number, removal in enumerate(self.removals):
            if removal == Removal.STREAM_DELETED:
                self.removals[number] = Removal.UNKNOWN

    def _trim_to(self, end: int, why: Removal) -> range:
        concerned = range(self._head, max(end, self._head))
        for number in concerned:
            self._remove(number, why)
        self._head = concerned.stop
        return concerned

    def _remove(self, number: int, why: Removal) -> None:
        if self.removals[number] == Removal.PRESENT:
            self.removals[number] = why
            self._present -= 1

    def _forget_from(self, number: int) -> None:
        del self.ms[number:], self.seq[number:], self.removals[number:]
        self._head, self._hint = min(self._head, number), 0
        self._present = self.removals.count(_PRESENT)
        self._newest = (self.ms[-1], self.seq[-1]) if self.ms else MIN


_PASSED = frozenset({Fate.READ_WITHOUT_RECORD, Fate.SKIPPED, Fate.BEFORE_GROUP})
_ROOM = 4096  # entries
_MOST_COUNTED = 2**32 - 1  # deliveries
# As plain numbers: an enumeration's member takes longer to be stored.
_PENDING, _ACKNOWLEDGED = int(Fate.PENDING), int(Fate.ACKNOWLEDGED)


class Delivery(NamedTuple):
    """A pending record as it was written."""

    consumer: bytes
    at_ms: int
    deliveries: int


class Columns:
    """What is kept of each entry, by its number."""

    def __init__(self) -> None:
        self.fate = bytearray()
        self.act = bytearray()
        self.consumer = array("I")  # its number, from 1 on; 0: none yet
        self.deliveries = array("I")
        self.first_ms = array("Q")  # of the first delivery; 0: none
        self.at_ms = array("Q")  # of the last thing that happened; 0: unknown

    def make_room(self, size: int) -> None:
        """Hold so many entries at least."""
        missing = size - len(self.fate)
        if missing > 0:
            missing = max(missing, _ROOM)
            for column in (self.fate, self.act):
                column.extend(bytes(missing))
            for numbers in (self.consumer, self.deliveries, self.first_ms, self.at_ms):
                numbers.frombytes(bytes(missing * numbers.itemsize))

    def cut(self, size: int) -> None:
        """Forget all from this number on."""
        for column in (self.fate, self.act):
            del column[size:]
        for numbers in (self.consumer, self.deliveries, self.first_ms, self.at_ms):
            del numbers[size:]


class GroupLives:
    """The entries' lives in one group. Entries are numbered as the stream's table does."""

    def __init__(self, table: EntryTable) -> None:
        self.position: Id | None = None  # last-delivered-id; None: unknown, or no group
        self._reached = 0  # how many of the added entries it has passed
        self._latest: Id | None = None  # the last entry that was delivered, and its number
        self._latest_number = 0
        self.consumers: list[str] = [""]  # by number
        self.added = Columns()
        self.strays = Columns()
        self._table = table
        self._pending: set[int] = set()
        self._numbers: dict[bytes, int] = {}
        self._has_been = False  # the group was there before
        self.created_at: Id | None = None  # where it first was, or the lowest that it was set to
        self._is_new = True  # it was in no stream of this name

    def create(self, position: Id, *, is_known: bool = False) -> None:
        """The group was created, or `is_known`: it was there before, and stood there."""
        how = Fate.SKIPPED if self._has_been else Fate.BEFORE_GROUP
        how = Fate.UNDELIVERED if is_known else how
        if how is Fate.BEFORE_GROUP:
            self.created_at = position
            if self._is_new:
                self._leave_out_removed()
        self._is_new = False
        self._forget_position()
        self.set_position(position, how)

    def destroy(self, fate: Fate) -> None:
        """The group went, and its records with it."""
        self._drop(list(self._pending), fate, 0)
        self._forget_position()
        # What a new stream holds before a group begins was never its own.
        self._has_been = fate is not Fate.STREAM_DELETED

    def set_position(self, position: Id, how: Fate) -> None:
        """The position moved; what it passed undelivered and present is passed so."""
        self._has_been = True
        if position == self.position:
            return
        if self.created_at is not None and position < self.created_at:
            self.created_at = position  # what lies between is the group's from now on
        self.position, before = position, self._reached
        if position == self._latest:
            self._reached = self._latest_number + 1
        else:
            self._reached = self._table.upper_bound(position)
        self.added.make_room(self._reached)
        if self._reached > before:
            self._pass(range(before, self._reached), how)
        else:
            self._unpass(range(self._reached, before))

    def forget_from(self, number: int) -> None:
        """Other entries have the numbers from this one on."""
        self._pending = {one for one in self._pending if one < number}
        self._reached, self._latest = min(self._reached, number), None
        self.added.cut(number)

    def deliver(self, entry_id: Id, number: int, delivery: Delivery) -> None:
        """A consumer was given the entry, first or again; or a claim found its body gone.

        Servers write the second as the record that was there, unchanged.
        """
        columns, at = self.added, number
        if not 0 <= at < len(columns.fate):
            columns, at = self._place(number)
        name, at_ms, count = delivery
        consumer = self._numbers.get(name) or self._number_of(name)
        if number in self._pending and self._missed_body(number, consumer, delivery):
            return
        if number >= 0:
            self._latest, self._latest_number = entry_id, number
        self._pending.add(number)
        columns.fate[at] = _PENDING
        columns.consumer[at] = consumer
        columns.deliveries[at] = count if count < _MOST_COUNTED else _MOST_COUNTED
        columns.at_ms[at] = at_ms
        if not columns.first_ms[at]:
            columns.first_ms[at] = at_ms

    def acknowledge(self, number: int, act: AcknowledgementKind, at_ms: int) -> bool:
        """It was acknowledged; False when it was not pending, and nothing happened."""
        if number not in self._pending:
            return False
        self._pending.remove(number)
        # What is pending has its place already.
        columns, at = (self.added, number) if number >= 0 else (self.strays, -1 - number)
        columns.fate[at] = _ACKNOWLEDGED
        columns.act[at] = act
        columns.at_ms[at] = at_ms
        return True

    def remove_consumer(self, name: bytes, at_ms: int) -> None:
        """The consumer went, and its records with it."""
        consumer = self._numbers.get(name)
        if consumer is not None:
            held = [one for one in self._pending if self._consumer_of(one) == consumer]
            self._drop(held, Fate.CONSUMER_REMOVED, at_ms)

    def doubt(self) -> None:
        """The stream was replaced: how it goes on with what was not at its end is not known."""
        open_fates = {Fate.UNDELIVERED, Fate.STREAM_DELETED}
        self.added.make_room(len(self._table))
        for columns in (self.added, self.strays):
            for number, fate in enumerate(columns.fate):
                if fate in open_fates and (columns is self.strays or number < len(self._table)):
                    columns.fate[number] = Fate.UNKNOWN

    def drop_references(self, numbers: Iterable[int], at_ms: int) -> None:
        """Entries were deleted together with their records."""
        held = [one for one in numbers if one in self._pending]
        self._drop(held, Fate.REFERENCE_DELETED, at_ms)

    def _missed_body(self, number: int, consumer: int, delivery: Delivery) -> bool:
        """Drop the record that is written again as it was, of an entry that may be gone."""
        columns, at = self._place(number)
        known = columns.consumer[at], columns.at_ms[at], columns.deliveries[at]
        removal = self._table.removal_of(number)
        if known != (consumer, delivery.at_ms, delivery.deliveries) or removal == Removal.PRESENT:
            return False
        is_known = removal != Removal.UNKNOWN
        self._drop((number,), Fate.BODY_MISSED if is_known else Fate.UNKNOWN, 0)
        return True

    def _drop(self, numbers: Iterable[int], fate: Fate, at_ms: int) -> None:
        for number in numbers:
            self._pending.discard(number)
            columns, at = self._place(number)
            columns.fate[at] = fate
            if at_ms:
                columns.at_ms[at] = at_ms

    def _forget_position(self) -> None:
        self.position, self._reached = None, 0

    def _pass(self, numbers: range, how: Fate) -> None:
        fates, removals = self.added.fate, self._table.removals
        for number in numbers:
            if fates[number] == Fate.UNDELIVERED and removals[number] == Removal.PRESENT:
                fates[number] = how

    def _leave_out_removed(self) -> None:
        """What was gone before the group was first created was never its own."""
        self.added.make_room(len(self._table))
        fates = self.added.fate
        for number, removal in enumerate(self._table.removals):
            if removal != Removal.PRESENT and fates[number] == Fate.UNDELIVERED:
                fates[number] = Fate.BEFORE_GROUP

    def _unpass(self, numbers: range) -> None:
        """The position went back: what is still there will be delivered."""
        fates, removals = self.added.fate, self._table.removals
        for number in numbers:
            if fates[number] in _PASSED and removals[number] == Removal.PRESENT:
                fates[number] = Fate.UNDELIVERED

    def _place(self, number: int) -> tuple[Columns, int]:
        columns, at = (self.added, number) if number >= 0 else (self.strays, -1 - number)
        if at >= len(columns.fate):
            columns.make_room(at + 1)
        return columns, at

    def _consumer_of(self, number: int) -> int:
        columns, at = self._place(number)
        return columns.consumer[at]

    def _number_of(self, name: bytes) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.consumers)
            self.consumers.append(name.decode(errors="replace"))
        return number
