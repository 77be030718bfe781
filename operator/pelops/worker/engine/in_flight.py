"""Entries in flight, and which may run next. No I/O and no clock: callers pass `now_s`.

    accept -> (its key is busy) -> ready -> offered -> granted -> running -> done -> settled
                                -> alone -^                         |
                                   ^------------ waiting <- failed -+

An entry is *offered* while its start record is sent to Redis, and *granted* when Redis has the
record: only then may its handler start. An entry with failed attempts runs in isolation (*alone*).
Entries with equal keys run one after another.
"""

from __future__ import annotations

import heapq
from asyncio import Task
from bisect import bisect
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain, count, takewhile
from math import inf
from zlib import crc32

from pelops.worker.entry import Entry

OrderBy = Callable[[Entry], Hashable]


class KeyOrder:
    """Queues of entries with equal keys. Without `order_by`, no entry waits."""

    def __init__(self, order_by: OrderBy | None) -> None:
        self.is_on = order_by is not None
        self._order_by = order_by
        self._rows: dict[Hashable, deque[Entry]] = {}  # by key; the first entry may run

    def has_to_wait(self, entry: Entry) -> bool:
        """Append it to the queue of its key; return whether it must wait for others."""
        entry.order = self._find_key(entry)
        if entry.order is None:
            return False
        row = self._rows.setdefault(entry.order, deque())
        row.append(entry)
        return row[0] is not entry

    def _find_key(self, entry: Entry) -> Hashable | None:
        if self._order_by is None:
            return None
        try:
            key = self._order_by(entry)
            hash(key)
        except Exception:
            return None  # an unreadable entry has no order; its handler fails and reports it
        return key

    def free(self, entry: Entry) -> Entry | None:
        """Remove the entry from its queue. Return the next one, if it may run now."""
        row = self._rows.get(entry.order) if entry.order is not None else None
        if not row:
            return None
        if row[0] is not entry:
            if entry in row:
                row.remove(entry)
            return None
        row.popleft()
        if row:
            return row[0]
        del self._rows[entry.order]
        return None

    def waiting(self) -> int:
        """Number of entries that wait for others with their key."""
        return sum(len(row) - 1 for row in self._rows.values())

    def clear(self) -> None:
        """Drop all queues."""
        self._rows.clear()


def turn_of(entry: Entry) -> int:
    """The position of an entry among those that run in isolation. Each delivery changes it.

    Without an operator, no record shows which entry ended its process. In a fixed order, entries
    behind that one would never run.
    """
    return crc32(b"%b %d" % (entry.raw_id, entry.deliveries)) if entry.deliveries else 0


class Unsettled:
    """Entries that were delivered to this worker and are not settled."""

    def __init__(self) -> None:
        self._held: dict[bytes, dict[bytes, Entry]] = {}  # by stream; the oldest heartbeat first

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __iter__(self) -> Iterator[Entry]:
        for entries in self._held.values():
            yield from entries.values()

    def get(self, key: bytes, raw_id: bytes) -> Entry | None:
        """The entry, or None if it is not in flight."""
        return self._held.get(key, {}).get(raw_id)

    def settle(self, entries: Iterable[Entry]) -> None:
        """Remove entries that are acknowledged, rejected or released."""
        held = self._held
        for entry in entries:
            held[entry.key].pop(entry.raw_id, None)

    def due_for_refresh(self, since_s: float, most: int) -> list[Entry]:
        """Up to `most` entries without a heartbeat since `since_s`; by stream, oldest first."""
        due: list[Entry] = []
        for entries in self._held.values():
            for entry in entries.values():
                if entry.refreshed_s > since_s or len(due) >= most:
                    break
                due.append(entry)
        return due

    def refreshed(self, entries: Iterable[Entry], at_s: float) -> None:
        """Note that this worker still owns these, by a request sent at `at_s`."""
        for entry in entries:
            held = self._held[entry.key]
            if held.pop(entry.raw_id, None) is not None:
                entry.refreshed_s = at_s
                held[entry.raw_id] = entry

    def mark_unverified(self) -> None:
        """Treat the owner of every entry as unknown until the next heartbeat."""
        for entry in self:
            entry.refreshed_s = -inf

    def oldest_refresh_s(self) -> float | None:
        """Time of the oldest heartbeat; None without entries."""
        firsts = (next(iter(entries.values()), None) for entries in self._held.values())
        return min((entry.refreshed_s for entry in firsts if entry is not None), default=None)


