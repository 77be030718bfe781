"""One worker at work, from its first connection to the end of its shutdown.

Shutdown: stop reading; release entries that have not started; wait for handlers, and cancel them
after the grace period; acknowledge; release the rest; remove the consumer if it owns no entries.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from pelops.errors import OutcomeUnknown, RedisError, RedisUnavailable
from pelops.worker.engine.blocking_reads import BlockingReader
from pelops.worker.engine.dead_letter_writer import DeadLetterWriter
from pelops.worker.engine.exchange import ExchangeLoop, by_key
from pelops.worker.engine.retries import Again, GivenUp, decide_settlement
from pelops.worker.engine.shared import Alarm, Shared
from pelops.worker.engine.slots import Slots
from pelops.worker.engine.watchdog import Watchdog
from pelops.worker.entry import Entry
from pelops.worker.handlers import Handler
from pelops.worker.outcomes import Outcome
from pelops.worker.redaction import describe_failure
from pelops.worker.server.adapter import GroupAdapter

log = logging.getLogger("pelops.worker")

CANCELLED_FOR_S: Final = 1.0  # for handlers to clean up
SHUTDOWN_S: Final = 3.0  # for Redis to answer, after the grace period


class WindDown:
    """The shutdown of a worker."""

    def __init__(
        self,
        shared: Shared,
        *,
        reader: BlockingReader,
        exchanging: ExchangeLoop,
        rejecting: DeadLetterWriter,
        slots: Slots,
    ) -> None:
        self.unfinished: list[Entry] = []  # their handlers were cancelled and have ended
        self._shared = shared
        self._reader = reader
        self._exchanging = exchanging
        self._rejecting = rejecting
        self._slots = slots
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Cancel handlers now."""
        self._hurry.set()

    async def run(self, loops: Sequence[asyncio.Task[None]]) -> None:
        """Shut down, within the grace period and a few seconds."""
        reading, exchanging, rejecting = loops
        ends_s = self._now() + self._shared.settings.grace_s
        self._reader.is_closing = self._exchanging.is_closing = True
        self._reader.alarm.ring()
        await self._release(self._shared.in_flight.abandon())
        await asyncio.wait([reading], timeout=self._shared.settings.block_ms / 1000 + 1)
        await self._release(self._shared.in_flight.abandon())  # entries of the last read
        await self._finish_handlers(ends_s)
        await self._end_loops(exchanging, rejecting)
        await self._finish_with_redis()

    async def _finish_handlers(self, ends_s: float) -> None:
        hurried = asyncio.create_task(self._hurry.wait())
        try:
            while self._shared.in_flight.running and not self._hurry.is_set():
                left_s = ends_s - self._now()
                if left_s <= 0:
                    break
                slots = [*self._slots.tasks, hurried]
                await asyncio.wait(slots, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        await self._cancel_handlers()

    async def _cancel_handlers(self) -> None:
        running = self._shared.in_flight.running
        for entry, task in running.items():
            entry.cancelled_for = entry.cancelled_for or "shutdown"
            task.cancel()
        if running:
            log.warning("canceling %d running handlers", len(running))
            await asyncio.wait(set(running.values()), timeout=CANCELLED_FOR_S)
        for entry in running:
            log.error(
                "%r: its handler does not end; the entry stays pending until it is recovered", entry
            )

    async def _end_loops(self, *loops: asyncio.Task[None]) -> None:
        self._exchanging.has_ended = True
        self._exchanging.alarm.ring()
        self._rejecting.end()
        await asyncio.wait(loops, timeout=SHUTDOWN_S)

    async def _finish_with_redis(self) -> None:
        try:
            async with asyncio.timeout(SHUTDOWN_S):
                await self._flush()
                leftovers = [*self._shared.in_flight.abandon(), *self.unfinished]
                await self._release(leftovers)
                await self._shared.adapter.leave()
        except TimeoutError:
            log.error("Redis does not answer at shutdown; %s", self._describe_remaining())
        except RedisError as error:
            log.error("%s: %s; %s", type(error).__name__, error, self._describe_remaining())

    async def _flush(self) -> None:
        while not await self._exchanging.exchange() and self._shared.in_flight.done:
            await asyncio.sleep(_PATIENCE_S)
        for _ in range(len(self._rejecting)):
            await self._rejecting.reject_next()

    async def _release(self, entries: list[Entry]) -> None:
        if not entries:
            return
        try:
            await self._shared.adapter.release(by_key(entries))
        except RedisError as error:
            # They stay pending with this consumer: they are recovered after the process has ended.
            log.warning(
                "could not release %d entries to other workers: %s",
                len(entries),
                type(error).__name__,
            )
        self._shared.in_flight.settle(entries)

    def _describe_remaining(self) -> str:
        return f"{len(self._shared.in_flight)} entries stay pending and will be delivered again"

    def _now(self) -> float:
        return self._shared.clock()


_PATIENCE_S: Final = 0.1


class WorkerSession:
    """All tasks of a worker while it serves."""

    def __init__(
        self, shared: Shared, handler: Handler, make_adapter: Callable[[], GroupAdapter]
    ) -> None:
        self.shared = shared
        self.exit_code = 0
        self.stopping = asyncio.Event()
        self.reader = BlockingReader(shared)
        self.exchanging = ExchangeLoop(shared, self.reader)
        self.rejecting = DeadLetterWriter(shared, self.exchanging.disown)
        self.slots = Slots(
            shared, handler, ended=self._note_end, wake_exchange=self.exchanging.alarm.ring
        )
        self.exchanging.slots = self.slots
        self.watchdog = Watchdog(shared, make_adapter)
        self.winding = WindDown(
            shared,
            reader=self.reader,
            exchanging=self.exchanging,
            rejecting=self.rejecting,
            slots=self.slots,
        )

    def stop(self, exit_code: int = 0) -> None:
        """Shut down. A second call cancels the running handlers."""
        self.exit_code = self.exit_code or exit_code
        if self.stopping.is_set():
            self.winding.hurry()
        self.stopping.set()

    async def run(self) -> None:
        """Work until `stop`, then shut down. Raises errors that a retry does not fix."""
        try:
            if await self._begin_unless_stopped():
                await self._work()
        finally:
            await self.shared.adapter.close()

    async def _begin_unless_stopped(self) -> bool:
        """As `_begin`, but `stop` interrupts it, even if Redis does not answer."""
        begun = asyncio.create_task(self._begin(), name="pelops-begin")
        stopped = asyncio.create_task(self.stopping.wait(), name="pelops-stop")
        await asyncio.wait([begun, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not begun.done():
            begun.cancel()
            await asyncio.wait([begun])
            return False
        return begun.result()

    async def _begin(self) -> bool:
        """Connect and write the boot record; False: `stop` was called before."""
        while not self.stopping.is_set():
            try:
                await self.shared.adapter.open()
                boot = await self.shared.adapter.begin()
            except (RedisUnavailable, OutcomeUnknown) as error:
                self.shared.refusals.report("begin", error)
                await Alarm().wait(_PATIENCE_S)
                continue
            self.shared.refusals.end("begin")
            self.shared.receiving.left.update(boot.left)
            if boot.left:
                log.warning(
                    "%d entries are not processed: a previous process with this consumer name "
                    "ended "
                    "while it ran them, or another process uses the same name",
                    len(boot.left),
                )
            return True
        return False

    async def _work(self) -> None:
        loops = [
            asyncio.create_task(self.reader.run(self.exchanging.alarm), name="pelops-reader"),
            asyncio.create_task(self.exchanging.run(), name="pelops-exchanges"),
            asyncio.create_task(self.rejecting.run(), name="pelops-rejects"),
        ]
        stopped = asyncio.create_task(self.stopping.wait(), name="pelops-stop")
        self.watchdog.start()
        try:
            await asyncio.wait([*loops, stopped], return_when=asyncio.FIRST_COMPLETED)
            self.stopping.set()
            await self.winding.run(loops)
        finally:
            self.watchdog.stop()
            for task in (*loops, stopped):
                task.cancel()
            ends = await asyncio.gather(*loops, stopped, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _note_end(self, entry: Entry, outcome: Outcome) -> None:
        """Settle an entry whose handler raised, returned an outcome, or was cancelled."""
        in_flight = self.shared.in_flight
        why, entry.cancelled_for = entry.cancelled_for, ""
        if entry.is_disowned:
            in_flight.set_aside(entry)
        elif why == "shutdown":
            in_flight.set_aside(entry)
            self.winding.unfinished.append(entry)
        else:
            if why == "timeout":
                outcome = TimeoutError(
                    f"the handler took longer than {self.shared.settings.timeout_s} s"
                )
            self._apply_outcome(entry, outcome)

    def _apply_outcome(self, entry: Entry, outcome: Outcome) -> None:
        if isinstance(outcome, SystemExit | KeyboardInterrupt):
            self._note_exit(outcome)
        if outcome is not None:
            self.shared.observer.failed(entry, entry.seconds, outcome)
        failures = entry.attempt - 1
        given, redact = entry.batch or (entry,), self.shared.settings.redact

        def describe(error: BaseException) -> str:
            return describe_failure(error, given, redact)

        match decide_settlement(outcome, failures, self.shared.settings.retry, describe):
            case Again(wait_s=wait_s, counts=counts):
                entry.failures += counts
                log.info("%r: retrying in %.3g s: %s", entry, wait_s, _place(outcome))
                self.shared.in_flight.wait(entry, self.shared.clock() + wait_s)
                self.shared.observer.retried(entry, wait_s)
            case GivenUp() as why:
                log.warning(
                    "%r: failed, no more retries, %s: %s", entry, why.reason, _place(outcome)
                )
                self.shared.in_flight.set_aside(entry)
                self.rejecting.add(entry, why)
            case _:
                self.shared.in_flight.finish(entry)

    def _note_exit(self, outcome: BaseException) -> None:
        code = outcome.code if isinstance(outcome, SystemExit) else 130
        log.error("a handler raised %s: stopping the worker", type(outcome).__name__)
        if not self.stopping.is_set():
            self.stop(code if isinstance(code, int) else 1)


def _place(error: Outcome) -> str:
    """The type and place of an error, without its message, which may hold the payload."""
    if error is None:
        return "returned"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
