"""A worker in a pod, of one of several habits, that writes down all it does.

    python -m tests.faults.worker --kind KIND --history DIR [--prefetch N] [--handler-ms N] ...

plain-each    takes entries one by one and acknowledges each;
plain-ten     runs ten at once, and acknowledges each;
plain-batch   handles all it has read, then acknowledges them by one XACK;
claiming      takes what a dead owner still holds when the operator offers it, and records what it
              has started.

Each may read its own history first, after a restart and after an answer that was lost.

It imports little, so that a restarted container works again within a fraction of a second.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.faults.connecting import connect
from tests.faults.groups_under_fault import deafness_of
from tests.faults.journal import Journal
from tests.faults.taking import UNREAD, Keys, Taker, Work

KINDS = ("plain-each", "plain-ten", "plain-batch", "claiming")
SLOW_S = 2.5  # what a slow entry takes: less than any processing time-out
PAUSE_S = 0.2
AT_ONCE = {"plain-each": 1, "plain-ten": 10, "plain-batch": 1, "claiming": 1}
NO_ANSWER = (RedisConnectionError, RedisTimeoutError)


class Worker:
    """Reads, handles, acknowledges; continues whatever the server does."""

    def __init__(self, settings: argparse.Namespace) -> None:
        self.is_ending = False
        self._kind: str = settings.kind
        self._handler_s: float = settings.handler_ms / 1000
        self._keys = Keys.from_environment()
        self._journal = Journal(Path(settings.history), self._keys.consumer)
        self._server: Any = connect(settings.topology, settings.redis_url)
        self._taker = Taker(
            self._server,
            self._keys,
            self._journal,
            count=settings.prefetch,
            claims=self._kind == "claiming",
            retries=settings.reads_retry_stream,
            reads_history=settings.reads_history,
            says_boot=settings.says_boot or self._kind == "claiming",
            unread=Path(settings.history + UNREAD),
            deafness=deafness_of(Path(settings.history)),
        )

    def run(self) -> None:
        """Work until asked to end; what was read by then is finished."""
        while not self.is_ending:
            try:
                works = self._taker.take()
            except RedisError as error:
                self._rest(error)
                continue
            if not works:
                self._journal.write("beat")
            self._handle_all(works)
        self._journal.write("end")

    def _handle_all(self, works: Sequence[Work]) -> None:
        size = AT_ONCE[self._kind]
        for first in range(0, len(works), size):
            some = works[first : first + size]
            self._handle(some)
            if self._kind != "plain-batch":
                self._acknowledge(some, each=True)
        if self._kind == "plain-batch" and works:
            self._acknowledge(works, each=False)
        if self._kind == "claiming":
            self._mark([])

    def _handle(self, works: Sequence[Work]) -> None:
        if self._kind == "claiming":
            self._mark([work.entry_id for work in works])
        for work in works:
            self._write("start", work)
        for work in works:
            if work.nature == "poison":
                self._crash(work)
        slow = any(work.nature == "slow" for work in works)
        time.sleep(SLOW_S if slow else self._handler_s)
        for work in works:
            self._write("effect", work)

    def _crash(self, work: Work) -> NoReturn:
        self._write("crash", work)
        # By exit code and by signal in turn: both are crashes.
        if int(work.unique.rpartition("-")[2]) % 2:
            os._exit(3)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()

    def _acknowledge(self, works: Sequence[Work], *, each: bool) -> None:
        groups = [[work] for work in works] if each else [list(works)]
        for group in groups:
            self._acknowledge_together(group)

    def _acknowledge_together(self, works: Sequence[Work]) -> None:
        is_known = True
        ids = [work.entry_id for work in works]
        while True:
            try:
                taken = self._server.xack(works[0].key, self._keys.group, *ids)
            except NO_ANSWER:
                if is_known:
                    self._write_results(works, "?")
                is_known = False
                time.sleep(PAUSE_S)
            except RedisError as error:
                if _is_gone(error):
                    return self._write_results(works, "0")
                time.sleep(PAUSE_S)
            else:
                result = "1" if taken == len(ids) else "?" if taken else "0"
                return self._write_results(works, result)

    def _mark(self, ids: Sequence[str]) -> None:
        """Say what this process has started, and what its predecessors had: it is theirs still."""
        marked = " ".join({*self._taker.left, *ids})
        try:
            self._server.hset(self._keys.started, self._keys.consumer, marked)
        except RedisError:
            time.sleep(PAUSE_S)  # it is counted like a worker that says nothing

    def _rest(self, error: RedisError) -> None:
        self._journal.write("beat")
        if isinstance(error, NO_ANSWER):
            self._taker.reconnected()
        time.sleep(PAUSE_S)

    def _write(self, act: str, work: Work, result: str = "-") -> None:
        self._journal.write(act, work.source, work.entry_id, work.unique, result)

    def _write_results(self, works: Sequence[Work], result: str) -> None:
        for work in works:
            self._write("ack", work, result)


def _is_gone(error: RedisError) -> bool:
    """Whether there is nothing left to acknowledge: the group or its key is not there."""
    return isinstance(error, ResponseError) and str(error).startswith(("NOGROUP", "WRONGTYPE"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Work until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.worker")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--history", required=True)
    parser.add_argument("--prefetch", type=int, default=20)
    parser.add_argument("--handler-ms", type=float, default=5)
    parser.add_argument("--reads-history", action="store_true")
    parser.add_argument("--says-boot", action="store_true")
    parser.add_argument("--reads-retry-stream", action="store_true")
    parser.add_argument("--topology", default="standalone")
    parser.add_argument("--redis-url", help="in place of what the operator says")
    worker = Worker(parser.parse_args(arguments))

    def end(number: int, frame: object) -> None:
        worker.is_ending = True

    signal.signal(signal.SIGTERM, end)
    worker.run()


if __name__ == "__main__":
    main()
