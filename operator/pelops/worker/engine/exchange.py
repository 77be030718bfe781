"""The exchange: one round trip with what is done, what starts and what needs a heartbeat.

The loop decides when there is something to send, sends it, and acts on the answer, which brings
what is next. None of it is urgent. Done at once, it would keep the server idle, and then the worker
while that works: the two take turns instead of working side by side.

An entry that may have been given to somebody else, because it was not refreshed for long, is
acknowledged by a script that checks first. What could not be sent is sent again: all of it repeats
safely.
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
TRUSTED_FOR: Final = 2 / 3  # of the processing timeout: so long nobody else can have been given it
REFRESHED_AT_ONCE: Final = 200  # 33 us of the server for 10


@dataclass(slots=True)
class Sent:
    """What an exchange is about."""

    outgoing: Outgoing
    at_s: float
    done: list[Entry]
    kept: list[Entry]
    started_ids: bytes


@dataclass(slots=True)
class ExchangeAdditions:
    """What the next exchange carries beside what is held."""

    left: Iterable[bytes]  # started entries of former processes of this name
    started_ids: bytes | None  # as Redis has them; None: unknown
    grant: int  # so many may be active
    grant_at_once: int
    read: int
    trusts: bool = True  # Redis did what it was asked last: this is said at once


def build_outgoing(
    in_flight: InFlight, additions: ExchangeAdditions, now_s: float, idle_s: float
) -> Sent:
    """Take from `holding` what is to be said now."""
    done = in_flight.take_done()
    offered = in_flight.offer(additions.grant, additions.grant_at_once) if additions.grant else []
    acks, checked = _split(done, now_s - idle_s * TRUSTED_FOR if additions.trusts else math.inf)
    kept = in_flight.due_for_refresh(now_s - idle_s * REFRESH_AT, REFRESHED_AT_ONCE)
    _add_doubtful(kept, offered, now_s - idle_s * TRUSTED_FOR)
    if kept and done:
        said = set(done)
        kept = [entry for entry in kept if entry not in said]
    started_ids = b" ".join([*additions.left, *in_flight.started_ids()])
    outgoing = Outgoing(
        acks=acks,
        checked_acks=checked,
        started_ids=None if started_ids == additions.started_ids else started_ids,
        keeps=by_key(kept),
        read=additions.read,
    )
    return Sent(outgoing, now_s, done, kept, started_ids)


def _add_doubtful(kept: list[Entry], offered: Iterable[Entry], trusted_from_s: float) -> None:
    """What may be somebody else's by now is asked for before it starts: it came late."""
    doubtful = [entry for entry in offered if entry.refreshed_s < trusted_from_s]
    if doubtful:
        known = set(kept)
        kept.extend(entry for entry in doubtful if entry not in known)


def _split(done: list[Entry], trusted_from_s: float) -> tuple[Ids, Ids]:
    """What is certainly ours, and what may not be."""
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
class Heard:
    """What an answer means for the entries that it is about."""

    settled: list[Entry]
    unsaid: list[Entry]  # their acknowledgement was refused, and is to be sent again
    lost: list[Entry]
    gone: list[Entry]  # their body was deleted
    kept: list[Entry]
    pending: int  # acknowledged entries that had been pending


def understand_answer(sent: Sent, answer: Exchanged) -> Heard:
    """What became of what was sent. With a problem nothing counts as refreshed."""
    if _is_all_well(sent, answer):
        pending = sum(answer.acked.values())
        return Heard(sent.done, unsaid=[], lost=[], gone=[], kept=sent.kept, pending=pending)
    lost = [entry for entry in (*sent.done, *sent.kept) if _is_in(entry, answer.lost)]
    gone = [entry for entry in sent.kept if _is_in(entry, answer.gone)]
    away = {*lost, *gone}
    acked = answer.acked
    return Heard(
        settled=[entry for entry in sent.done if entry.key in acked and entry not in away],
        unsaid=[entry for entry in sent.done if entry.key not in acked and entry not in away],
        lost=lost,
        gone=gone,
        kept=[entry for entry in sent.kept if not answer.problem and entry not in away],
        pending=sum(acked.values()),
    )


def _is_all_well(sent: Sent, answer: Exchanged) -> bool:
    """Nearly always; then there is nothing to look at entry by entry."""
    asked = sent.outgoing.acks.keys() | sent.outgoing.checked_acks.keys()
    refused = answer.problem or answer.lost or answer.gone
    return not refused and asked <= answer.acked.keys()


