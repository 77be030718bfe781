"""Scaling, put together: the loop, what it works with, and what wakes it.

A queue is one Redis. It is observed again and again, each time with all groups that became due
meanwhile. Decisions and writes do not hold up the queue, and queues do not hold up each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final, cast

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import GroupObserver, RedisObservation
from pelops.controller.group.victims import Victims
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.events import Reporter
from pelops.controller.runtime.gate import Gate, Limits, Place, Progress
from pelops.controller.runtime.leases import Members, follow_standing
from pelops.controller.runtime.queue import KeyedQueue, is_wanted
from pelops.controller.scaling.pace import IdleGroups, Pace
from pelops.controller.scaling.scale_writes import ScaleWrites
from pelops.controller.scaling.scaled_resources import ScaledResources
from pelops.controller.scaling.scaler import Scaler
from pelops.controller.workload.sharing import SharedWorkloads
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.errors import DeadlineExceeded, InternalError, PelopsError
from pelops.kube.client import STREAM_CONSUMER_GROUP, Kind, KubeApi
from pelops.metrics import forget_scaling
from pelops.policy.scaling.decision import ScalingDecision
from pelops.redis_streams.scaling.idle_streams import Waker

log = logging.getLogger(__name__)

MOST: Final = 20  # groups per observation; more would make those wait that were woken
START_UP_S: Final = 1.0
NOTICE_S: Final = 0.1  # changes come in bursts
AFTER_ERROR_S: Final = (1.0, 3.0)
AFTER_BREAK_S: Final = 30.0


# Of an observation of the groups of one Redis, and of scaling one of them.
LIMITS: Final = Limits(deadline_s=20.0, most=512)


class ScaleLoop:
    """Scales each resource when it is due, one at a time per resource."""

    def __init__(
        self,
        scaler: Scaler,
        cache: WorkloadCache,
        members: Members,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self._scaler = scaler
        self._cache = cache
        self._shared = SharedWorkloads(cache)
        self._members = members
        self._queue: KeyedQueue[Name] = KeyedQueue(clock)
        self._queues: dict[str, dict[Name, None]] = {}  # what waits for its queue, in order
        self._woken: set[Name] = set()  # what goes first
        self._tasks: asyncio.TaskGroup | None = None
        self._known: dict[Name, object] = {}
        self._gate = Gate("scaling", LIMITS)
        progress.follow("scaling", self._gate.stalled_s, self._queue.overdue_s)

    def wake(self, name: Name) -> None:
        """Observe at once: an entry was added."""
        log.debug("woken", extra={"resource": "/".join(name)})
        self._woken.add(name)
        self._queue.add(name)

    def notice(self, kind: Kind, name: Name) -> None:
        """A resource, its workers or its autoscaler changed: observe soon if that may matter."""
        if kind is STREAM_CONSUMER_GROUP and not self._is_news(name):
            return
        self._queue.add(name, delay_s=NOTICE_S)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._follow_members())
            tasks.create_task(self._dispatch(tasks))

    async def _dispatch(self, tasks: asyncio.TaskGroup) -> None:
        while is_wanted():
            name = await self._queue.take()
            endpoint_queue = self._find_queue(name)
            if endpoint_queue is None:
                self._woken.discard(name)
                self._queue.done(name)
            elif endpoint_queue in self._queues:
                self._queues[endpoint_queue][name] = None
            else:
                self._queues[endpoint_queue] = {name: None}
                tasks.create_task(self._serve(endpoint_queue, tasks))
            await asyncio.sleep(0)  # thousands may be due at once

    def _find_queue(self, name: Name) -> str | None:
        try:
            return self._scaler.endpoint_queue(name)
        except Exception:
            log.exception(
                "Unexpected error: the resource is not scaled", extra={"resource": "/".join(name)}
            )
            return None

    async def _serve(self, endpoint_queue: str, tasks: asyncio.TaskGroup) -> None:
        """Observe the groups that wait, again and again until none does."""
        waiting = self._queues[endpoint_queue]
        while waiting and is_wanted():
            names = sorted(waiting, key=lambda name: name not in self._woken)[:MOST]
            for name in names:
                del waiting[name]
                self._woken.discard(name)
            observations = await self._observe(endpoint_queue, names)
            for name in names:
                tasks.create_task(self._scale(name, observations.get(name)))
        del self._queues[endpoint_queue]

    async def _observe(
        self, endpoint_queue: str, names: list[Name]
    ) -> dict[Name, RedisObservation]:
        """What Redis shows of resources of one queue; empty when it could not be observed."""
        place, observe = Place(names[0][0], endpoint_queue), partial(self._scaler.observe, names)
        try:
            return await self._gate.run(place, observe, what="/".join(names[0]))
        except PelopsError as error:
            log.info("Could not observe %s groups: %s", len(names), error)
            return {}

    async def _scale(self, name: Name, redis: RedisObservation | None) -> None:
        """Scale one resource after an observation, whatever error comes of it."""
        again_s: float | None = random.uniform(*AFTER_ERROR_S)
        key = "/".join(name)
        try:
            if redis is not None:
                scale = partial(self._scale_and_repair, name, redis)
                again_s = await self._gate.run(Place(name[0], "workload"), scale, what=key)
        except (DeadlineExceeded, InternalError) as error:
            log.warning("Could not scale: %s", error, extra={"resource": key})
            again_s = AFTER_BREAK_S
        except PelopsError as error:
            log.info("Could not scale: %s", error, extra={"resource": key})
        self._queue.done(name, again_s=again_s)

    async def _scale_and_repair(self, name: Name, redis: RedisObservation) -> float | None:
        wait_s = await self._scaler.scale(name, redis)
        await self._scaler.correct_lag(name, redis)
        return wait_s

    async def _follow_members(self) -> None:
        """Who decides changes with the replicas of the operator: observe all groups again then."""
        async for _ in follow_standing(self._members):
            for name in list(self._cache.resources):
                self._queue.add(name, delay_s=random.uniform(0, START_UP_S))

    def _is_news(self, name: Name) -> bool:
        """Whether the resource is new or its spec has changed; its status does not matter."""
        manifest = self._cache.resources.get(name)
        if manifest is None:
            self._known.pop(name, None)
            return True
        metadata = manifest["metadata"]
        asked = (
            metadata["uid"],
            metadata.get("generation"),
            metadata.get("deletionTimestamp"),
            self._shared.version(name),  # who leads may be another
        )
        is_news = self._known.get(name) != asked
        self._known[name] = asked
        return is_news


class ScalingLoop:
    """Scales, in mode Auto, the resources for which this replica ranks first."""

    def __init__(
        self,
        api: KubeApi,
        cache: WorkloadCache,
        members: Members,
        observer: GroupObserver,
        targets: Targets,
        reporter: Reporter,
        progress: Progress,
        clock: Callable[[], float],
        *,
        make_due: Callable[[Name], None],
        note: Callable[[StreamConsumerGroup, RedisObservation], None],
    ) -> None:
        """`make_due` and `note` are those of `Scaler`."""
        self._progress = progress
        self._waker = Waker(self._wake)
        pace = Pace(IdleGroups(self._waker))

        def forget(name: Name) -> None:
            pace.forget(name)
            forget_scaling(*name)

        resources = ScaledResources(cache, members, forget)
        writes = ScaleWrites(resources, targets, Victims(api, cache, observer), reporter, clock)
        self._scaler = Scaler(
            resources,
            observer,
            writes,
            pace,
            clock,
            make_due=make_due,
            note=note,
            wake=self._wake,
        )
        self._loop = ScaleLoop(self._scaler, cache, members, progress, clock)

    def decision(self, name: Name) -> ScalingDecision | None:
        """What was decided last; None when nothing was, or not by this replica."""
        return self._scaler.decision(name)

    def demands(self, name: Name) -> Mapping[str, float | None] | None:
        """What each group asks for whose workers this resource scales; None for one: not known.

        None: this replica does not decide for them.
        """
        return self._scaler.demands(name)

    def notice(self, kind: Kind, name: Name) -> None:
        """An object of this kind changed that concerns the resource."""
        self._loop.notice(kind, name)

    async def run(self) -> None:
        """Scale until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._waker.run())
            group.create_task(self._progress.keep_running("scaling", self._loop.run))

    def _wake(self, token: Hashable) -> None:
        self._loop.wake(cast(Name, token))
