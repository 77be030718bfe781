"""Prefetching: how much to read, when, and how deliveries become entries in flight.

A worker holds only entries that it can start soon: as many as its slots, and as many as it
finishes in a fraction of a second. If entries arrive slowly, a blocking read waits for them. If
they arrive fast, reads are part of the exchanges and cost no extra round trip.

No I/O and no clock: callers pass `now_s`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from typing import Final

from pelops.worker.engine.in_flight import InFlight
from pelops.worker.engine.observer import Observer
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.server.adapter import Delivered, DeliverySource, RawEntry

AHEAD_S: Final = 0.2  # entries that can start within this time are prefetched
_WINDOW_S: Final = 0.05  # over which the rate is measured
_FIRST_WINDOW_S: Final = 0.01  # shorter: an early rough rate is better than none
_FIRST_READ: Final = 1  # entries, while their size is unknown: one may have 100 MB
_MANY: Final = 16  # entries of one read that show that more are available


class FinishRate:
    """Recent rate of finished entries per second."""

    def __init__(self, now_s: float) -> None:
        self.per_s = 0.0
        self._since_s = now_s
        self._count = 0

    def count(self, finished: int, now_s: float) -> None:
        """Add `finished` entries."""
        self._count += finished
        passed_s = now_s - self._since_s
        is_first = self.per_s == 0
        if passed_s >= (_FIRST_WINDOW_S if is_first else _WINDOW_S):
            # After a second or more, the old rate is outdated.
            weight = 1.0 if is_first or passed_s >= 1 else 0.5
            self.per_s += weight * (self._count / passed_s - self.per_s)
            self._since_s, self._count = now_s, 0


class Sizes:
    """Recent average size of entries; it grows quickly and shrinks slowly."""

    def __init__(self) -> None:
        self.average: float | None = None

    def count(self, entries: int, size: int) -> None:
        """Add `entries` with `size` bytes in total."""
        if entries:
            found = size / entries
            known = self.average
            grew = known is None or found >= known
            self.average = found if grew or known is None else known + (found - known) / 8

    def fit(self, bytes_free: float) -> int:
        """Number of entries of average size that fit."""
        if self.average is None:
            return _FIRST_READ
        return int(min(bytes_free / max(self.average, 1.0), 1e9))


class Prefetcher:
    """Decides how many entries to read next."""

    def __init__(self, *, concurrency: int, prefetch: int, prefetch_bytes: int) -> None:
        self.is_pouring = False  # entries arrive faster than they are read
        self.sizes = Sizes()
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._bytes = prefetch_bytes

    def room(self, *, held: int, waiting: int, per_s: float) -> int:
        """Number of entries to read, when `held` run or are queued and `waiting` are in backoff.

        Entries in backoff do not use up the prefetch, until there are ten times as many.
        """
        if waiting >= max(10 * self._prefetch, 10 * self._concurrency):
            return 0
        target = self._concurrency + min(self._prefetch, math.ceil(per_s * AHEAD_S))
        by_bytes = self.sizes.fit(self._bytes) - held - waiting
        # A worker without entries reads one, whatever its size.
        return max(min(target - held, by_bytes), 1 if held + waiting == 0 else 0)

    def learn(self, *, asked: int, got: int) -> None:
        """Decide from a read whether the next one should block."""
        self.is_pouring = got >= min(asked, _MANY)

    def is_worth_reading(self, room: int, queued: int) -> bool:
        """Whether a round trip only to read is worth its cost."""
        return room > 0 and (queued == 0 or room >= self._concurrency // 2)


SUSPICIOUS: int = 2  # number of earlier deliveries from which on an entry runs in isolation


class DeliveryReceiver:
    """Adds deliveries to the entries in flight."""

    def __init__(self, in_flight: InFlight, terms: Terms, sizes: Sizes, observer: Observer) -> None:
        self.left: set[bytes] = set()  # entries that former processes of this name had started
        self.coming = 0  # number of entries that were put off
        self._put_off: list[tuple[list[Delivered], float]] = []
        self._in_flight = in_flight
        self._terms = terms
        self._sizes = sizes
        self._observer = observer
        self._retries = terms.prefix + b"retry_count"

    def accept(self, delivered: Iterable[Delivered], asked_s: float) -> int:
        """Add entries that were requested at `asked_s`; return their number."""
        self.catch_up()
        return sum(self._accept(some, asked_s) for some in delivered)

    def put_off(self, delivered: list[Delivered], asked_s: float) -> int:
        """Add these with the next `catch_up`, before later ones; return their number."""
        came = sum(len(some.entries) for some in delivered)
        if came:
            self.coming += came
            self._put_off.append((delivered, asked_s))
        return came

    def catch_up(self) -> None:
        """Add the entries that were put off."""
        put_off, self._put_off, self.coming = self._put_off, [], 0
        for delivered, asked_s in put_off:
            for some in delivered:
                self._accept(some, asked_s)

    def _accept(self, some: Delivered, asked_s: float) -> int:
        arrival = Arrival(some.key, some.source, asked_s, self._terms)
        raws = self._without_left(some) if self.left else some.entries
        whole = [raw for raw in raws if raw[1]]  # without entries whose body was deleted
        entries = [Entry(arrival, raw) for raw in whole]
        if self._are_plain(whole):
            known = self._in_flight.accept_plain(some.key, entries)
        else:
            known = [entry for entry in entries if not self._accept_one(entry)]
        for entry in known:
            self._meet_again(entry, asked_s)
        self._sizes.count(len(raws), _size(whole))
        if raws:
            self._observer.received(len(raws), sum([raw[3] != 0 for raw in whole]))
        return len(raws)

    def _are_plain(self, raws: list[RawEntry]) -> bool:
        """Whether all are first deliveries without failed attempts, the usual case."""
        retries = self._retries
        return not any([raw[3] or raw[1][-2] == retries for raw in raws])

    def _accept_one(self, entry: Entry) -> bool:
        isolated = entry.deliveries >= SUSPICIOUS or entry.retry_count > 0
        return self._in_flight.accept(entry, isolated=isolated)

    def _meet_again(self, entry: Entry, asked_s: float) -> None:
        """An entry in flight was delivered again: count it as a heartbeat, and run it once."""
        held = self._in_flight.get(entry.key, entry.raw_id)
        if held is not None:
            self._in_flight.refreshed([held], asked_s)

    def _without_left(self, some: Delivered) -> list[RawEntry]:
        """Skip entries that a former process had started, until they are delivered again."""
        if some.source is DeliverySource.HISTORY:
            return [raw for raw in some.entries if raw[0] not in self.left]
        self.left.difference_update(raw[0] for raw in some.entries)
        return some.entries


def _size(raws: list[RawEntry]) -> int:
    return sum(map(len, chain.from_iterable([raw[1] for raw in raws])))