def _is_in(entry: Entry, ids: dict[bytes, set[bytes]]) -> bool:
    return bool(ids) and entry.raw_id in ids.get(entry.key, ())


log = logging.getLogger("pelops.worker")


@dataclass(slots=True)
class Answered:
    """One exchange that was heard."""

    sent: Sent
    heard: Heard
    delivered: list[Delivered]


class AnswerDigest:
    """Takes in what was delivered, tells the observer what was done, and learns the pace."""

    def __init__(self, shared: Shared, reader: BlockingReader) -> None:
        self.handler_s = 0.0  # how long one takes, lately
        self.repeats = False  # what is acknowledged may have been before
        self._reader = reader
        self._in_flight = shared.in_flight
        self._prefetcher = shared.prefetcher
        self._receiving = shared.receiving
        self._observer = shared.observer
        self._put_off: list[Answered] = []

    @property
    def is_unacknowledged(self) -> bool:
        """Whether anything is put off."""
        return bool(self._put_off)

    def put_off(self, answered: Answered) -> None:
        """Digest this later; what is to come is known at once."""
        self._put_off.append(answered)
        asked = answered.sent.outgoing.read
        if asked:
            got = self._receiving.put_off(answered.delivered, answered.sent.at_s)
            self._prefetcher.learn(asked=asked, got=got)

    async def digest(self) -> None:
        """See to all that was put off."""
        self._receiving.catch_up()
        for answered in self._put_off:
            self._learn(answered.sent, answered.heard)
        if self._put_off:
            self._put_off.clear()
            self._reader.alarm.ring()

    def _learn(self, sent: Sent, heard: Heard) -> None:
        done, settled = sent.done, heard.settled
        seconds = [entry.seconds for entry in done]
        if done:
            self.handler_s += 0.3 * (sum(seconds) / len(done) - self.handler_s)
            self._observer.acknowledged(len(done), heard.pending)
            self._doubt(len(settled) - heard.pending)
            self.repeats = False
        if settled:
            if settled is not done:
                seconds = [entry.seconds for entry in settled]
            self._observer.finished(settled, seconds)
        self._reader.pace.count(len(done), sent.at_s)
        in_flight = self._in_flight
        self._observer.in_flight(len(in_flight.running), len(in_flight) - len(in_flight.running))

    def _doubt(self, missing: int) -> None:
        if missing > 0 and not self.repeats:
            log.warning(
                "%d acknowledged entries were no longer pending: they were claimed or acknowledged "
                "elsewhere, or another process uses the same consumer name",
                missing,
            )


_PATIENCE_S: Final = 0.05  # beside what the adapter itself waits after a refusal
_LOOK_S: Final = 1.0
_TICK_S: Final = 0.0001
_INSTANT_S: Final = 0.0005
_QUICK_S: Final = 0.005


