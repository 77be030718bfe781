"""Producers: every entry has a name of its own, and what Redis answered to it is recorded."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from local_cluster.redis_servers import CommandFailed
from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.history import Produced

TURN_S = 0.1
RETRY_BATCH = 500
REFUSED = ("rejected", "failing")  # what a handler gives up at once, or after some attempts


class Producer:
    """Adds entries to one lane's stream until it is stopped; never the same name twice."""

    def __init__(self, lane: GroupUnderFault, connect: Callable[[], Any], seed: int) -> None:
        self.produced: dict[str, Produced] = {}
        self._lane = lane
        self._connect = connect
        self._dice = random.Random(f"{seed}-{lane.name}")
        self._stopped = threading.Event()
        self._server: Any = None
        self._count = 0
        self._thread = threading.Thread(target=self._run, name=f"producer {lane.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Return when the last entry has been answered."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        if self._lane.entries is not None:
            return self._add_all(self._lane.entries)
        owed, last, most = 0.0, time.monotonic(), max(20.0, self._lane.per_second / 2)
        while not self._stopped.wait(TURN_S):
            now = time.monotonic()
            # What an outage kept back is not made up for: the backlog would hide the next fault.
            owed, last = min(owed + (now - last) * self._lane.per_second, most), now
            count = min(int(owed), self._left())
            self._add([self._next_nature() for _ in range(count)])
            owed -= int(owed)
        while count := min(self._left(), RETRY_BATCH) if self._lane.total else 0:
            self._add([self._next_nature() for _ in range(count)])

    def _add_all(self, count: int) -> None:
        natures = ["ok"] * count
        for place in self._dice.sample(range(count), 2):
            natures[place] = "poison"
        for first in range(0, count, RETRY_BATCH):
            self._add(natures[first : first + RETRY_BATCH])

    def _next_nature(self) -> str:
        lane = self._lane
        if self._count < lane.poison_within and _hits(self._dice, lane.poison_every):
            return "poison"
        if _hits(self._dice, lane.refused_every):
            return self._dice.choice(REFUSED)
        if _hits(self._dice, lane.blocking_every):
            return "blocking"
        return "slow" if _hits(self._dice, lane.slow_every) else "ok"

    def _add(self, natures: list[str]) -> None:
        if not natures:
            return
        names = [self._name() for _ in natures]
        try:
            self._server = self._server or self._connect()
            pipeline = self._server.pipeline(transaction=False)
            for name, nature in zip(names, natures, strict=True):
                pipeline.xadd(self._lane.stream, {"unique": name, "nature": nature})
            answers = pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, CommandFailed):
            answers = [None] * len(names)
        if not all(isinstance(answer, bytes) for answer in answers):
            self._server = None  # another one may be the master by now
        for name, nature, answer in zip(names, natures, answers, strict=True):
            self._remember(name, nature, answer)

    def _remember(self, name: str, nature: str, answer: object) -> None:
        self.produced[name] = Produced(
            unique=name,
            entry_id=answer.decode() if isinstance(answer, bytes) else None,
            at_ns=time.time_ns(),
            is_poison=nature == "poison" or nature in REFUSED,
        )

    def _left(self) -> int:
        """How many more there may be."""
        total = self._lane.total
        return 1 << 30 if total is None else total - self._count

    def _name(self) -> str:
        self._count += 1
        return f"{self._lane.name}-{self._count}"


def _hits(dice: random.Random, one_of: int) -> bool:
    return bool(one_of) and dice.random() < 1 / one_of
