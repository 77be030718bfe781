"""The state of each entry of a stream and of each group, according to the files.

An entry takes 17 bytes, and about 25 more for each group. It is identified by a number: 0 or more,
in the stream's order, if the files contain its XADD; below 0 if it is older than the files (a
*stray*).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from pelops.domain.records.ledger import LedgerKind
from pelops.policy.audit.classification import Proof


class Fate(IntEnum):
    """The final state of an entry in the files; the value is the stored code."""

    UNDELIVERED = 0
    PENDING = 1
    ACKNOWLEDGED = 2
    CONSUMER_REMOVED = 3  # with its pending entry, which was not acknowledged
    GROUP_DESTROYED = 4
    BODY_MISSED = 5  # a claim found no body, and dropped the pending entry
    REFERENCE_DELETED = 6  # deleted or trimmed together with the pending entry (DELREF)
    STREAM_DELETED = 7
    READ_WITHOUT_RECORD = 8  # NOACK: the position passed it, without a pending entry
    SKIPPED = 9  # the position was set past it
    BEFORE_GROUP = 10  # the group began after it, or was created after its removal
    # A claim dropped or renewed its pending entry: whether its body existed is unknown. Or the
    # stream's key was replaced.
    UNKNOWN = 11


class AcknowledgementKind(IntEnum):
    """Who acknowledged an entry, and for what."""

    WORKER = 0
    REQUEUED = 1
    DEAD_LETTERED = 2
    PAYLOAD_GONE = 3
    OTHER = 4  # the ledger records another kind


class Removal(IntEnum):
    """Whether the stream holds the entry at the end of the files."""

    PRESENT = 0
    DELETED = 1
    TRIMMED = 2
    STREAM_DELETED = 3
    UNKNOWN = 4  # trimmed by length, after a command whose effect is not in the files


# The operator's acts that end an entry, with their names in the ledger and in tables.
ENDING_ACTS: Final = {
    AcknowledgementKind.REQUEUED: LedgerKind.REQUEUED,
    AcknowledgementKind.DEAD_LETTERED: LedgerKind.DEAD_LETTERED,
    AcknowledgementKind.PAYLOAD_GONE: LedgerKind.PAYLOAD_GONE,
}
ACTS: Final = {kind.value: act for act, kind in ENDING_ACTS.items()}
# Entries that are open, or ended by the operator, need no proof.
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
    """The name of a member in tables."""
    return member.name.lower().replace("_", "-")


def prove(
    fate: Fate, act: AcknowledgementKind, removal: Removal, *, is_covered: bool
) -> Proof | None:
    """What the files prove about an entry at or below the position; None: nothing.

    That an entry was never delivered is proven only if the files contain its XADD.
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
_REMEMBERED: Final = 8192  # an ID soon repeats: added, delivered, acknowledged


@lru_cache(maxsize=_REMEMBERED)
def parse_id(word: bytes) -> Id:
    """Parse the ID of a command; a missing sequence number is 0.

    Raises ValueError for anything else.
    """
    ms, _, seq = word.partition(b"-")
    return int(ms), int(seq or 0)


