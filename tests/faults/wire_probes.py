"""Whether Redis answers through each wire, apart from the faults that were injected.

A server that waits for its disk, or a machine without a free processor, keeps workers from Redis as
a network does. The workers are not at fault then, so it is written down beside the faults.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.faults.history import SECOND_NS
from tests.faults.proxy import Proxy

KIND = "unserved"
EVERY_S = 0.05
LATE = 0.2  # of the processing timeout
GIVEN_UP_S = 60.0

Note = Callable[[int, int], None]  # a wire, and since when no answer came through it, in ns


@contextmanager
def probe_wires(wires: Sequence[Proxy], timeout_s: float, note: Note) -> Iterator[None]:
    """For the block: ask for a PONG through every wire, and note each answer that came late."""
    ends = threading.Event()
    late_ns = int(LATE * timeout_s * SECOND_NS)

    def probe(wire: int) -> None:
        while not ends.is_set():
            with suppress(OSError):  # cut, refused or muted: a fault that is written down already
                _ask(wires[wire].port, ends, late_ns, lambda began_ns: note(wire, began_ns))
            ends.wait(EVERY_S)

    threads = [
        threading.Thread(target=probe, args=(wire,), name=f"probe {wire}", daemon=True)
        for wire in range(len(wires))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()


def _ask(port: int, ends: threading.Event, late_ns: int, note_late: Callable[[int], None]) -> None:
    with socket.create_connection(("127.0.0.1", port), GIVEN_UP_S) as connection:
        while not ends.wait(EVERY_S):
            asked_ns = time.time_ns()
            connection.sendall(b"PING\r\n")
            if not connection.recv(1024):
                return
            if time.time_ns() - asked_ns > late_ns:
                note_late(asked_ns)
