"""A worker as anybody would write it: a plain loop that reads, works, stores and acknowledges.

It knows nothing of Pelops but the variables that it is started with: the operator made the group.
A file that does not parse is an error that nobody foresaw, and ends the process. The one courtesy
is to say when it began (docs/protocol.md, boot record): then whatever its predecessor in the same
pod held is known to be nobody's, also what that was given in the very second of its end.
"""

import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any

import redis

from demo.counting import count_source, render_counts

BATCH = 16
BLOCK_MS = 1000
_ending = False


def main() -> None:
    """Index files until SIGTERM; what was read by then is finished."""
    signal.signal(signal.SIGTERM, _end)
    server: Any = redis.Redis.from_url(
        os.environ["PELOPS_REDIS_URL"],
        username=os.environ.get("PELOPS_REDIS_USERNAME"),
        password=os.environ.get("PELOPS_REDIS_PASSWORD"),
    )
    stream, group = os.environ["PELOPS_STREAM"], os.environ["PELOPS_GROUP"]
    consumer, results = os.environ["PELOPS_CONSUMER"], os.environ["RESULTS_KEY"]
    seconds, micros = server.time()
    booted_ms = seconds * 1000 + micros // 1000
    server.hset(os.environ["PELOPS_STATE_KEY"], f"boot:{consumer}", booted_ms)
    while not _ending:
        answer = server.xreadgroup(group, consumer, {stream: ">"}, BATCH, BLOCK_MS)
        for _, entries in answer:
            for entry_id, fields in entries:
                path = fields[b"path"]
                counts = render_counts(count_source(Path(os.fsdecode(path)).read_bytes()))
                # By path, so that an entry which is delivered again changes nothing.
                with server.pipeline() as both:
                    both.hset(results, path, counts)
                    both.xack(stream, group, entry_id)
                    both.execute()


def _end(number: int, frame: FrameType | None) -> None:
    global _ending  # noqa: PLW0603 - a signal handler has no other way to tell
    _ending = True


if __name__ == "__main__":
    main()
