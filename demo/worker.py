"""What a service team writes with the SDK: a handler. The rest is `pelops.worker`.

A file that does not parse raises. It is tried again as often as the resource allows, and becomes a
dead letter with the reason.
"""

import os
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from demo.counting import count_source, render_counts
from pelops.worker import Entry, Worker

worker = Worker.from_env()
results: Any = Redis.from_url(os.environ["PELOPS_REDIS_URL"])


@worker.handler
async def handle(entry: Entry) -> None:  # not in threads: `ast` of Python 3.11 fails in several
    """Store what the file holds. Each time adds a line, so that nothing is done twice unseen."""
    path = entry["path"]
    counts = count_source(Path(os.fsdecode(path)).read_bytes())
    effect = {"path": path, "counts": render_counts(counts), "entry": entry.id}
    effect |= {"original": entry.original_id, "consumer": os.environ["PELOPS_CONSUMER"]}
    await results.xadd(os.environ["RESULTS_STREAM"], effect)


if __name__ == "__main__":
    worker.run()