class ExchangeLoop:
    """All that one worker says to Redis while it works."""

    def __init__(self, shared: Shared, reader: BlockingReader) -> None:
        self.alarm = Alarm()
        self.slots: Slots | None = None
        self.is_closing = False  # nothing is read or started any more
        self.has_ended = False
        self._digesting = AnswerDigest(shared, reader)
        self._reader = reader
        self._adapter = shared.adapter
        self._in_flight = shared.in_flight
        self._prefetcher = shared.prefetcher
        self._receiving = shared.receiving
        self._settings = shared.settings
        self._observer = shared.observer
        self._complaints = shared.complaints
        self._clock = shared.clock
        self._started_ids: bytes | None = None
        self._trusts = True  # after a refusal the adapter waits, and connects, before it asks again
        self._done_since_s: float | None = None
        self._limit = self._low = shared.settings.concurrency  # so many may be active

    # When.

    async def run(self) -> None:
        """Talk until told to end; what is being said then is heard to the end."""
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
        """How long nothing needs to be said; 0: there is something."""
        in_flight, settings = self._in_flight, self._settings
        self._set_limits()
        if self._may_grant() or self._should_read():
            return 0.0
        waits = [_LOOK_S, settings.idle_s / 12]
        if in_flight.done:
            waits.append(self._wait_for_others_s(now_s))
        else:
            self._done_since_s = None
        oldest_s = in_flight.oldest_refresh_s()
        if oldest_s is not None:
            # As build_outgoing reckons, to the last bit: else nothing would be due yet.
            waits.append(_no_instant(oldest_s - (now_s - settings.idle_s * REFRESH_AT)))
        if in_flight.next_wake_s is not None:
            waits.append(_no_instant(in_flight.next_wake_s - now_s))
        return max(min(waits), 0.0)

    def _set_limits(self) -> None:
        """How many may be active, and when there are few enough to grant others.

        Half of them at a time, when handlers are quick: they run while the others are recorded as
        started.
        """
        most = self._settings.concurrency
        ahead = decide_ahead(most, self._digesting.handler_s)
        self._limit = most + ahead
        self._low = self._limit // 2 if ahead else most - max(most // 8, 1)
        if self.slots is not None:
            self.slots.low = max(self._low - len(self._in_flight.running), 0)

    def _wait_for_others_s(self, now_s: float) -> float:
        """How long acknowledgements may wait for others."""
        in_flight, settings = self._in_flight, self._settings
        if self._done_since_s is None:
            self._done_since_s = now_s
        # At the end the last word is near, which says it all at once.
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
            self._in_flight.let_go(entry)
            self._wake_slots()
        for entry in self._in_flight.overdue(now_s - limit_s):
            if not entry.cancelled_for:
                entry.cancelled_for = "timeout"
                self._in_flight.running[entry].cancel()

    # What.

    async def exchange(self) -> bool:
        """Say all that there is to say; False when Redis refused."""
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
            self._unsaid(sent, error)
            return False
        except BaseException:
            self._in_flight.withdraw()
            self._in_flight.bring_back(sent.done)
            raise
        is_well = self._hear(sent, answer)
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

    def _unsaid(self, sent: Sent, error: RedisError) -> None:
        self._complaints.hear("exchange", error)
        self._in_flight.withdraw()
        self._in_flight.bring_back(sent.done)
        self._started_ids = None
        self._trusts = False
        self._digesting.repeats = True
        if isinstance(error, NoSuchGroup):
            self._in_flight.distrust()

    def _hear(self, sent: Sent, answer: Exchanged) -> bool:
        heard = understand_answer(sent, answer)
        in_flight = self._in_flight
        in_flight.settle(heard.settled)
        in_flight.bring_back(heard.unsaid)
        in_flight.refreshed(heard.kept, sent.at_s)
        self.disown(heard.lost)
        in_flight.refreshed(heard.gone, math.inf)  # nobody can be given an entry without a body
        self._hear_problem(sent, answer.problem)
        self._digesting.put_off(Answered(sent, heard, answer.delivered))
        return answer.problem is None

    def _hear_problem(self, sent: Sent, problem: RedisError | None) -> None:
        if problem is None:
            self._complaints.end("exchange")
        else:
            self._complaints.hear("exchange", problem)
        self._trusts = not isinstance(problem, RedisUnavailable)
        if isinstance(problem, NoSuchGroup):
            self._in_flight.distrust()
        if problem is None or isinstance(problem, PermissionDenied | OutOfMemory):
            # Who cannot record started entries works on without: all that it held gets a failed
            # attempt if it dies, or what was recorded as started before. What fills the memory may
            # be what is to be worked on.
            self._started_ids = sent.started_ids
            self._in_flight.confirm()
        else:
            self._started_ids = None
            self._in_flight.withdraw()
        self._wake_slots()

    def _wake_slots(self) -> None:
        if self.slots is not None:
            self.slots.wake()

    # What is lost.

    def disown(self, entries: Iterable[Entry]) -> None:
        """These belong to other workers by now: what is done with them here ends."""
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
            # A batch goes on for the sake of the others.
            if all(one.is_disowned for one, other in running.items() if other is task):
                task.cancel()


def _no_instant(wait_s: float) -> float:
    """A wait that the clock can show: what is due a rounding error later is not asked for now."""
    return max(wait_s, _TICK_S) if wait_s > 0 else 0.0


def decide_ahead(concurrency: int, handler_s: float) -> int:
    """How many entries are recorded as started before there is a place for them to start.

    None for handlers that take some milliseconds: then exactly what has started is recorded as
    started. Quicker ones would wait for the round trip that marks the next. Should the process die,
    such an entry gets a failed attempt with the others, and runs alone the next time, which costs a
    round trip.
    """
    if handler_s >= _QUICK_S:
        return 0
    return min(3 * concurrency, 300) if handler_s < _INSTANT_S else min(concurrency, 100)