class EntryTable:
    """The entries that were added, and which of them were removed and why."""

    def __init__(self, after: Id = MIN) -> None:
        self.after = after  # entries up to it are ignored
        self.ms = array("Q")
        self.seq = array("Q")
        self.removals = bytearray()
        self.strays: dict[Id, int] = {}
        self.last: Id = MIN
        self.uncovered = 0  # number of the first entries that are older than the files
        self.is_exact = True  # its length is known; False: only trims by ID are exact
        self._newest: Id = MIN  # highest ID in `ms` and `seq`
        self._present = 0
        self._head = 0  # no entry before it is present
        self._hint = 0  # most searches are in the order of entries

    def __len__(self) -> int:
        return len(self.ms)

    def add(self, entry_id: Id, *, is_covered: bool = True) -> int | None:
        """Add an entry. If its ID is not new, return the number from which entries were dropped.

        IDs repeat only in a stream that was deleted and created again.
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
        """The number of an entry; None if it is not in the table."""
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
        """The number of an entry, a new one for a stray; None if it is ignored."""
        found = self.find(entry_id)
        if found is None and entry_id > self.after:
            found = self.strays[entry_id] = -1 - len(self.strays)
        return found

    def lower_bound(self, entry_id: Id) -> int:
        """The number of the first entry whose ID is not smaller."""
        ms, seq = entry_id
        start = bisect_left(self.ms, ms)
        end = bisect_right(self.ms, ms, lo=start)
        return bisect_left(self.seq, seq, lo=start, hi=end)

    def upper_bound(self, entry_id: Id) -> int:
        """The number of the first entry whose ID is greater."""
        return self.lower_bound((entry_id[0], entry_id[1] + 1))

    def removal_of(self, number: int) -> int:
        """The `Removal` of an entry."""
        return self.removals[number] if number >= 0 else Removal.UNKNOWN

    def delete(self, entry_id: Id, why: Removal = Removal.DELETED) -> int | None:
        """Mark an entry as removed for this reason; return its number."""
        number = self.find(entry_id)
        if number is not None and number >= 0:
            self._remove(number, why)
        return number

    def trim_below(self, entry_id: Id) -> range:
        """Trim all entries with smaller IDs; return their numbers."""
        return self._trim_to(min(self.lower_bound(entry_id), len(self.ms)), Removal.TRIMMED)

    def trim_to_length(self, length: int) -> range:
        """Trim all but the last `length` entries; return the numbers of the trimmed ones."""
        end, surplus = self._head, self._present - length
        while surplus > 0 and end < len(self.removals):
            surplus -= self.removals[end] == Removal.PRESENT
            end += 1
        return self._trim_to(end, Removal.TRIMMED if self.is_exact else Removal.UNKNOWN)

    def delete_stream(self) -> None:
        """Remove all entries: the key was deleted or replaced."""
        self._trim_to(len(self.ms), Removal.STREAM_DELETED)
        self.last = MIN
        self.is_exact = True

    def mark_unknown(self) -> None:
        """Entries that were deleted with the stream may exist again: their removal is unknown."""
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
# Plain numbers: storing an enumeration member takes longer.
_PENDING, _ACKNOWLEDGED = int(Fate.PENDING), int(Fate.ACKNOWLEDGED)


class Delivery(NamedTuple):
    """A pending entry as it was written."""

    consumer: bytes
    at_ms: int
    deliveries: int


class Columns:
    """The state of each entry in one group, by its number."""

    def __init__(self) -> None:
        self.fate = bytearray()
        self.act = bytearray()
        self.consumer = array("I")  # number of the consumer, from 1; 0: none yet
        self.deliveries = array("I")
        self.first_ms = array("Q")  # of the first delivery; 0: none
        self.at_ms = array("Q")  # of the last event; 0: unknown

    def make_room(self, size: int) -> None:
        """Extend the columns to at least `size` entries."""
        missing = size - len(self.fate)
        if missing > 0:
            missing = max(missing, _ROOM)
            for column in (self.fate, self.act):
                column.extend(bytes(missing))
            for numbers in (self.consumer, self.deliveries, self.first_ms, self.at_ms):
                numbers.frombytes(bytes(missing * numbers.itemsize))

    def cut(self, size: int) -> None:
        """Drop the entries from this number on."""
        for column in (self.fate, self.act):
            del column[size:]
        for numbers in (self.consumer, self.deliveries, self.first_ms, self.at_ms):
            del numbers[size:]


class GroupLives:
    """The states of entries in one group. Entries have their numbers in the stream's table."""

    def __init__(self, table: EntryTable) -> None:
        self.position: Id | None = None  # last-delivered-id; None: unknown, or no group
        self._reached = 0  # number of added entries that it has passed
        self._latest: Id | None = None  # the last delivered entry; its number is below
        self._latest_number = 0
        self.consumers: list[str] = [""]  # by number
        self.added = Columns()
        self.strays = Columns()
        self._table = table
        self._pending: set[int] = set()
        self._numbers: dict[bytes, int] = {}
        self._has_been = False  # the group has existed
        self.created_at: Id | None = None  # its first position, or the lowest it was set to
        self._is_new = True  # it has existed in no stream with this name

    def create(self, position: Id, *, is_known: bool = False) -> None:
        """Create the group; `is_known`: it existed before the files, at this position."""
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
        """Destroy the group with its pending entries."""
        self._drop(list(self._pending), fate, 0)
        self._forget_position()
        # Entries of a new stream from before the group's creation are not the group's.
        self._has_been = fate is not Fate.STREAM_DELETED

    def set_position(self, position: Id, how: Fate) -> None:
        """Move the position; present entries that it passes undelivered get the fate `how`."""
        self._has_been = True
        if position == self.position:
            return
        if self.created_at is not None and position < self.created_at:
            self.created_at = position  # the entries between are now the group's
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
        """Drop the entries from this number on: other entries get these numbers."""
        self._pending = {one for one in self._pending if one < number}
        self._reached, self._latest = min(self._reached, number), None
        self.added.cut(number)

    def deliver(self, entry_id: Id, number: int, delivery: Delivery) -> None:
        """Record a delivery to a consumer; or a claim that found no body.

        For the latter, servers write the former pending entry unchanged.
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
        """Acknowledge an entry; False: it was not pending, and nothing changed."""
        if number not in self._pending:
            return False
        self._pending.remove(number)
        # A pending entry already has its place in the columns.
        columns, at = (self.added, number) if number >= 0 else (self.strays, -1 - number)
        columns.fate[at] = _ACKNOWLEDGED
        columns.act[at] = act
        columns.at_ms[at] = at_ms
        return True

    def remove_consumer(self, name: bytes, at_ms: int) -> None:
        """Remove a consumer with its pending entries."""
        consumer = self._numbers.get(name)
        if consumer is not None:
            held = [one for one in self._pending if self._consumer_of(one) == consumer]
            self._drop(held, Fate.CONSUMER_REMOVED, at_ms)

    def mark_unknown(self) -> None:
        """The stream was replaced: the fate of entries without a final state is unknown."""
        open_fates = {Fate.UNDELIVERED, Fate.STREAM_DELETED}
        self.added.make_room(len(self._table))
        for columns in (self.added, self.strays):
            for number, fate in enumerate(columns.fate):
                if fate in open_fates and (columns is self.strays or number < len(self._table)):
                    columns.fate[number] = Fate.UNKNOWN

    def drop_references(self, numbers: Iterable[int], at_ms: int) -> None:
        """Drop the pending entries of entries that were deleted with DELREF."""
        held = [one for one in numbers if one in self._pending]
        self._drop(held, Fate.REFERENCE_DELETED, at_ms)

    def _missed_body(self, number: int, consumer: int, delivery: Delivery) -> bool:
        """Drop a pending entry that was written again unchanged, if its body may be deleted."""
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
        """Entries that were removed before the group's first creation are not the group's."""
        self.added.make_room(len(self._table))
        fates = self.added.fate
        for number, removal in enumerate(self._table.removals):
            if removal != Removal.PRESENT and fates[number] == Fate.UNDELIVERED:
                fates[number] = Fate.BEFORE_GROUP

    def _unpass(self, numbers: range) -> None:
        """The position moved back: present entries will be delivered."""
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
