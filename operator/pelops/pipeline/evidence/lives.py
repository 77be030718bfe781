"""What one group did with the entries of one stream, about 25 bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from pelops.pipeline.evidence.entries import EntryTable, Id
from pelops.pipeline.evidence.fates import AcknowledgementKind, Fate, Removal

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
