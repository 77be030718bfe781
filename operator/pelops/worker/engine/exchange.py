"""The exchange: one round trip with acknowledgements, started entries and heartbeats.

The loop decides when to send, and applies the reply, which also delivers entries. The reply is
digested during the next exchange, so that the worker and the server work at the same time.

An entry without a recent heartbeat may belong to another worker by now: a script acknowledges it
after it has checked the owner. What could not be sent is sent again, which is safe for all
commands.
"""

from __future__ import annotations

import asyncio
import logging
import math
from asyncio import Task
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pelops.errors import NoSuchGroup, OutOfMemory, PermissionDenied, RedisError, RedisUnavailable
from pelops.worker.engine.blocking_reads import BlockingReader
from pelops.worker.engine.in_flight import InFlight
from pelops.worker.engine.shared import Alarm, Shared
from pelops.worker.engine.slots import Slots
from pelops.worker.entry import Entry
from pelops.worker.server.adapter import Delivered, Exchanged, Ids, Outgoing

REFRESH_AT: Final = 1 / 3  # of the processing timeout: two heartbeats may fail
TRUSTED_FOR: Final = 2 / 3  # of the processing timeout: until then no other worker can own it
REFRESHED_AT_ONCE: Final = 200  # 10 take 33 microseconds of server time


@dataclass(slots=True)
class Sent:
    """An exchange that was sent, with its entries."""

    outgoing: Outgoing
    at_s: float
    done: list[Entry]
    kept: list[Entry]
    started_ids: bytes


@dataclass(slots=True)
class ExchangeAdditions:
    """Input of the next exchange, in addition to the entries in flight."""

    left: Iterable[bytes]  # started entries of former processes of this name
    started_ids: bytes | None  # as recorded in Redis; None: unknown
    grant: int  # maximum number of active entries; 0: grant none
    grant_at_once: int
    read: int
    trusts: bool = True  # no outage since the last exchange: this one is sent without backoff


def build_outgoing(
    in_flight: InFlight, additions: ExchangeAdditions, now_s: float, idle_s: float
) -> Sent:
    """Take from `in_flight` what to send now."""
    done = in_flight.pop_done()
    offered = in_flight.offer(additions.grant, additions.grant_at_once) if additions.grant else []
    acks, checked = _split(done, now_s - idle_s * TRUSTED_FOR if additions.trusts else math.inf)
    kept = in_flight.due_for_refresh(now_s - idle_s * REFRESH_AT, REFRESHED_AT_ONCE)
    _add_unverified(kept, offered, now_s - idle_s * TRUSTED_FOR)
    if kept and done:
        done_entries = set(done)
        kept = [entry for entry in kept if entry not in done_entries]
    started_ids = b" ".join([*additions.left, *in_flight.started_ids()])
    outgoing = Outgoing(
        acks=acks,
        checked_acks=checked,
        started_ids=None if started_ids == additions.started_ids else started_ids,
        keeps=by_key(kept),
        read=additions.read,
    )
    return Sent(outgoing, now_s, done, kept, started_ids)


def _add_unverified(kept: list[Entry], offered: Iterable[Entry], trusted_from_s: float) -> None:
    """Check the owner, with a heartbeat, of entries that waited long before their start."""
    unverified = [entry for entry in offered if entry.refreshed_s < trusted_from_s]
    if unverified:
        known = set(kept)
        kept.extend(entry for entry in unverified if entry not in known)


def _split(done: list[Entry], trusted_from_s: float) -> tuple[Ids, Ids]:
    """IDs that this worker certainly owns, and IDs whose owner must be checked."""
    acks: dict[bytes, list[bytes]] = {}
    checked: dict[bytes, list[bytes]] = {}
    for entry in done:
        into = acks if entry.refreshed_s >= trusted_from_s else checked
        key = entry.key
        if key in into:
            into[key].append(entry.raw_id)
        else:
            into[key] = [entry.raw_id]
    return acks, checked


def by_key(entries: Iterable[Entry]) -> dict[bytes, list[bytes]]:
    """IDs by the stream of each entry."""
    found: dict[bytes, list[bytes]] = {}
    for entry in entries:
        found.setdefault(entry.key, []).append(entry.raw_id)
    return found


@dataclass(slots=True)
class ExchangeResult:
    """The result of an exchange for its entries."""

    settled: list[Entry]
    unconfirmed: list[Entry]  # their acknowledgement was refused; it is sent again
    lost: list[Entry]
    gone: list[Entry]  # their body was deleted
    kept: list[Entry]
    pending: int  # number of acknowledged entries that were pending