class InFlight(Unsettled):
    """All entries in flight, with the state of each."""

    def __init__(
        self, concurrency: int, order_by: OrderBy | None = None, *, idle_s: float = inf
    ) -> None:
        super().__init__()
        self.concurrency = concurrency
        self._idle_s = idle_s  # without a heartbeat for so long, another worker may own it
        self.granted: deque[Entry] = deque()
        self.running: dict[Entry, Task[None]] = {}  # the longest running first
        self.done: list[Entry] = []  # handled, acknowledgement not confirmed
        self._ordering = KeyOrder(order_by)
        self._ready: deque[Entry] = deque()
        self._isolated: deque[Entry] = deque()
        self._offered: list[Entry] = []
        self._only: Entry | None = None  # runs in isolation
        self._is_turn_of_isolated = True
        self._waiting: list[tuple[float, int, Entry]] = []
        self._numbers = count()

    # State.

    @property
    def queued(self) -> int:
        """Number of entries that wait for a start record, without those in backoff."""
        return len(self._ready) + len(self._isolated) + self._ordering.waiting()

    @property
    def waiting(self) -> int:
        """Number of entries in backoff."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Number of entries that run, are granted or are offered."""
        return len(self.running) + len(self.granted) + len(self._offered)

    @property
    def may_grant(self) -> bool:
        """Whether an entry could be offered, regardless of the limit."""
        if self._only is not None:
            return False
        if self._isolated and not self.active:
            return True
        return bool(self._ready) and not (self._isolated and self._is_turn_of_isolated)

    @property
    def is_isolating(self) -> bool:
        """Whether an entry runs in isolation, or is next to: no other entry may be read.

        Entries read now could not start here, although another worker could start them. If the
        isolated entry ends the process, they would be pending with a dead consumer, and be claimed
        only after that entry. If this repeats, they never run.
        """
        return self._only is not None or (bool(self._isolated) and self._is_turn_of_isolated)

    # Deliveries.

    def accept(self, entry: Entry, *, isolated: bool = False) -> bool:
        """Add a delivered entry; False if it is in flight already."""
        held = self._held.setdefault(entry.key, {})
        if entry.raw_id in held:
            return False
        held[entry.raw_id] = entry
        if isolated:
            entry.runs_isolated = True
        if not (self._ordering.is_on and self._ordering.has_to_wait(entry)):
            self._queue(entry)
        return True

    def accept_plain(self, key: bytes, entries: list[Entry]) -> list[Entry]:
        """Add entries of one stream, none isolated; return those that are in flight already."""
        if self._ordering.is_on:
            return [entry for entry in entries if not self.accept(entry)]
        held = self._held.setdefault(key, {})
        new = {entry.raw_id: entry for entry in entries}
        known = [new.pop(raw_id) for raw_id in held.keys() & new.keys()]
        held.update(new)
        self._ready.extend(new.values())
        return known

    def _queue(self, entry: Entry) -> None:
        if entry.runs_isolated:
            self._isolated.insert(bisect(self._isolated, turn_of(entry), key=turn_of), entry)
        else:
            self._ready.append(entry)

    # Starting.

    def offer(self, limit: int, at_once: int | None = None) -> list[Entry]:
        """Take entries to start, at most `limit` active. `confirm` or `withdraw` must follow."""
        while self._isolated and self._isolated[0].is_disowned:
            self._isolated.popleft()
        if self._only is not None:
            return []
        if self._isolated and (self._is_turn_of_isolated or not self._ready):
            return self._offer_isolated()
        self._is_turn_of_isolated = True
        most = limit - self.active
        self._offered = self._pop_ready(most if at_once is None else min(most, at_once))
        return self._offered

    def _offer_isolated(self) -> list[Entry]:
        if self.active:
            return []
        self._only = self._isolated.popleft()
        self._is_turn_of_isolated = False
        self._offered = [self._only]
        return self._offered

    def _pop_ready(self, most: int) -> list[Entry]:
        ready = self._ready
        taken = [ready.popleft() for _ in range(min(most, len(ready)))]
        return [entry for entry in taken if not entry.is_disowned]

    def confirm(self) -> None:
        """Grant the offered entries: Redis has recorded them as started."""
        self.granted.extend(self._offered)
        self._offered = []

    def withdraw(self) -> None:
        """Return the offered entries to their place: their start record is uncertain."""
        if self._only is not None and self._only in self._offered:
            self._isolated.appendleft(self._only)
            self._only = None
        else:
            self._ready.extendleft(reversed(self._offered))
        self._offered = []

    def started_ids(self) -> list[bytes]:
        """IDs of all active entries."""
        return [entry.raw_id for entry in chain(self.running, self.granted, self._offered)]

    def start(self, task: Task[None], now_s: float) -> Entry | None:
        """The next entry to handle; None if none is granted or all slots are used."""
        granted, running = self.granted, self.running
        while granted and len(running) < self.concurrency:
            entry = granted.popleft()
            is_stale = entry.refreshed_s < now_s - self._idle_s
            if (is_stale or entry.is_disowned) and self._is_put_back(entry):
                continue
            entry.started_s = now_s
            running[entry] = task
            return entry
        return None

    def _is_put_back(self, entry: Entry) -> bool:
        """Whether it must not start: it is disowned, or its owner is checked first, once."""
        if not entry.is_disowned:
            if entry.was_put_back:
                return False
            entry.was_put_back = True
            self._queue(entry)
        self._end(entry)
        return True

    # Finishing.

    def finish(self, entry: Entry) -> None:
        """Its handler succeeded: queue the acknowledgement."""
        # Inlined, because it runs for every entry.
        self.running.pop(entry, None)
        if self._only is entry:
            self._only = None
        if not entry.is_disowned:
            entry.has_finished = True
            self.done.append(entry)
            if entry.order is not None:
                self._free_key(entry)

    def pop_done(self) -> list[Entry]:
        """Take the entries to acknowledge. `bring_back` returns those that failed."""
        done, self.done = self.done, []
        return done

    def bring_back(self, entries: Iterable[Entry]) -> None:
        """Queue the acknowledgements of these entries again."""
        self.done = [entry for entry in entries if not entry.is_disowned] + self.done

    def wait(self, entry: Entry, until_s: float) -> None:
        """Retry a failed entry at `until_s`. Its key stays busy, to preserve the order."""
        if self._stop(entry):
            heapq.heappush(self._waiting, (until_s, next(self._numbers), entry))

    def set_aside(self, entry: Entry) -> None:
        """Its handler ended and this worker will not retry it; it stays in flight."""
        if self._stop(entry):
            entry.has_finished = True
            self._free_key(entry)

    def _stop(self, entry: Entry) -> bool:
        """Its handler ended; False if the entry is disowned."""
        self.running.pop(entry, None)
        self._end(entry)
        return not entry.is_disowned

    def _end(self, entry: Entry) -> None:
        if self._only is entry:
            self._only = None

    def wake(self, now_s: float) -> None:
        """Queue the entries whose backoff has ended."""
        while self._waiting and self._waiting[0][0] <= now_s:
            entry = heapq.heappop(self._waiting)[2]
            if not entry.is_disowned:
                self._queue(entry)

    @property
    def next_wake_s(self) -> float | None:
        """When the next backoff ends; None: there is none."""
        return self._waiting[0][0] if self._waiting else None

    def disown(self, entry: Entry) -> Task[None] | None:
        """Drop an entry that another worker owns. Return the task that handles it, if any."""
        entry.is_disowned = True
        self._held[entry.key].pop(entry.raw_id, None)
        if entry.has_finished:
            self.done = [one for one in self.done if one is not entry]
        else:
            self._free_key(entry)
        return self.running.get(entry)

    def free_slot(self, entry: Entry) -> None:
        """Free the slot of a handler that does not end, and disown its entry."""
        self.disown(entry)
        self.running.pop(entry, None)
        self._end(entry)

    def _free_key(self, entry: Entry) -> None:
        following = self._ordering.free(entry)
        if following is not None:
            self._queue(following)

    def abandon(self) -> list[Entry]:
        """Take out all entries that have not started, and start none of them."""
        unstarted = [
            entry for entry in self if entry not in self.running and not entry.has_finished
        ]
        for queue in (self._ready, self._isolated, self.granted):
            queue.clear()
        self._waiting.clear()
        self._ordering.clear()
        self._offered = []
        if self._only is not None and self._only not in self.running:
            self._only = None
        for entry in unstarted:
            entry.is_disowned = True
        return unstarted

    def overdue(self, started_before_s: float) -> list[Entry]:
        """Running entries that started before this time."""
        return list(takewhile(lambda entry: entry.started_s < started_before_s, self.running))
