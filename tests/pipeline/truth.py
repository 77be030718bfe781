"""The true end of every entry, recorded by what acts on it and not by what reads about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pelops.domain.outcome import EntryStatus


class End(IntEnum):
    """Where an entry is, or how it left the group."""

    WAITING = 0  # not delivered
    HELD = 1
    ACKNOWLEDGED = 2  # by a worker
    REQUEUED = 3
    DEAD_LETTERED = 4
    LETTER_WITHOUT_BODY = 5  # the operator found its body gone
    DROPPED = 6  # with its consumer, or by a claim that found no body
    SKIPPED = 7
    READ_WITHOUT_RECORD = 8


_STATUSES: Final = {
    End.ACKNOWLEDGED: EntryStatus.ACKNOWLEDGED_PROVEN,
    End.REQUEUED: EntryStatus.REQUEUED,
    End.DEAD_LETTERED: EntryStatus.DEAD_LETTERED,
    End.LETTER_WITHOUT_BODY: EntryStatus.PAYLOAD_GONE,
    End.DROPPED: EntryStatus.LOST,
    End.SKIPPED: EntryStatus.LOST,
    End.READ_WITHOUT_RECORD: EntryStatus.ACKNOWLEDGED_INFERRED,
}


class Truth:
    """All entries of one stream in their order, for its one group."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.ids: list[bytes] = []
        self.ends = bytearray()
        self.bodies = bytearray()  # 1: in the stream
        self.stuck: set[int] = set()
        self.failing: dict[int, int] = {}  # entries that no worker survives: how often they failed
        self.held: dict[str, set[int]] = {}  # by consumer
        self.reached = 0  # so many entries lie at or before the position
        self._places: dict[bytes, int] = {}
        self._first = 0  # no entry before it has a body

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, ids: Iterable[bytes]) -> list[int]:
        """Entries were added; their places."""
        start = len(self.ids)
        for entry_id in ids:
            self._places[entry_id] = len(self.ids)
            self.ids.append(entry_id)
        added = len(self.ids) - start
        self.ends.extend(bytes(added))
        self.bodies.extend(b"\x01" * added)
        return list(range(start, len(self.ids)))

    def places(self, ids: Iterable[bytes]) -> list[int]:
        return [self._places[one] for one in ids]

    def give(self, consumer: str, places: Sequence[int]) -> None:
        """These were delivered to a consumer, as new ones or from another."""
        for owner in self.held.values():
            owner.difference_update(places)
        self.held.setdefault(consumer, set()).update(places)
        self._mark(places, End.HELD)

    def finish(self, consumer: str, places: Iterable[int], end: End) -> None:
        """These are pending no more."""
        done = list(places)
        self.held.get(consumer, set()).difference_update(done)
        self._mark(done, end)

    def pass_by(self, upto: int, end: End) -> None:
        """The position moved on without a delivery; deleted entries keep their end."""
        for place in range(self.reached, upto):
            if self.bodies[place] and self.ends[place] == End.WAITING:
                self.ends[place] = end
        self.reached = max(self.reached, upto)

    def lose_bodies(self, places: Iterable[int]) -> None:
        for place in places:
            self.bodies[place] = 0

    def lose_before(self, first: bytes | None) -> None:
        """The stream now begins with this entry; None: it is empty."""
        end = len(self.ids) if first is None else self._places[first]
        if end > self._first:
            self.bodies[self._first : end] = bytes(end - self._first)
            self._first = end

    def oldest_owed(self) -> int:
        """The first entry that the group has not done with."""
        return min((min(held) for held in self.held.values() if held), default=self.reached)

    def status(self, place: int) -> EntryStatus:
        """What became of one entry."""
        end = End(self.ends[place])
        if end is End.WAITING:
            return EntryStatus.UNDELIVERED if self.bodies[place] else EntryStatus.LOST
        if end is End.HELD and not self.bodies[place]:
            return EntryStatus.PAYLOAD_GONE
        if end is End.HELD:
            return EntryStatus.STUCK if place in self.stuck else EntryStatus.IN_FLIGHT
        return _STATUSES[end]

    def statuses(self) -> list[EntryStatus]:
        return [self.status(place) for place in range(len(self.ids))]

    def counts(self) -> Counter[EntryStatus]:
        return Counter(self.statuses())

    def write(self, path: Path) -> None:
        """A Parquet file with a row for each entry: ms, seq, status."""
        pairs = [entry_id.partition(b"-") for entry_id in self.ids]
        pq.write_table(
            pa.table(
                {
                    "ms": pa.array([int(one[0]) for one in pairs], pa.int64()),
                    "seq": pa.array([int(one[2]) for one in pairs], pa.int64()),
                    "status": pa.array([one.value for one in self.statuses()], pa.string()),
                }
            ),
            path,
        )

    def _mark(self, places: Iterable[int], end: End) -> None:
        for place in places:
            self.ends[place] = end
