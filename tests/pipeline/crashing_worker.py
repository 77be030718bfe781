"""A worker that is killed while it holds entries: python -m tests.pipeline.crashing_worker ...

PORT STREAM GROUP CONSUMER COUNT ACKNOWLEDGED: says which entries it was given, acknowledges so many
of them, says so, and waits for its end.
"""

from __future__ import annotations

import signal
import sys

from tests.pipeline.wire import Wire


def main(port: str, stream: str, group: str, consumer: str, *numbers: str) -> None:
    count, acknowledged = map(int, numbers)
    wire = Wire(int(port))
    reply = wire.ask("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, ">")
    ids = [entry_id for entry_id, _ in reply[0][1]]
    print(b" ".join(ids).decode(), flush=True)
    wire.ask("XACK", stream, group, *ids[:acknowledged])
    print("acknowledged", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
