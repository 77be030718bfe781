"""The loops that people write by hand around redis-py: the yardstick."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from benchmarks.worker_meter import CONCURRENCY, Handle, Job, make_handler, read_job

BLOCK_MS = 1000
HandleAll = Callable[[list[Any], Handle], Awaitable[None]]


async def work_in_batches(client: Redis, job: Job, handle: Handle) -> None:
    """Read 100, handle them, and acknowledge them along with the next read.

    Handlers that never suspend are awaited in turn: a task for each is dear. The others together.
    """
    await _work(client, job, _in_turn if job.kind == "noop" else _together, handle)


async def work_in_tasks(client: Redis, job: Job, handle: Handle) -> None:
    """As in batches, with a task for each entry, whatever the handler does."""
    await _work(client, job, _together, handle)


async def _work(client: Redis, job: Job, run: HandleAll, handle: Handle) -> None:
    streams: dict[Any, Any] = {job.stream: ">"}
    done: list[bytes] = []
    while True:
        pipe = client.pipeline(transaction=False)
        if done:
            pipe.xack(job.stream, job.group, *done)
        # What is done is acknowledged at once, so nothing waits behind a read that does.
        block = None if done else BLOCK_MS
        pipe.xreadgroup(job.group, job.consumer, streams, count=CONCURRENCY, block=block)
        found = (await pipe.execute())[-1]
        entries = found[0][1] if found else []
        await run(entries, handle)
        done = [entry_id for entry_id, _ in entries]


async def _in_turn(entries: list[Any], handle: Handle) -> None:
    for entry in entries:
        await handle(entry)


async def _together(entries: list[Any], handle: Handle) -> None:
    await asyncio.gather(*map(handle, entries))


async def work_one_by_one(client: Redis, job: Job, handle: Handle) -> None:
    """Read one, handle it, acknowledge it."""
    streams: dict[Any, Any] = {job.stream: ">"}
    while True:
        found: Any = await client.xreadgroup(
            job.group, job.consumer, streams, count=1, block=BLOCK_MS
        )
        for entry in found[0][1] if found else []:
            await handle(entry)
            await client.xack(job.stream, job.group, entry[0])


LOOPS: dict[str, Callable[[Redis, Job, Handle], Awaitable[None]]] = {
    "batched": work_in_batches,
    "tasks": work_in_tasks,
    "one_by_one": work_one_by_one,
}


async def _main(name: str, job: Job) -> None:
    async with Redis(port=job.port) as client:
        await LOOPS[name](client, job, make_handler(job))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], read_job()))
