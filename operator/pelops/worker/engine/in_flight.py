"""What a worker holds, and which of it may run next. No I/O and no clock: callers give `now`.

    accept -> (its key is busy) -> ready -> offered -> granted -> running -> done -> settled
                                -> alone -^                         |
                                   ^------------ waiting <- failed -+

An entry is *offered* when its start record is on the way to Redis and *granted* when the start
record is there: only then may its handler start. One that was counted as failed before is granted
alone. Entries with equal keys run one after another.
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
    """Who waits behind whom. Without a rule nobody does."""

    def __init__(self, order_by: OrderBy | None) -> None:
        self.is_on = order_by is not None
        self._order_by = order_by
        self._rows: dict[Hashable, deque[Entry]] = {}  # by key; the first one may run

    def has_to_wait(self, entry: Entry) -> bool:
        """Whether others with its key come first; it is behind them now."""
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
            return None  # what cannot be read has no order to keep; its handler will say so
        return key

    def free(self, entry: Entry) -> Entry | None:
        """It is done with. Answers the one that may run now."""
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
        """How many have others before them."""
        return sum(len(row) - 1 for row in self._rows.values())

    def clear(self) -> None:
        """Nobody waits any more."""
        self._rows.clear()


def turn_of(entry: Entry) -> int:
    """The place of an entry among those that run alone: another one after each delivery.

    Without an operator nobody knows which of them ended the processes that had them. Those which
    always came behind it would never run.
    """
    return crc32(b"%b %d" % (entry.raw_id, entry.deliveries)) if entry.deliveries else 0


class Unsettled:
    """What this worker was given and has not settled, whatever became of it since."""

    def __init__(self) -> None:
        self._held: dict[bytes, dict[bytes, Entry]] = {}  # by stream; refreshed longest ago first

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __iter__(self) -> Iterator[Entry]:
        for entries in self._held.values():
            yield from entries.values()

    def get(self, key: bytes, raw_id: bytes) -> Entry | None:
        """The entry, if it is held."""
        return self._held.get(key, {}).get(raw_id)

    def settle(self, entries: Iterable[Entry]) -> None:
        """These are acknowledged, rejected or released: nothing of them is left here."""
        held = self._held
        for entry in entries:
            held[entry.key].pop(entry.raw_id, None)

    def due_for_refresh(self, since_s: float, most: int) -> list[Entry]:
        """What was not refreshed since `since_s`, longest ago first."""
        due: list[Entry] = []
        for entries in self._held.values():
            for entry in entries.values():
                if entry.refreshed_s > since_s or len(due) >= most:
                    break
                due.append(entry)
        return due

    def refreshed(self, entries: Iterable[Entry], at_s: float) -> None:
        """These are ours still; they were asked for at `at_s`."""
        for entry in entries:
            held = self._held[entry.key]
            if held.pop(entry.raw_id, None) is not None:
                entry.refreshed_s = at_s
                held[entry.raw_id] = entry

    def distrust(self) -> None:
        """Nothing is known to be ours any more, until it is confirmed."""
        for entry in self:
            entry.refreshed_s = -inf

    def oldest_refresh_s(self) -> float | None:
        """When what was refreshed longest ago was asked for."""
        firsts = (next(iter(entries.values()), None) for entries in self._held.values())
        return min((entry.refreshed_s for entry in firsts if entry is not None), default=None)


class InFlight(Unsettled):
    """All entries that this worker was given and has not settled."""

    def __init__(
        self, concurrency: int, order_by: OrderBy | None = None, *, idle_s: float = inf
    ) -> None:
        super().__init__()
        self.concurrency = concurrency
        self._idle_s = idle_s  # refreshed longer ago: it may be somebody else's by now
        self.granted: deque[Entry] = deque()
        self.running: dict[Entry, Task[None]] = {}  # the longest running first
        self.done: list[Entry] = []  # handled, and not yet known to be acknowledged
        self._ordering = KeyOrder(order_by)
        self._ready: deque[Entry] = deque()
        self._isolated: deque[Entry] = deque()
        self._offered: list[Entry] = []
        self._only: Entry | None = None  # it was granted alone
        self._is_turn_of_isolated = True
        self._waiting: list[tuple[float, int, Entry]] = []
        self._numbers = count()

    # What there is.

    @property
    def queued(self) -> int:
        """How many wait for a start record; not those that wait for their backoff."""
        return len(self._ready) + len(self._isolated) + self._ordering.waiting()

    @property
    def waiting(self) -> int:
        """How many wait for their backoff."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """How many run, or may start at any moment."""
        return len(self.running) + len(self.granted) + len(self._offered)

    @property
    def may_grant(self) -> bool:
        """Whether anything could be offered, were there room."""
        if self._only is not None:
            return False
        if self._isolated and not self.active:
            return True
        return bool(self._ready) and not (self._isolated and self._is_turn_of_isolated)

    @property
    def is_isolating(self) -> bool:
        """Whether an entry runs alone, or will before any other: nothing else is to be read.

        What is read now could not start, while another worker could start it. And if that entry
        ends the process, what came milliseconds after it would be pending with a dead consumer
        anew each time, always idle for less long than it, and never run.
        """
        return self._only is not None or (bool(self._isolated) and self._is_turn_of_isolated)

    # What comes.

    def accept(self, entry: Entry, *, isolated: bool = False) -> bool:
        """Take an entry that was delivered; False if it is held already."""
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
        """Take entries of one stream, none of them to run alone; those that are held already."""
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

    # What may run.

    def offer(self, limit: int, at_once: int | None = None) -> list[Entry]:
        """Take what may start next, so that at most `limit` are active; to be confirmed."""
        while self._isolated and self._isolated[0].is_disowned:
            self._isolated.popleft()
        if self._only is not None:
            return []
        if self._isolated and (self._is_turn_of_isolated or not self._ready):
            return self._offer_isolated()
        self._is_turn_of_isolated = True
        most = limit - self.active
        self._offered = self._take(most if at_once is None else min(most, at_once))
        return self._offered

    def _offer_isolated(self) -> list[Entry]:
        if self.active:
            return []
        self._only = self._isolated.popleft()
        self._is_turn_of_isolated = False
        self._offered = [self._only]
        return self._offered

    def _take(self, most: int) -> list[Entry]:
        ready = self._ready
        taken = [ready.popleft() for _ in range(min(most, len(ready)))]
        return [entry for entry in taken if not entry.is_disowned]

    def confirm(self) -> None:
        """What was offered is recorded as started: it may start."""
        self.granted.extend(self._offered)
        self._offered = []

    def withdraw(self) -> None:
        """What was offered may not be recorded as started: it waits on, in its place."""
        if self._only is not None and self._only in self._offered:
            self._isolated.appendleft(self._only)
            self._only = None
        else:
            self._ready.extendleft(reversed(self._offered))
        self._offered = []

    def started_ids(self) -> list[bytes]:
        """IDs that have started or may start at any moment."""
        return [entry.raw_id for entry in chain(self.running, self.granted, self._offered)]

    def start(self, task: Task[None], now_s: float) -> Entry | None:
        """The next entry to handle; None when there is none, or enough are running."""
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
        """Whether it does not start: it is somebody else's, or may be, and that is asked once."""
        if not entry.is_disowned:
            if entry.was_put_back:
                return False
            entry.was_put_back = True
            self._queue(entry)
        self._end(entry)
        return True

    # What becomes of it.

    def finish(self, entry: Entry) -> None:
        """Its handler is done with it: it is to be acknowledged."""
        # Written out, since it is done for every entry.
        self.running.pop(entry, None)
        if self._only is entry:
            self._only = None
        if not entry.is_disowned:
            entry.has_finished = True
            self.done.append(entry)
            if entry.order is not None:
                self._free_key(entry)

    def take_done(self) -> list[Entry]:
        """What is to be acknowledged; what could not be is brought back."""
        done, self.done = self.done, []
        return done

    def bring_back(self, entries: Iterable[Entry]) -> None:
        """The acknowledgements of these are to be sent again."""
        self.done = [entry for entry in entries if not entry.is_disowned] + self.done

    def wait(self, entry: Entry, until_s: float) -> None:
        """It failed, and runs again later. Its key stays busy, so that order is kept."""
        if self._stop(entry):
            heapq.heappush(self._waiting, (until_s, next(self._numbers), entry))

    def set_aside(self, entry: Entry) -> None:
        """Its handler has ended, and nobody here will run it again; it stays held."""
        if self._stop(entry):
            entry.has_finished = True
            self._free_key(entry)

    def _stop(self, entry: Entry) -> bool:
        """Its handler has ended; False if the entry is not ours any more."""
        self.running.pop(entry, None)
        self._end(entry)
        return not entry.is_disowned

    def _end(self, entry: Entry) -> None:
        if self._only is entry:
            self._only = None

    def wake(self, now_s: float) -> None:
        """Queue what has waited for long enough."""
        while self._waiting and self._waiting[0][0] <= now_s:
            entry = heapq.heappop(self._waiting)[2]
            if not entry.is_disowned:
                self._queue(entry)

    @property
    def next_wake_s(self) -> float | None:
        """When the next one has waited for long enough."""
        return self._waiting[0][0] if self._waiting else None

    def disown(self, entry: Entry) -> Task[None] | None:
        """It belongs to somebody else: forget it. Answers the task that handles it."""
        entry.is_disowned = True
        self._held[entry.key].pop(entry.raw_id, None)
        if entry.has_finished:
            self.done = [one for one in self.done if one is not entry]
        else:
            self._free_key(entry)
        return self.running.get(entry)

    def let_go(self, entry: Entry) -> None:
        """Its handler does not end: others may have its place here, and soon the entry."""
        self.disown(entry)
        self.running.pop(entry, None)
        self._end(entry)

    def _free_key(self, entry: Entry) -> None:
        following = self._ordering.free(entry)
        if following is not None:
            self._queue(following)

    def abandon(self) -> list[Entry]:
        """Take out all that has not started: it is not going to."""
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
        """What has been running since before."""
        return list(takewhile(lambda entry: entry.started_s < started_before_s, self.running))
