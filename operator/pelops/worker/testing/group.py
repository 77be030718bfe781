"""A consumer group in memory for tests, and workers that process its entries.

A worker runs until no work is left. Its clock moves on when all tasks wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn, Unpack

from pelops.domain.naming import derive_keys
from pelops.errors import RedisError, RedisUnavailable
from pelops.worker.engine.in_flight import OrderBy
from pelops.worker.engine.observer import Observer
from pelops.worker.handlers import Threads
from pelops.worker.producer import Fields, flatten
from pelops.worker.settings import WorkerSettings
from pelops.worker.testing.clock import MovableClock, VirtualLoop
from pelops.worker.testing.memory_adapter import MemoryAdapter, MemoryStream, World
from pelops.worker.worker import Worker, WorkerOptions

_CHECK_S: Final = 1.0
_STEPS: Final = 20  # iterations of the event loop
_END_S: Final = 30.0


class Crashed(BaseException):
    """Ends the handler that called `crash`."""


class InLine(Threads):
    """Calls handlers that are not async in the event loop, for a deterministic order."""

    async def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Return the result of `function`."""
        return function(argument)


class Process:
    """One run of a worker."""

    def __init__(self, world: World, worker: Worker) -> None:
        self.crashed = False
        self.adapters: list[MemoryAdapter] = []
        self._world = world
        self._worker = worker
        self._loop = VirtualLoop(world.clock)

    def run(self, limit_s: float) -> int:
        """Run the worker; return its exit code. Raises TimeoutError if work is left."""
        loop, worker = self._loop, self._worker
        worker._threads = InLine()
        try:
            main = loop.create_task(self._main(limit_s))
            main.add_done_callback(self._stop)
            loop.run_forever()  # run_until_complete would raise after a crash
            main.remove_done_callback(self._stop)
            if not self.crashed:
                return main.result()
            return 137  # as of SIGKILL
        finally:
            self._end(loop)
            worker._threads = Threads()

    def _stop(self, _: asyncio.Task[int]) -> None:
        self._loop.stop()

    def crash(self) -> None:
        """End the process here: what it sends later has no effect."""
        if self.crashed:
            raise Crashed
        self.crashed = True
        for adapter in self.adapters:
            adapter.is_dead = True
        self._loop.break_off()
        task = asyncio.current_task(self._loop)
        if task is not None:
            task.cancel()  # otherwise its slot would start the next entry
        raise Crashed

    async def _main(self, limit_s: float) -> int:
        serving = asyncio.create_task(self._worker.serve())
        try:
            async with asyncio.timeout(limit_s):
                while not serving.done() and self._has_work():
                    await self._await_change(serving)
        except TimeoutError:
            message = f"work is left after {limit_s:g} s: {self._worker.describe()}"
            raise TimeoutError(message) from None
        self._worker.stop()
        return await serving

    async def _await_change(self, serving: asyncio.Task[int]) -> None:
        changed = asyncio.create_task(self._world.sleep(_CHECK_S))
        await asyncio.wait([serving, changed], return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()

    def _has_work(self) -> bool:
        world = self._world
        begun = [adapter for adapter in self.adapters if adapter.epoch]
        if not begun or world.offers:
            return True
        me, left = begun[0].me, begun[0].left
        now_ms, limit_ms = world.clock.now_ms, world.processing_timeout_ms
        return any(
            stream.undelivered
            or stream.find_idle(limit_ms, now_ms)
            or any(one not in left for one in stream.owned_by(me))
            for stream in world.streams.values()
        )

    def _end(self, loop: VirtualLoop) -> None:
        """Cancel the remaining tasks, without effect on the group."""
        for adapter in self.adapters:
            adapter.is_dead = True
        for _ in range(_STEPS):
            # Slots that end create others: cancel these before they start a handler.
            for task in asyncio.all_tasks(loop):
                if not task.cancelling():
                    task.cancel()
            loop.resume()
            loop.call_soon(loop.stop)
            loop.run_forever()
        left = asyncio.all_tasks(loop)
        if left:  # tasks whose cleanup takes longer
            loop.run_until_complete(asyncio.wait(left, timeout=_END_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An entry that was delivered and not acknowledged."""

    id: str
    stream: str
    consumer: str
    deliveries: int
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended."""

    exit_code: int
    crashed: bool


class MemoryGroup:
    """A stream and its consumer group in memory."""

    def __init__(
        self,
        stream: str = "orders",
        group: str = "workers",
        *,
        processing_timeout_ms: int = 30_000,
        field_prefix: str = "_",
        clock: MovableClock | None = None,
    ) -> None:
        self.clock = clock or MovableClock()
        self.keys = derive_keys(stream, group)
        self.world = World(
            self.keys,
            self.clock,
            processing_timeout_ms=processing_timeout_ms,
            prefix=field_prefix.encode(),
        )
        self._running: Process | None = None

    # Entries.

    def add(self, fields: Fields, *, failures: int = 0) -> str:
        """Add an entry and return its ID. With `failures`: a copy with so many failed attempts."""
        flat = [part if isinstance(part, bytes) else str(part).encode() for part in flatten(fields)]
        stream = self.world.main
        if failures:
            prefix = self.world.prefix
            root = b"%d-0" % (self.clock.now_ms - 1)
            marks = (prefix + b"original_id", root, prefix + b"retry_count", b"%d" % failures)
            flat, stream = [*flat, *marks], self.world.retry
        entry_id = stream.add(flat, self.clock.now_ms)
        self.world.wake()
        return entry_id.decode()

    def delete(self, entry_id: str) -> None:
        """Delete an entry as XDEL does: a pending entry stays pending, without a body."""
        self._stream_of(entry_id).bodies.pop(entry_id.encode(), None)

    @property
    def pending(self) -> list[Pending]:
        """The pending entries of all consumers."""
        now_ms = self.clock.now_ms
        return [
            Pending(
                id=entry_id.decode(),
                stream=stream.key.decode(),
                consumer=owned.owner.decode(),
                deliveries=owned.deliveries,
                idle_s=(now_ms - owned.delivered_ms) / 1000,
            )
            for stream in self.world.streams.values()
            for entry_id, owned in stream.pending.items()
        ]

    @property
    def acknowledged(self) -> list[str]:
        """IDs in order of acknowledgement for each stream, including dead letters."""
        streams = self.world.streams.values()
        return [entry_id.decode() for stream in streams for entry_id in stream.acknowledged]

    @property
    def dead_letters(self) -> list[dict[bytes, bytes]]:
        """Dead letters: the fields of the entries, and `_reason`, `_error` and others."""
        return self.world.letters

    # Events.

    def redeliver(self, consumer: str | None = None) -> None:
        """Let pending entries, of one consumer or of all, exceed the processing timeout."""
        for stream in self.world.streams.values():
            names = {one.owner for one in stream.pending.values()}
            for owner in names if consumer is None else {consumer.encode()}:
                self.world.age(stream.owned_by(owner), stream)

    def give(self, entry_id: str, consumer: str) -> None:
        """Let another consumer claim the entry."""
        stream = self._stream_of(entry_id)
        stream.claim(consumer.encode(), [entry_id.encode()], self.clock.now_ms)

    def offer(self, consumer: str) -> None:
        """Offer the pending entries of a consumer whose process has ended, as the operator does."""
        ids = self.world.main.owned_by(consumer.encode())
        self.world.offers.append((consumer.encode(), self.clock.now_ms + 1, ids))
        self.world.wake()

    def go_down(self, error: RedisError | None = None) -> None:
        """Let Redis refuse all commands until `come_back`."""
        self.world.refusal = error or RedisUnavailable("Redis is down: the test called go_down()")

    def come_back(self) -> None:
        """Let Redis execute commands again."""
        self.world.refusal = None

    def lose_answer(self) -> None:
        """Drop the reply to the next exchange of the running worker; Redis has executed it."""
        for adapter in self._now_running().adapters:
            adapter.loses_answer = True

    def crash(self) -> NoReturn:
        """End the running worker's process here: it sends nothing more.

        Call it in a handler; it does not return. Other handlers are canceled, which a real crash
        would not do.
        """
        self._now_running().crash()
        raise AssertionError("unreachable")

    # Workers.

    def adapter(self, consumer: str = "worker") -> MemoryAdapter:
        """Create an adapter for a process with this consumer name."""
        adapter = MemoryAdapter(self.world, consumer)
        if self._running is not None:
            self._running.adapters.append(adapter)
        return adapter

    def worker(
        self,
        consumer: str = "worker",
        *,
        observer: Observer | None = None,
        order_by: OrderBy | None = None,
        **options: Unpack[WorkerOptions],
    ) -> Worker:
        """Create a worker; each run of it is a new process with the same name."""
        options.setdefault("processing_timeout_ms", self.world.processing_timeout_ms)
        options.setdefault("field_prefix", self.world.prefix.decode())
        return Worker(
            partial(self.adapter, consumer),
            WorkerSettings(**options),
            observer=observer,
            order_by=order_by,
            clock=self.clock,
        )

    def run(self, worker: Worker, *, limit_s: float = 3600) -> Ended:
        """Run the worker until no work is left, or until it ends by itself.

        Pending entries of other consumers do not count as work: use `redeliver` or `clock.move`.
        When all tasks wait, the clock moves at once, so real I/O cannot complete. Raises
        TimeoutError if work is left after `limit_s` seconds, and errors of the worker.
        """
        if self._running is not None:
            raise RuntimeError("a worker of this group is running: run one after the other")
        process = self._running = Process(self.world, worker)
        try:
            return Ended(exit_code=process.run(limit_s), crashed=process.crashed)
        finally:
            self._running = None

    def _now_running(self) -> Process:
        if self._running is None:
            raise RuntimeError("no worker is running: call this in a handler")
        return self._running

    def _stream_of(self, entry_id: str) -> MemoryStream:
        raw_id = entry_id.encode()
        for stream in self.world.streams.values():
            if raw_id in stream.bodies or raw_id in stream.pending:
                return stream
        raise KeyError(entry_id)
