"""A worker that is made with `pelops.worker` alone, and writes down all it does.

    python -m tests.faults.sdk_worker --history DIR [--redis-url URL ...] [--handler-ms N] ...

Of several addresses it uses the one at its process number modulo their count: so a network can be
cut for some of the workers. An entry's `nature` says what its handler does: `ok` (half of them
wait for a moment), `slow`, `blocking`, `rejected`, `failing` or `poison`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pelops.worker import Entry, Observer, Reject, RetryPolicy, Worker, read_place
from tests.faults.journal import Journal

LOOK_S = 0.1
BEAT_S = 0.25


class Broken(Exception):
    """What a handler raises for an entry that is to fail."""


class HandlingTime:
    """The handler: its only effect is to record what it does."""

    def __init__(self, journal: Journal, retry: str, given: argparse.Namespace) -> None:
        self._journal = journal
        self._retry = retry
        self._handler_s: float = given.handler_ms / 1000
        self._slow_s: float = given.slow_s
        self._blocking_s: float = given.blocking_s

    async def handle(self, entry: Entry) -> None:
        """One entry."""
        row = self.row(entry)
        self._journal.write("start", *row, _remaining_ms(entry))
        try:
            await self._work(entry, row)
        except BaseException:
            self._journal.write("drop", *row)
            raise
        self._journal.write("effect", *row)

    def row(self, entry: Entry) -> tuple[str, str, str]:
        """What names an entry in the journal."""
        source = "r" if entry.stream == self._retry else "s"
        return source, entry.id, entry["unique"].decode()

    async def _work(self, entry: Entry, row: tuple[str, str, str]) -> None:
        nature = entry["nature"]
        if nature == b"ok":
            if row[2][-1] in "02468":
                await asyncio.sleep(self._handler_s)
        elif nature == b"slow":
            await self._work_slowly(entry, row)
        elif nature == b"rejected":
            raise Reject("AskedFor")
        elif nature == b"failing":
            raise Broken
        elif nature == b"blocking":
            time.sleep(self._blocking_s)
        elif nature == b"poison":
            self._journal.write("crash", *row)
            os._exit(3)

    async def _work_slowly(self, entry: Entry, row: tuple[str, str, str]) -> None:
        # Half of them shorter than it takes to lose an entry, half of them longer.
        ends_s = time.monotonic() + self._slow_s * (1 if row[2][-1] in "01234" else 0.4)
        while time.monotonic() < ends_s:
            await asyncio.sleep(LOOK_S)
            self._journal.write("hold", *row, _remaining_ms(entry))


class Watching(Observer):
    """Writes down which acknowledgements were taken."""

    def __init__(self, journal: Journal, handling: HandlingTime) -> None:
        self._journal = journal
        self._handling = handling
        self._pending = 0

    def acknowledged(self, sent: int, pending: int) -> None:
        """So many of them were pending: called before the entries are named."""
        self._pending = pending

    def finished(self, entries: Sequence[Entry], seconds: Sequence[float]) -> None:
        """These are acknowledged."""
        result = "1" if self._pending >= len(entries) else "?"
        self._journal.write_all("ack", map(self._handling.row, entries), result)


def main(arguments: Sequence[str] | None = None) -> None:
    """Work until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.sdk_worker")
    parser.add_argument("--history", required=True)
    parser.add_argument("--redis-url", nargs="*", default=[], help="in place of the operator's")
    parser.add_argument("--handler-ms", type=float, default=5)
    parser.add_argument("--slow-s", type=float, default=2.5)
    parser.add_argument("--blocking-s", type=float, default=1)
    parser.add_argument("--prefetch", type=int, default=1000)
    parser.add_argument("--grace-s", type=float, default=3)
    given = parser.parse_args(arguments)
    environment = dict(os.environ)
    if given.redis_url:
        environment["PELOPS_REDIS_URL"] = given.redis_url[os.getpid() % len(given.redis_url)]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # until the worker runs
    place = read_place(environment)
    journal = Journal(Path(given.history), place.consumer)
    handling = HandlingTime(journal, place.keys.retry, given)
    worker = Worker.from_env(
        environment,
        observer=Watching(journal, handling),
        prefetch=given.prefetch,
        grace_s=given.grace_s,
        retry=RetryPolicy(max_retries=2, initial_s=0.05),
    )
    worker.handler(handling)
    threading.Thread(target=_beat, args=(journal,), name="beat", daemon=True).start()
    try:
        worker.run()
    except SystemExit as end:
        journal.write("end", result=str(end.code or 0))
        raise


def _remaining_ms(entry: Entry) -> str:
    return str(max(int(entry.remaining * 1000), 0))


def _beat(journal: Journal) -> None:
    """Say that this process runs, whatever its event loop does."""
    while True:
        journal.write("beat")
        time.sleep(BEAT_S)


if __name__ == "__main__":
    main()
