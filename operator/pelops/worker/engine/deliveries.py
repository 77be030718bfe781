"""What becomes of deliveries: entries that are held, each once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from pelops.worker.engine.in_flight import InFlight
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.prefetch import Sizes
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.server.adapter import Delivered, DeliverySource, RawEntry

SUSPICIOUS: int = 2  # deliveries before this one: something goes on ending those who hold it


class Receiving:
    """Takes deliveries in."""

    def __init__(self, in_flight: InFlight, terms: Terms, sizes: Sizes, observer: Observer) -> None:
        self.left: set[bytes] = set()  # what former processes of this name had started
        self.coming = 0  # entries that were put off
        self._put_off: list[tuple[list[Delivered], float]] = []
        self._in_flight = in_flight
        self._terms = terms
        self._sizes = sizes
        self._observer = observer
        self._retries = terms.prefix + b"retry_count"

    def accept(self, delivered: Iterable[Delivered], asked_s: float) -> int:
        """Hold what was asked for at `asked_s`; how many came."""
        self.catch_up()
        return sum(self._accept(some, asked_s) for some in delivered)

    def put_off(self, delivered: list[Delivered], asked_s: float) -> int:
        """Hold it later, before anything that comes later; how many came."""
        came = sum(len(some.entries) for some in delivered)
        if came:
            self.coming += came
            self._put_off.append((delivered, asked_s))
        return came

    def catch_up(self) -> None:
        """Hold what was put off."""
        put_off, self._put_off, self.coming = self._put_off, [], 0
        for delivered, asked_s in put_off:
            for some in delivered:
                self._accept(some, asked_s)

    def _accept(self, some: Delivered, asked_s: float) -> int:
        arrival = Arrival(some.key, some.source, asked_s, self._terms)
        raws = self._without_left(some) if self.left else some.entries
        whole = [raw for raw in raws if raw[1]]  # of others the body was deleted
        entries = [Entry(arrival, raw) for raw in whole]
        if self._are_plain(whole):
            known = self._in_flight.accept_plain(some.key, entries)
        else:
            known = [entry for entry in entries if not self._accept_one(entry)]
        for entry in known:
            self._meet_again(entry, asked_s)
        self._sizes.count(len(raws), _size(whole))
        if raws:
            self._observer.received(len(raws), sum([raw[3] > 0 for raw in whole]))
        return len(raws)

    def _are_plain(self, raws: list[RawEntry]) -> bool:
        """Whether none of these was delivered or has failed before, as is usual."""
        retries = self._retries
        return not any([raw[3] or raw[1][-2] == retries for raw in raws])

    def _accept_one(self, entry: Entry) -> bool:
        isolated = entry.deliveries >= SUSPICIOUS or entry.retry_count > 0
        return self._in_flight.accept(entry, isolated=isolated)

    def _meet_again(self, entry: Entry, asked_s: float) -> None:
        """It is held already: one that was delivered to us again is ours, and runs once."""
        held = self._in_flight.get(entry.key, entry.raw_id)
        if held is not None:
            self._in_flight.refreshed([held], asked_s)

    def _without_left(self, some: Delivered) -> list[RawEntry]:
        """What ended a former process is left alone, until it is given to this one anew."""
        if some.source is DeliverySource.HISTORY:
            return [raw for raw in some.entries if raw[0] not in self.left]
        self.left.difference_update(raw[0] for raw in some.entries)
        return some.entries


def _size(raws: list[RawEntry]) -> int:
    return sum(map(len, chain.from_iterable([raw[1] for raw in raws])))
