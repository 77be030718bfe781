"""Handlers run in slots: tasks that handle one entry after another, while entries are granted.

A task per entry costs more than most handlers. So a slot awaits a handler directly, within its own
task: one that never suspends costs a call. While a handler is suspended, its slot is too. Other
slots, created when entries are granted, then take the next entries.

    slot 1   handler of a ......(suspended)........ end of a | handler of d
    slot 2             handler of b | handler of c .(suspended).

To a handler, its slot is an ordinary task: `asyncio.timeout`, TaskGroup, cancellation and libraries
that use the current task work on every Python. If a handler leaves a changed context or a
cancellation in its task, the slot ends, so that no other handler is affected.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import Task
from collections.abc import Callable
from typing import Any, Final

from pelops.worker.engine.shared import Shared
from pelops.worker.entry import Entry
from pelops.worker.handlers import HandleMany, HandleOne, Handler, outcomes_of_batch
from pelops.worker.outcomes import Outcome

_RAISED: Final = object()  # outcome of a handler that raised
SLICE_S: Final = 0.02  # then handlers that never suspend yield to the event loop

Ended = Callable[[Entry, Outcome], None]


class Slots:
    """Runs the handlers of granted entries, at most `in_flight.concurrency` at once."""

    def __init__(
        self, shared: Shared, handler: Handler, *, ended: Ended, wake_exchange: Callable[[], None]
    ) -> None:
        self._in_flight = shared.in_flight
        self._one: HandleOne | None = handler.one
        self._many: HandleMany | None = handler.many
        self._batch_size = shared.settings.batch_size
        self._clock = shared.clock
        self._ended = ended
        self._wake_exchange = wake_exchange  # wakes the exchange loop
        self._enough = shared.settings.acknowledge_count
        self.low = 0  # number of granted entries at which to request more
        self._tasks: set[Task[None]] = set()
        self._unbegun = 0  # created slots that have not run yet
        self._turn_ends_s: float | None = None

    def wake(self) -> None:
        """Create a slot if an entry can start."""
        if self._may_begin():
            self._begin(1)

    def _may_begin(self) -> bool:
        """Whether a new slot would find work. Without work it would end and wake another."""
        in_flight = self._in_flight
        has_place = len(in_flight.running) < in_flight.concurrency
        return has_place and bool(in_flight.granted) and not self._unbegun

    @property
    def tasks(self) -> set[Task[None]]:
        """The tasks of all slots."""
        return self._tasks

    def _begin(self, slots: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(slots):
            task = loop.create_task(self._run(), name="pelops-slot")
            self._tasks.add(task)
        self._unbegun += slots

    async def _run(self) -> None:
        self._unbegun -= 1
        task = asyncio.current_task()
        assert task is not None
        try:
            if self._is_turn_over():
                return
            self._spread()
            if self._one is not None:
                await self._run_each(task, self._one)
            elif self._many is not None:
                await self._run_batches(task, self._many)
        except GeneratorExit:
            pass  # already settled by `_end`; no caller reads a slot's result
        finally:
            self._tasks.discard(task)
            self.wake()
            self._wake_exchange()

    def _spread(self) -> None:
        """Create slots for all granted entries if other handlers are suspended."""
        in_flight = self._in_flight
        if in_flight.running:
            free = in_flight.concurrency - len(in_flight.running) - 1
            self._begin(max(min(free, len(in_flight.granted) - 1) - self._unbegun, 0))

    def _is_turn_over(self) -> bool:
        """Whether handlers have used their time slice of this event loop iteration."""
        now_s = self._clock()
        if self._turn_ends_s is None:
            self._turn_ends_s = now_s + SLICE_S
            asyncio.get_running_loop().call_soon(self._begin_turn)
        return now_s > self._turn_ends_s

    def _begin_turn(self) -> None:
        self._turn_ends_s = None

    async def _run_each(self, task: Task[None], handle: HandleOne) -> None:
        # The hot path, inlined: it runs for every entry.
        in_flight, clock, copy_context = self._in_flight, self._clock, contextvars.copy_context
        granted, wake_counts = in_flight.granted, (1, self._enough)
        running, concurrency = in_flight.running, in_flight.concurrency
        context = copy_context()
        started_s = clock()
        ends_s = started_s + SLICE_S
        while (entry := in_flight.start(task, started_s)) is not None:
            if granted and not self._unbegun and len(running) < concurrency:
                self._begin(1)
            if len(granted) == self.low:
                self._wake_exchange()
            try:
                outcome = await handle(entry)
            except BaseException as error:
                self._end(entry, error, clock() - started_s)
                if isinstance(error, GeneratorExit):  # raised, or the loop is closing
                    raise
                outcome = _RAISED
            now_s = clock()
            if outcome is None and not entry.cancelled_for:
                entry.seconds = now_s - started_s
                in_flight.finish(entry)
                if len(in_flight.done) in wake_counts:
                    self._wake_exchange()
            elif outcome is not _RAISED:
                self._end(entry, outcome, now_s - started_s)
            started_s = now_s
            if task.cancelling() or copy_context() != context:
                return
            if now_s > ends_s:
                await asyncio.sleep(0)
                if self._is_turn_over():
                    return
                started_s = clock()
                ends_s = started_s + SLICE_S

    def _end(self, entry: Entry, outcome: Any, seconds: float) -> None:
        """Settle an entry whose handler did not succeed, or was cancelled before it ended."""
        entry.seconds = seconds
        self._ended(entry, outcome if isinstance(outcome, BaseException) else None)
        self._wake_exchange()

    async def _run_batches(self, task: Task[None], handle: HandleMany) -> None:
        clock, context = self._clock, contextvars.copy_context()
        ends_s = clock() + SLICE_S
        while entries := self._start_batch(task):
            self.wake()
            outcomes = await self._handle_batch(handle, entries)
            now_s = clock()
            for entry, outcome in zip(entries, outcomes, strict=True):
                self._end_one_of_batch(entry, entries, outcome, now_s)
            if isinstance(outcomes[0], GeneratorExit):
                raise outcomes[0]
            if now_s > ends_s or task.cancelling() or contextvars.copy_context() != context:
                return

    async def _handle_batch(self, handle: HandleMany, entries: list[Entry]) -> list[Outcome]:
        try:
            return outcomes_of_batch(await handle(list(entries)), entries)
        except BaseException as error:
            return [error] * len(entries)

    def _end_one_of_batch(
        self, entry: Entry, batch: list[Entry], outcome: Outcome, now_s: float
    ) -> None:
        if entry.cancelled_for or outcome is not None:
            entry.batch = batch
            self._end(entry, outcome, now_s - entry.started_s)
            entry.batch = ()
        else:
            entry.seconds = now_s - entry.started_s
            self._in_flight.finish(entry)
            self._wake_exchange()

    def _start_batch(self, task: Task[None]) -> list[Entry]:
        """The next batch; an entry that has failed in this worker is a batch of its own."""
        granted, now_s = self._in_flight.granted, self._clock()
        entries: list[Entry] = []
        while len(entries) < self._batch_size and granted:
            if entries and (granted[0].failures or entries[0].failures):
                break
            entry = self._in_flight.start(task, now_s)
            if entry is None:
                break
            entries.append(entry)
        return entries
