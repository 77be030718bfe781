"""An adapter that answers as a test says, and writes down what was said.

Only the worker's inside is tested with it; what servers do is tested with servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pelops.errors import RedisError
from pelops.worker.engine.observer import Observer
from pelops.worker.entry import Entry
from pelops.worker.server.adapter import (
    Boot,
    Delivered,
    DeliverySource,
    Exchanged,
    Ids,
    Outgoing,
    RawEntry,
)
from pelops.worker.settings import WorkerSettings
from pelops.worker.worker import Worker
from tests.virtual_time import VirtualLoop

T = TypeVar("T")
STREAM = b"orders"
ROUND_TRIP_S = 0.001


def raw(number: int, *pairs: bytes, deliveries: int = 0) -> RawEntry:
    """An entry as the parser makes it."""
    return [b"%d-0" % number, list(pairs) or [b"n", b"%d" % number], 0, deliveries]


def charged(number: int, count: int = 1) -> RawEntry:
    """A copy of an entry with a failed attempt."""
    return raw(number, b"n", b"1", b"_original_id", b"1-0", b"_retry_count", b"%d" % count)


@dataclass
class ScriptedAdapter:
    """Delivers `fresh` and keeps a list of what is pending."""

    fresh: list[RawEntry] = field(default_factory=list)
    history: list[RawEntry] = field(default_factory=list)
    left: frozenset[bytes] = frozenset()
    epoch: int = 1
    lost: set[bytes] = field(default_factory=set)
    errors: list[RedisError | None] = field(default_factory=list)  # of the next exchanges
    said: list[Outgoing] = field(default_factory=list)
    pending: set[bytes] = field(default_factory=set)
    acked: list[bytes] = field(default_factory=list)
    rejected: list[tuple[bytes, str, str]] = field(default_factory=list)
    released: list[bytes] = field(default_factory=list)
    alone: list[bytes] = field(default_factory=list)  # an ID for each run that did not end
    calls: list[str] = field(default_factory=list)
    on_exchange: Callable[[Outgoing], None] = lambda outgoing: None
    source: DeliverySource = DeliverySource.NEW

    async def open(self) -> None:
        self.calls.append("open")

    async def close(self) -> None:
        self.calls.append("close")

    async def begin(self) -> Boot:
        self.calls.append("begin")
        return Boot(now_ms=0, left=self.left)

    async def read(self, count: int, block_ms: int) -> list[Delivered]:
        self.calls.append("read")
        if not self.fresh:
            await asyncio.sleep(block_ms / 1000)
        await asyncio.sleep(ROUND_TRIP_S)
        return self._deliver(count)

    async def read_history(
        self, after: Mapping[bytes, bytes], count: int, *, skip: Collection[bytes] = ()
    ) -> list[Delivered]:
        self.calls.append("history")
        await asyncio.sleep(ROUND_TRIP_S)
        some, self.history = self.history[:count], self.history[count:]
        self.pending |= {one[0] for one in some}
        return [Delivered(STREAM, DeliverySource.HISTORY, some)] if some else []

    async def exchange(self, outgoing: Outgoing) -> Exchanged:
        self.said.append(outgoing)
        self.on_exchange(outgoing)
        await asyncio.sleep(ROUND_TRIP_S)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        kept = {one for ids in outgoing.keeps.values() for one in ids}
        checked = {one for ids in outgoing.checked_acks.values() for one in ids}
        plain = {one for ids in outgoing.acks.values() for one in ids}
        lost = (kept | checked) & self.lost
        acked = plain | (checked - lost)
        self.acked += sorted(acked & self.pending)
        self.pending -= acked
        return Exchanged(
            acked={STREAM: len(acked)} if plain or checked else {},
            lost={STREAM: lost} if lost else {},
            delivered=self._deliver(outgoing.read) if outgoing.read else [],
        )

    async def reject(self, key: bytes, entry_id: bytes, *, reason: str, error: str) -> bool:
        await asyncio.sleep(ROUND_TRIP_S)
        if entry_id in self.lost:
            return False
        self.rejected.append((entry_id, reason, error))
        self.pending.discard(entry_id)
        return True

    async def begin_isolated(self, entry_id: bytes) -> int:
        self.alone.append(entry_id)
        return self.alone.count(entry_id)

    async def end_isolated(self, entry_id: bytes) -> None:
        self.alone = [one for one in self.alone if one != entry_id]

    async def release(self, ids: Ids) -> int:
        self.released += [one for some in ids.values() for one in some]
        return 0

    async def leave(self) -> bool:
        self.calls.append("leave")
        return True

    def _deliver(self, count: int) -> list[Delivered]:
        some, self.fresh = self.fresh[:count], self.fresh[count:]
        self.pending |= {one[0] for one in some}
        return [Delivered(STREAM, self.source, some)] if some else []


_virtual: list[VirtualLoop] = []  # the one that runs, or ran last


def loop_time() -> float:
    """The time of the loop that runs; for a thread beside it, of the virtual one."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return _virtual[0].time()


def entries(count: int) -> list[RawEntry]:
    return [raw(number) for number in range(1, count + 1)]


async def nothing(entry: Entry) -> None:
    """A handler that is done at once."""


def build_worker(
    adapter: ScriptedAdapter,
    *,
    order_by: Any = None,
    observer: Observer | None = None,
    clock: Callable[[], float] = loop_time,
    **options: Any,
) -> Worker:
    """A worker of this adapter, by the loop's own clock."""
    settings = WorkerSettings(**options)
    return Worker(lambda: adapter, settings, order_by=order_by, observer=observer, clock=clock)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run in a loop in which waiting takes no time."""
    loop = VirtualLoop()
    _virtual[:] = [loop]
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


async def until(condition: Callable[[], Any], seconds: float = 600) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


async def work(worker: Worker, condition: Callable[[], Any]) -> int:
    """Serve until something holds, then stop. Answers the exit code."""
    serving = asyncio.create_task(worker.serve())
    waiting = asyncio.create_task(until(condition))
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        waiting.cancel()
        return await serving
    try:
        await waiting
    finally:
        worker.stop()
        code = await serving
    return code


def serve(
    adapter: ScriptedAdapter, handle: Any, done: Callable[[], Any] = lambda: False, **options: Any
) -> int:
    """Serve in virtual time until something holds. Answers the exit code."""

    async def main() -> int:
        worker = build_worker(adapter, **options)
        worker.handler(handle)
        return await work(worker, done)

    return run_virtually(main)
