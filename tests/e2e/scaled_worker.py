"""A worker for tests of scaling: reads one entry at a time, and finishes it when it is let go.

An entry with the field `hold` is finished once the key that it names exists.
"""

import os
import time
from typing import Any

import redis


def main() -> None:
    """Serve until killed."""
    server: Any = redis.Redis.from_url(os.environ["PELOPS_REDIS_URL"], decode_responses=True)
    stream, group = os.environ["PELOPS_STREAM"], os.environ["PELOPS_GROUP"]
    consumer = os.environ["PELOPS_CONSUMER"]
    while True:
        answer = server.xreadgroup(group, consumer, {stream: ">"}, 1, 200)
        for _, entries in answer:
            for entry_id, fields in entries:
                while "hold" in fields and not server.exists(fields["hold"]):
                    time.sleep(0.02)
                server.xack(stream, group, entry_id)


if __name__ == "__main__":
    main()
