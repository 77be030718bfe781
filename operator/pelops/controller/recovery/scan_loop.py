"""The loop that scans the groups of a replica when they are due.

Every replica may scan every group. Redis keeps the time of the last scan, so that normally only the
replica that ranks first scans, and the others seldom. A missed or repeated scan does no harm, since
each script checks its entries again. All replicas scan less often while the group has no pending
entries.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from pelops.clock import with_jitter
from pelops.controller.recovery.scanner import RECHECK, Scanner
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.gate import Gate, Limits, Place, Progress
from pelops.controller.runtime.kind import place_of
from pelops.controller.runtime.leases import Members, follow_standing
from pelops.controller.runtime.queue import KeyedQueue, is_wanted
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.recovery import Trigger
from pelops.errors import DeadlineExceeded, PelopsError
from pelops.kube.client import Manifest
from pelops.policy.recovery.scan_interval import QUIET, may_rest

# Scans are short, but for one that recovers a million entries. What it did before its deadline is
# done, and the next one continues.
LIMITS: Final = Limits(deadline_s=300.0, most=512, per_namespace=16, per_endpoint=8)
STEP_S = 0.2  # how long a replica leaves a death to those of lower rank
START_UP_S = 2.0
TAKEN_OVER_S = 0.005  # for each group that is taken over
AFTER_BREAK = timedelta(seconds=30)
AFTER_CUT = timedelta(seconds=1)


def _has_conditions(manifest: Manifest) -> bool:
    return bool((manifest.get("status") or {}).get("conditions"))


class ScanLoop:
    """Scans many groups at the same time, and each group once at a time.

    It continues during an outage of the API server, with the objects in the cache.
    """

    def __init__(
        self,
        scanner: Scanner,
        cache: WorkloadCache,
        members: Members,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self._scanner = scanner
        self._cache = cache
        self._members = members
        self._shared = SharedWorkloads(cache)
        self._clock = clock
        self._queue: KeyedQueue[Name] = KeyedQueue(clock)
        self._gate = Gate("scan", LIMITS)
        progress.follow("scan", self._gate.stalled_s, self._queue.overdue_s)
        self._triggers: dict[Name, tuple[Trigger, float]] = {}  # why earlier, and since when
        self._known: dict[Name, int | None] = {}  # generations
        # When a group was scanned last by this replica, and how long it was to wait then.
        self._scanned: dict[Name, tuple[float, timedelta]] = {}

    def wake(self, name: Name, trigger: Trigger) -> None:
        """Scan this group now: at once where this replica ranks first, else shortly after.

        A replica that is not admitted yet may rank first: several replicas may scan at once, and
        none is admitted in the first seconds after all were restarted.
        """
        if name not in self._triggers or self._triggers[name][0] is Trigger.START_UP:
            self._triggers[name] = (trigger, self._clock())
        place = self._members.place(self._shared.key(name))
        self._queue.add(name, delay_s=place * STEP_S)

    def notice(self, name: Name) -> None:
        """A resource was added or changed: scan it soon if it, or its spec, is new here."""
        manifest = self._cache.resources.get(name)
        if manifest is None:
            return
        generation = manifest["metadata"].get("generation")
        if name not in self._known or self._known[name] != generation:
            self._known[name] = generation
            # The first scans it, and that of a new resource once its group is ready.
            is_new, is_first = not _has_conditions(manifest), self._rank(name) == 0
            if is_new or not is_first:
                wait = with_jitter(RECHECK) * (1 if is_first else QUIET)
                self._queue.add(name, delay_s=wait.total_seconds())
                return
            self._triggers.setdefault(name, (Trigger.START_UP, self._clock()))
            self._queue.add(name, delay_s=random.uniform(0, START_UP_S))

    async def run(self) -> None:
        """Serve until cancelled."""
        for name in list(self._cache.resources):
            self.notice(name)
        async with asyncio.TaskGroup() as scans:
            scans.create_task(self._follow_members())
            while is_wanted():
                name = await self._queue.take()
                scans.create_task(self._serve(name))
                await asyncio.sleep(0)  # thousands may be due at once

    async def _follow_members(self) -> None:
        """Take over at once what this replica is the first to scan after a change of the replicas.

        A scan that is not due is found so.
        """
        async for _ in follow_standing(self._members):
            ours = [name for name in self._cache.resources if not self._rank(name)]
            for name in ours:
                self._queue.add(name, delay_s=random.uniform(0, TAKEN_OVER_S * len(ours)))

    def _rank(self, name: Name) -> int:
        return self._members.rank(self._shared.key(name))

    async def _serve(self, name: Name) -> None:
        wait: timedelta | None = None
        try:
            wait = await self._turn(name)
        finally:
            self._queue.done(name, again_s=None if wait is None else wait.total_seconds())

    async def _turn(self, name: Name) -> timedelta | None:
        manifest = self._cache.resources.get(name)
        if manifest is None:
            self._triggers.pop(name, None)
            self._known.pop(name, None)
            self._scanned.pop(name, None)
            return None
        if (rest := self._rest(name)) is not None:
            return rest
        place, key = place_of(name, manifest), "/".join(name)
        try:
            wait = await self._gate.run(place, partial(self._scan, name), what=key)
        except PelopsError as error:
            with contextlib.suppress(PelopsError):
                report = partial(self._scanner.report_failure, name, error)
                await self._gate.run(Place(name[0], "events"), report, what=key)
            return AFTER_CUT if isinstance(error, DeadlineExceeded) else AFTER_BREAK
        wait = RECHECK if wait is None else wait
        self._scanned[name] = (self._clock(), wait)
        return wait

    def _rest(self, name: Name) -> timedelta | None:
        """The pause for a group at which a scan would find nothing; None: scan it."""
        at, wait = self._scanned.get(name, (0.0, timedelta()))
        is_recent = may_rest(timedelta(seconds=self._clock() - at), wait)
        is_quiet = is_recent and name not in self._triggers and self._scanner.is_settled(name)
        return wait if is_quiet else None

    async def _scan(self, name: Name) -> timedelta | None:
        # What was heard while the scan waited for its place counts too.
        trigger, since = self._triggers.pop(name, (Trigger.SCAN, None))
        died = since if trigger is Trigger.POD_DEATH else None
        return await self._scanner.scan(name, trigger, since=died)
