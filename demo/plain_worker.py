"""The loop of examples/workers/python with a `handle` that counts: redis-py and nothing of Pelops.

A file that does not parse has a result that says so: an entry that is given up is acknowledged.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import redis

from demo.counting import render_counts, try_to_count

STREAM, GROUP = os.environ["PELOPS_STREAM"], os.environ["PELOPS_GROUP"]
CONSUMER = os.environ["PELOPS_CONSUMER"]
ending: list[int] = []
server: Any = redis.Redis.from_url(
    os.environ["PELOPS_REDIS_URL"],
    username=os.environ.get("PELOPS_REDIS_USERNAME"),
    password=os.environ.get("PELOPS_REDIS_PASSWORD"),
    decode_responses=True,
    encoding_errors="surrogateescape",  # as in names of files
    socket_timeout=10,
)


def handle(entry_id: str, fields: dict[str, str]) -> None:
    counts = render_counts(try_to_count(Path(fields["path"])))
    effect = {"path": fields["path"], "counts": counts, "entry": entry_id}
    effect |= {"original": fields.get("_original_id", entry_id), "consumer": CONSUMER}
    server.xadd(os.environ["RESULTS_STREAM"], effect)


def work(position: str) -> str:
    """Read once and work what came; where to read next: the own history first, then new ones."""
    answer = server.xreadgroup(GROUP, CONSUMER, {STREAM: position}, count=100, block=2000)
    entries = [entry for _, found in answer for entry in found]
    for entry_id, fields in entries:
        try:
            if fields:  # else the entry was deleted
                handle(entry_id, fields)
        except (
            Exception
        ) as error:  # it stays pending, and is tried again after the processing timeout
            print("failed", entry_id, error, file=sys.stderr, flush=True)
        else:
            server.xack(STREAM, GROUP, entry_id)
        if ending:
            break
    return ">" if position == ">" or not entries else entries[-1][0]


def main() -> None:
    """Work until SIGTERM, whatever becomes of the server and the group."""
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    position = "0"
    while not ending:
        try:
            position = work(position)
        except redis.RedisError as error:
            print("waiting:", error, file=sys.stderr, flush=True)
            time.sleep(1)
            position = "0"


if __name__ == "__main__":
    main()
