"""taskiq with its broker for Redis streams, as its documentation has it.

Runs in an environment of its own: see `worker_peers`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from taskiq.api import run_receiver_task  # type: ignore[import-not-found]
from taskiq_redis import RedisStreamBroker  # type: ignore[import-not-found]

from benchmarks.worker_meter import CONCURRENCY, Job, make_handler, read_job

TASK = "handle"


def build_broker(job: Job) -> Any:
    """A broker that knows one task."""
    broker = RedisStreamBroker(
        f"redis://127.0.0.1:{job.port}",
        queue_name=job.stream,
        consumer_group_name=job.group,
        consumer_name=job.consumer,
    )
    handle = make_handler(job)

    async def task(order: dict[str, str]) -> None:
        await handle(order)

    broker.register_task(task, task_name=TASK)
    return broker


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    found = build_broker(read_job())
    asyncio.run(run_receiver_task(found, max_async_tasks=CONCURRENCY, run_startup=True))
