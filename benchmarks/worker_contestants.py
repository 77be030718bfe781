"""Who works the stream, and the entries in the form that each takes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Final

from benchmarks.pending import BODY
from benchmarks.worker_run import Contestant

_ORDER: Final = dict(zip(BODY[::2], BODY[1::2], strict=True))
_UUID: Final = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


def as_faststream(order: Mapping[str, str]) -> bytes:
    """What FastStream's own broker writes into `__data__` when it publishes a dict."""
    headers = {"correlation_id": _UUID, "content-type": "application/json"}
    packed = b"".join(
        struct.pack(">H", len(text)) + text.encode() for pair in headers.items() for text in pair
    )
    start = b"\x89BIN\r\n\x1a\n" + struct.pack(">H", 1)
    offsets = struct.pack(">II", len(start) + 8, len(start) + 10 + len(packed))
    count = struct.pack(">H", len(headers))
    return start + offsets + count + packed + json.dumps(order).encode()


def as_taskiq(order: Mapping[str, str]) -> bytes:
    """What taskiq's own broker writes into `data` when the task is called with a dict."""
    message: dict[str, object] = {
        "task_id": _UUID.replace("-", ""),
        "task_name": "handle",
        "labels": {},
        "labels_types": None,
        "args": [order],
        "kwargs": {},
    }
    return json.dumps(message).encode()


CONTESTANTS: Final[Mapping[str, Contestant]] = {
    "ours": Contestant(
        argv=("benchmarks.worker_ours",),
        how="pelops.worker with its defaults, on a group as the operator makes it",
    ),
    "batched": Contestant(
        argv=("benchmarks.worker_loops", "batched"),
        how="redis-py: XACK of the last 100 and XREADGROUP of the next in one pipeline; "
        "no-op handlers awaited in turn, sleeping ones gathered",
    ),
    "tasks": Contestant(
        argv=("benchmarks.worker_loops", "tasks"),
        how="as batched, with a task for each entry also when the handler does nothing",
    ),
    "one_by_one": Contestant(
        argv=("benchmarks.worker_loops", "one_by_one"),
        how="redis-py: XREADGROUP of one, handler, XACK",
        is_slow=True,
    ),
    "faststream_batch": Contestant(
        argv=("benchmarks.worker_faststream", "batch"),
        how="FastStream, batch=True, max_records=100, list[dict[str, str]] as it publishes them, "
        "no logger; handlers awaited as in batched",
        body=("__data__", as_faststream(_ORDER)),
        is_peer=True,
    ),
    "faststream": Contestant(
        argv=("benchmarks.worker_faststream", "single"),
        how="FastStream, max_records=100, max_workers=100, dict[str, str], no logger",
        body=("__data__", as_faststream(_ORDER)),
        is_peer=True,
        is_slow=True,
    ),
    "taskiq": Contestant(
        argv=("benchmarks.worker_taskiq",),
        how="taskiq-redis, RedisStreamBroker, 100 tasks at once, dict[str, str], no logger",
        body=("data", as_taskiq(_ORDER)),
        is_peer=True,
        is_slow=True,
    ),
}
