"""Whole workers within a test's own event loop, and what they report to their observers."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from pelops.domain.endpoint import RedisEndpoint
from pelops.domain.naming import GroupKeys
from pelops.worker import Entry, Observer, RetryPolicy, Worker, WorkerSettings
from pelops.worker.settings import WorkerPlace
from tests.integration.worker_adapter import KEYS

PROCESSING_TIMEOUT_MS: Final = 600
AT_ONCE: Final = RetryPolicy(max_retries=2, initial_s=0.01)


class ReportedEvents(Observer):
    """All that a worker reports."""

    def __init__(self) -> None:
        self.done: list[str] = []  # IDs that were handled well and acknowledged
        self.lost: list[str] = []  # IDs that another worker had by then
        self.letters: list[tuple[str, str]] = []  # IDs and reasons
        self.failures: list[BaseException] = []
        self.refusals: list[str] = []  # what was refused, and why

    def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
        self.done += [entry.id for entry in entries]

    def failed(self, entry: Entry, seconds: float, error: BaseException) -> None:
        self.failures.append(error)

    def rejected(self, entry: Entry, reason: str) -> None:
        self.letters.append((entry.id, reason))

    def disowned(self, entry: Entry) -> None:
        self.lost.append(entry.id)

    def refused(self, what: str, error: BaseException) -> None:
        self.refusals.append(f"{what}: {type(error).__name__}: {error}")

    def was_refused(self, text: str) -> bool:
        """Whether any refusal holds this text."""
        return any(text in refusal for refusal in self.refusals)


class HandlingTime:
    """A handler that notes what began and what was done; `gate` closed, it waits in between."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, entry: Entry) -> None:
        """As a worker calls it."""
        self.begun.append(entry.id)
        await self.gate.wait()
        self.done.append(entry.id)


@asynccontextmanager
async def serving(
    endpoint: RedisEndpoint,
    handler: Any,
    *,
    consumer: str = "one",
    keys: GroupKeys = KEYS,
    **options: Any,
) -> AsyncIterator[tuple[Worker, ReportedEvents]]:
    """A worker that serves during the block, at the end of which it has to end in good order."""
    reported = ReportedEvents()
    limit_ms = options.pop("processing_timeout_ms", PROCESSING_TIMEOUT_MS)
    place = WorkerPlace(
        endpoint=endpoint, keys=keys, consumer=consumer, processing_timeout_ms=limit_ms
    )
    settings = replace(WorkerSettings(retry=AT_ONCE, grace_s=5.0), **options)
    worker = Worker(place, settings, observer=reported)
    worker.handler(handler)
    work = asyncio.create_task(worker.serve())
    try:
        yield worker, reported
    finally:
        worker.stop()
        assert await work == 0


async def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for a condition, which may be asynchronous; fails when it does not come."""
    ends = time.monotonic() + seconds
    while not await _value(condition):
        assert time.monotonic() < ends, "it never came"
        await asyncio.sleep(0.01)


async def _value(condition: Callable[[], Any]) -> Any:
    found = condition()
    return await found if inspect.isawaitable(found) else found
