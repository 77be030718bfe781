"""The loop around the scans: which group next, and what calls it earlier."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import timedelta

from pelops.controller.recovery.scanner import Scanner
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.membership import Members
from pelops.controller.runtime.queue import KeyedQueue, is_wanted
from pelops.controller.workload.cache import WorkloadCache
from pelops.domain.recovery import Trigger

log = logging.getLogger(__name__)

WORKERS = 32
STEP_S = 0.2  # how long a replica leaves a death to those of lower rank
START_UP_S = 2.0
RECHECK = timedelta(seconds=30)  # a resource that has nothing to be scanned for may come to have it
AFTER_BREAK = timedelta(seconds=30)


class ScanLoop:
    """Gives each group a scan when it is due, many groups at once, one group never twice at once.

    It goes on through an outage of the API server: the cache is what it knows then.
    """

    def __init__(
        self, scanner: Scanner, cache: WorkloadCache, members: Members, clock: Callable[[], float]
    ) -> None:
        self._scanner = scanner
        self._cache = cache
        self._members = members
        self._clock = clock
        self._queue: KeyedQueue[Name] = KeyedQueue(clock)
        self._triggers: dict[Name, tuple[Trigger, float]] = {}  # why earlier, and since when
        self._known: dict[Name, int | None] = {}  # generations

    def wake(self, name: Name, trigger: Trigger) -> None:
        """Scan this group now: at once where this replica ranks first, else shortly after."""
        if name not in self._triggers or self._triggers[name][0] is Trigger.START_UP:
            self._triggers[name] = (trigger, self._clock())
        rank = self._members.rank("/".join(name))
        self._queue.add(name, delay_s=rank * STEP_S)

    def notice(self, name: Name) -> None:
        """A resource was added or changed: scan it soon if it, or its spec, is new here."""
        manifest = self._cache.resources.get(name)
        if manifest is None:
            return
        generation = manifest["metadata"].get("generation")
        if name not in self._known or self._known[name] != generation:
            self._known[name] = generation
            self._triggers.setdefault(name, (Trigger.START_UP, self._clock()))
            self._queue.add(name, delay_s=random.uniform(0, START_UP_S))

    async def run(self) -> None:
        """Serve until cancelled."""
        for name in list(self._cache.resources):
            self.notice(name)
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while is_wanted():
            name = await self._queue.take()
            wait = await self._turn(name)
            self._queue.done(name, again_s=None if wait is None else wait.total_seconds())

    async def _turn(self, name: Name) -> timedelta | None:
        trigger, since = self._triggers.pop(name, (Trigger.SCAN, None))
        if name not in self._cache.resources:
            self._known.pop(name, None)
            return None
        try:
            died = since if trigger is Trigger.POD_DEATH else None
            wait = await self._scanner.scan(name, trigger, since=died)
        except Exception:
            # A mistake of ours in one group must not end the scans of all others.
            log.exception("the scan broke", extra={"resource": "/".join(name)})
            return AFTER_BREAK
        return RECHECK if wait is None else wait
