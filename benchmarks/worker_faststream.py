"""FastStream with one entry a call, or with batches, as its documentation has it.

Runs in an environment of its own: see `worker_peers`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, TypeAlias

from faststream import FastStream  # type: ignore[import-not-found]
from faststream.redis import RedisBroker, StreamSub  # type: ignore[import-not-found]

from benchmarks.worker_meter import CONCURRENCY, Handle, Job, make_handler, read_job

Order: TypeAlias = dict[str, str]


def build_app(job: Job, *, in_batches: bool) -> Any:
    """An application with one subscriber."""
    # Logging each message, its default, costs more than all the rest.
    broker = RedisBroker(f"redis://127.0.0.1:{job.port}", logger=None)
    stream = StreamSub(
        job.stream,
        group=job.group,
        consumer=job.consumer,
        last_id=">",
        max_records=CONCURRENCY,
        batch=in_batches,
    )
    handle = make_handler(job)
    if in_batches:
        broker.subscriber(stream=stream)(_batches(job, handle))
    else:
        broker.subscriber(stream=stream, max_workers=CONCURRENCY)(_each(handle))
    return FastStream(broker, logger=None)


def _each(handle: Handle) -> Any:
    async def each(message: Order) -> None:
        await handle(message)

    return each


def _batches(job: Job, handle: Handle) -> Any:
    async def in_turn(messages: list[Order]) -> None:
        for message in messages:
            await handle(message)

    async def together(messages: list[Order]) -> None:
        await asyncio.gather(*map(handle, messages))

    return in_turn if job.kind == "noop" else together


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(build_app(read_job(), in_batches=sys.argv[1] == "batch").run())