def sort_by_reply(sent: Sent, answer: Exchanged) -> ExchangeResult:
    """Sort the entries by the reply. With a problem, no entry counts as refreshed."""
    if _is_all_well(sent, answer):
        pending = sum(answer.acked.values())
        return ExchangeResult(
            sent.done, unconfirmed=[], lost=[], gone=[], kept=sent.kept, pending=pending
        )
    lost = [entry for entry in (*sent.done, *sent.kept) if _is_in(entry, answer.lost)]
    gone = [entry for entry in sent.kept if _is_in(entry, answer.gone)]
    away = {*lost, *gone}
    acked = answer.acked
    return ExchangeResult(
        settled=[entry for entry in sent.done if entry.key in acked and entry not in away],
        unconfirmed=[entry for entry in sent.done if entry.key not in acked and entry not in away],
        lost=lost,
        gone=gone,
        kept=[entry for entry in sent.kept if not answer.problem and entry not in away],
        pending=sum(acked.values()),
    )


def _is_all_well(sent: Sent, answer: Exchanged) -> bool:
    """Whether everything succeeded, the usual case, so that no entry needs a check."""
    asked = sent.outgoing.acks.keys() | sent.outgoing.checked_acks.keys()
    refused = answer.problem or answer.lost or answer.gone
    return not refused and asked <= answer.acked.keys()


def _is_in(entry: Entry, ids: dict[bytes, set[bytes]]) -> bool:
    return bool(ids) and entry.raw_id in ids.get(entry.key, ())


log = logging.getLogger("pelops.worker")


@dataclass(slots=True)
class CompletedExchange:
    """An exchange and its result."""

    sent: Sent
    result: ExchangeResult
    delivered: list[Delivered]


class AnswerDigest:
    """Accepts deliveries, reports results to the observer, and measures the pace."""

    def __init__(self, shared: Shared, reader: BlockingReader) -> None:
        self.handler_s = 0.0  # recent average duration of a handler
        self.repeats = False  # acknowledgements may be repetitions
        self._reader = reader
        self._in_flight = shared.in_flight
        self._prefetcher = shared.prefetcher
        self._receiving = shared.receiving
        self._observer = shared.observer
        self._put_off: list[CompletedExchange] = []

    @property
    def is_unacknowledged(self) -> bool:
        """Whether results wait for `digest`."""
        return bool(self._put_off)

    def put_off(self, answered: CompletedExchange) -> None:
        """Digest this later, but count its deliveries now."""
        self._put_off.append(answered)
        asked = answered.sent.outgoing.read
        if asked:
            got = self._receiving.put_off(answered.delivered, answered.sent.at_s)
            self._prefetcher.learn(asked=asked, got=got)

    async def digest(self) -> None:
        """Process all results that were put off."""
        self._receiving.catch_up()
        for answered in self._put_off:
            self._learn(answered.sent, answered.result)
        if self._put_off:
            self._put_off.clear()
            self._reader.alarm.ring()

    def _learn(self, sent: Sent, result: ExchangeResult) -> None:
        done, settled = sent.done, result.settled
        seconds = [entry.seconds for entry in done]
        if done:
            self.handler_s += 0.3 * (sum(seconds) / len(done) - self.handler_s)
            self._observer.acknowledged(len(done), result.pending)
            self._warn_of_missing(len(settled) - result.pending)
            self.repeats = False
        if settled:
            if settled is not done:
                seconds = [entry.seconds for entry in settled]
            self._observer.finished(settled, seconds)
        self._reader.pace.count(len(done), sent.at_s)
        in_flight = self._in_flight
        self._observer.in_flight(len(in_flight.running), len(in_flight) - len(in_flight.running))

    def _warn_of_missing(self, missing: int) -> None:
        if missing > 0 and not self.repeats:
            log.warning(
                "%d acknowledged entries were no longer pending: they were claimed or acknowledged "
                "elsewhere, or another process uses the same consumer name",
                missing,
            )


_PATIENCE_S: Final = 0.05  # in addition to the adapter's own backoff
_CHECK_S: Final = 1.0
_TICK_S: Final = 0.0001
_INSTANT_S: Final = 0.0005
_QUICK_S: Final = 0.005


