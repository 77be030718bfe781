"""An entry that arrived late may belong to another worker: it is asked for before it runs."""

from __future__ import annotations

from typing import Any

from pelops.worker.engine.exchange import ExchangeAdditions, build_outgoing
from pelops.worker.engine.in_flight import InFlight
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.server.adapter import DeliverySource

NOW_S, IDLE_S = 10.0, 3.0
TASK: Any = object()


def an_entry(raw_id: bytes, asked_s: float) -> Entry:
    arrival = Arrival(b"orders", DeliverySource.NEW, asked_s, Terms(lambda: NOW_S, IDLE_S))
    return Entry(arrival, [raw_id, [b"a", b"1"], 0, 0])


def offer_all(*entries: Entry) -> list[bytes]:
    """Offer these, in this order; the IDs whose owner is asked for in the same round trip."""
    in_flight = InFlight(concurrency=1000)
    for entry in entries:
        in_flight.accept(entry)
    letters = ExchangeAdditions(left=(), started_ids=None, grant=1000, grant_at_once=1000, read=0)
    sent = build_outgoing(in_flight, letters, NOW_S, IDLE_S)
    assert sent.kept == [
        entry for entry in entries if entry.raw_id in sent.outgoing.keeps[b"orders"]
    ]
    return list(sent.outgoing.keeps[b"orders"])


def test_a_late_entry_is_confirmed_even_behind_a_fresh_one() -> None:
    fresh, late = an_entry(b"1-0", NOW_S), an_entry(b"2-0", NOW_S - IDLE_S)
    assert offer_all(fresh, late) == [b"2-0"]


def test_every_late_entry_is_confirmed_once_before_it_starts() -> None:
    late = [an_entry(b"%d-0" % number, NOW_S - IDLE_S) for number in range(500)]
    assert offer_all(*late) == [entry.raw_id for entry in late]


def test_what_was_granted_before_a_long_stop_does_not_start_unasked() -> None:
    in_flight = InFlight(concurrency=10, idle_s=IDLE_S)
    held, isolated = an_entry(b"1-0", 0.0), an_entry(b"2-0", 0.0)
    in_flight.accept(held)
    in_flight.accept(isolated, isolated=True)
    for entry in (isolated, held):
        assert in_flight.offer(10) == [entry]
        in_flight.confirm()
        assert in_flight.start(TASK, IDLE_S + 1) is None
    in_flight.refreshed([held, isolated], IDLE_S + 1)
    in_flight.offer(10)
    in_flight.confirm()
    assert in_flight.start(TASK, IDLE_S + 2) in (held, isolated)


def test_an_entry_starts_even_without_an_answer_about_its_owner() -> None:
    # A worker that may not send heartbeats, or a server without memory: no answer came.
    in_flight = InFlight(concurrency=10, idle_s=IDLE_S)
    entry = an_entry(b"1-0", 0.0)
    in_flight.accept(entry)
    for started in (None, entry):
        in_flight.offer(10)
        in_flight.confirm()
        assert in_flight.start(TASK, IDLE_S + 1) is started
