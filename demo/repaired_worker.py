"""The second version of the handler in `demo.worker`: it accepts a file that does not parse.

Such a file is counted by its lines alone, and the result names what is wrong with it.
"""

import os
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from demo.counting import render_counts, try_to_count
from pelops.worker import Entry, Worker

worker = Worker.from_env()
results: Any = Redis.from_url(os.environ["PELOPS_REDIS_URL"])


@worker.handler
async def handle(entry: Entry) -> None:
    """Store what the file holds."""
    counts = try_to_count(Path(os.fsdecode(entry["path"])))
    effect = {"path": entry["path"], "counts": render_counts(counts), "entry": entry.id}
    effect |= {"original": entry.original_id, "consumer": os.environ["PELOPS_CONSUMER"]}
    await results.xadd(os.environ["RESULTS_STREAM"], effect)


if __name__ == "__main__":
    worker.run()