class ExchangeLoop:
    """Sends the exchanges of one worker."""

    def __init__(self, shared: Shared, reader: BlockingReader) -> None:
        self.alarm = Alarm()
        self.slots: Slots | None = None
        self.is_closing = False  # no more entries are read or started
        self.has_ended = False
        self._digesting = AnswerDigest(shared, reader)
        self._reader = reader
        self._adapter = shared.adapter
        self._in_flight = shared.in_flight
        self._prefetcher = shared.prefetcher
        self._receiving = shared.receiving
        self._settings = shared.settings
        self._observer = shared.observer
        self._refusals = shared.refusals
        self._clock = shared.clock
        self._started_ids: bytes | None = None
        self._trusts = True  # False: the adapter may back off or reconnect first
        self._done_since_s: float | None = None
        self._limit = self._low = shared.settings.concurrency  # numbers of active entries

    # When to send.

    async def run(self) -> None:
        """Exchange until `has_ended`; the exchange in progress is completed."""
        while not self.has_ended:
            now_s = self._clock()
            self._in_flight.wake(now_s)
            self._end_overdue(now_s)
            wait_s = self._wait_s(now_s)
            if wait_s > 0 and self._digesting.is_unacknowledged:
                await self._digesting.digest()
            elif wait_s > 0:
                await self.alarm.wait(wait_s)
            elif not await self.exchange():
                await self.alarm.wait(_PATIENCE_S)

    def _wait_s(self, now_s: float) -> float:
        """Seconds until something must be sent; 0: now."""
        in_flight, settings = self._in_flight, self._settings
        self._set_limits()
        if self._may_grant() or self._should_read():
            return 0.0
        waits = [_CHECK_S, settings.idle_s / 12]
        if in_flight.done:
            waits.append(self._wait_for_others_s(now_s))
        else:
            self._done_since_s = None
        oldest_s = in_flight.oldest_refresh_s()
        if oldest_s is not None:
            # Exactly the arithmetic of build_outgoing: otherwise no heartbeat would be due yet.
            waits.append(_no_instant(oldest_s - (now_s - settings.idle_s * REFRESH_AT)))
        if in_flight.next_wake_s is not None:
            waits.append(_no_instant(in_flight.next_wake_s - now_s))
        return max(min(waits), 0.0)

    def _set_limits(self) -> None:
        """Set how many entries may be active, and how few must be left to grant more.

        If handlers are quick, half of them are granted at a time: these are recorded as started
        while the other half runs.
        """
        most = self._settings.concurrency
        ahead = decide_ahead(most, self._digesting.handler_s)
        self._limit = most + ahead
        self._low = self._limit // 2 if ahead else most - max(most // 8, 1)
        if self.slots is not None:
            self.slots.low = max(self._low - len(self._in_flight.running), 0)

    def _wait_for_others_s(self, now_s: float) -> float:
        """Seconds that acknowledgements may wait for more of them."""
        in_flight, settings = self._in_flight, self._settings
        if self._done_since_s is None:
            self._done_since_s = now_s
        # While the worker closes, a last exchange sends all of them soon.
        is_idle = not in_flight.active and not self.is_closing
        if is_idle or len(in_flight.done) >= settings.acknowledge_count:
            return 0.0
        return self._done_since_s + settings.acknowledge_s - now_s

    def _may_grant(self) -> bool:
        in_flight = self._in_flight
        return not self.is_closing and in_flight.may_grant and in_flight.active <= self._low

    def _should_read(self) -> bool:
        if self.is_closing or not self._prefetcher.is_pouring or self._reader.has_unread_history:
            return False
        return self._prefetcher.is_worth_reading(self._reader.room(), self._reader.queued)

    def _end_overdue(self, now_s: float) -> None:
        limit_s = self._settings.timeout_s
        if limit_s is None or not self._in_flight.running:
            return
        for entry in self._in_flight.overdue(now_s - 2 * limit_s):
            log.error(
                "%r: the handler still runs after its cancellation; its slot and entry are "
                "released",
                entry,
            )
            self._in_flight.free_slot(entry)
            self._wake_slots()
        for entry in self._in_flight.overdue(now_s - limit_s):
            if not entry.cancelled_for:
                entry.cancelled_for = "timeout"
                self._in_flight.running[entry].cancel()

    # What to send.

    async def exchange(self) -> bool:
        """Send one exchange and apply the reply; False: Redis refused some of it."""
        if not self.is_closing:
            self._in_flight.wake(self._clock())
        sent = build_outgoing(
            self._in_flight, self._additions(), self._clock(), self._settings.idle_s
        )
        self._done_since_s = None
        digesting = asyncio.create_task(self._digesting.digest(), name="pelops-digest")
        try:
            try:
                answer = await self._adapter.exchange(sent.outgoing)
            finally:
                await digesting
        except RedisError as error:
            self._handle_failure(sent, error)
            return False
        except BaseException:
            self._in_flight.withdraw()
            self._in_flight.bring_back(sent.done)
            raise
        is_well = self._apply(sent, answer)
        if self.is_closing:
            await self._digesting.digest()
        return is_well

    def _additions(self) -> ExchangeAdditions:
        reads = (
            self._prefetcher.is_pouring
            and not self._reader.has_unread_history
            and not self.is_closing
        )
        return ExchangeAdditions(
            left=self._receiving.left,
            started_ids=self._started_ids,
            trusts=self._trusts,
            grant=0 if self.is_closing else self._limit,
            grant_at_once=max(self._limit // 2, self._settings.concurrency),
            read=self._reader.room() if reads else 0,
        )

    def _handle_failure(self, sent: Sent, error: RedisError) -> None:
        self._refusals.report("exchange", error)
        self._in_flight.withdraw()
        self._in_flight.bring_back(sent.done)
        self._started_ids = None
        self._trusts = False
        self._digesting.repeats = True
        if isinstance(error, NoSuchGroup):
            self._in_flight.mark_unverified()

    def _apply(self, sent: Sent, answer: Exchanged) -> bool:
        result = sort_by_reply(sent, answer)
        in_flight = self._in_flight
        in_flight.settle(result.settled)
        in_flight.bring_back(result.unconfirmed)
        in_flight.refreshed(result.kept, sent.at_s)
        self.disown(result.lost)
        in_flight.refreshed(result.gone, math.inf)  # no worker can claim an entry without a body
        self._apply_problem(sent, answer.problem)
        self._digesting.put_off(CompletedExchange(sent, result, answer.delivered))
        return answer.problem is None

    def _apply_problem(self, sent: Sent, problem: RedisError | None) -> None:
        if problem is None:
            self._refusals.end("exchange")
        else:
            self._refusals.report("exchange", problem)
        self._trusts = not isinstance(problem, RedisUnavailable)
        if isinstance(problem, NoSuchGroup):
            self._in_flight.mark_unverified()
        if problem is None or isinstance(problem, PermissionDenied | OutOfMemory):
            # A worker that cannot record started entries still starts them. If it dies, all its
            # entries, or those recorded earlier, get a failed attempt. After OutOfMemory, to
            # process these entries may free memory.
            self._started_ids = sent.started_ids
            self._in_flight.confirm()
        else:
            self._started_ids = None
            self._in_flight.withdraw()
        self._wake_slots()

    def _wake_slots(self) -> None:
        if self.slots is not None:
            self.slots.wake()

    # Lost entries.

    def disown(self, entries: Iterable[Entry]) -> None:
        """Stop handling these entries, which now belong to other workers."""
        tasks: dict[Entry, Task[None]] = {}
        for entry in entries:
            if entry.is_disowned:
                continue
            entry.cancelled_for = entry.cancelled_for or "disowned"
            task = self._in_flight.disown(entry)
            log.warning("%r: the entry now belongs to another consumer", entry)
            self._observer.disowned(entry)
            if task is not None:
                tasks[entry] = task
        running = self._in_flight.running
        for task in set(tasks.values()):
            # A batch is cancelled only when all its entries are disowned.
            if all(one.is_disowned for one, other in running.items() if other is task):
                task.cancel()


def _no_instant(wait_s: float) -> float:
    """A positive wait of at least one tick, so that rounding errors cause no busy loop."""
    return max(wait_s, _TICK_S) if wait_s > 0 else 0.0


def decide_ahead(concurrency: int, handler_s: float) -> int:
    """Number of entries that are recorded as started before a slot is free for them.

    0 for handlers that take 5 ms or more: then only running entries are recorded. Quicker handlers
    would wait for the round trip that records the next entry. If the process dies, entries recorded
    ahead get a failed attempt too and then run in isolation, which costs a round trip each.
    """
    if handler_s >= _QUICK_S:
        return 0
    return min(3 * concurrency, 300) if handler_s < _INSTANT_S else min(concurrency, 100)
