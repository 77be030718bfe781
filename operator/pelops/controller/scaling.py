"""Scaling, put together: the loop, what it works with, and what wakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import cast

from pelops.api.stream_consumer_group import StreamConsumerGroup
from pelops.controller.cache import Cache
from pelops.controller.dozing import Dozing
from pelops.controller.members import Members
from pelops.controller.observe import Observer, RedisView
from pelops.controller.reporter import Reporter
from pelops.controller.scale_loop import ScaleLoop
from pelops.controller.scale_writes import ScaleWrites
from pelops.controller.scaler import Scaler, ScalerDoors
from pelops.controller.targets import Targets
from pelops.controller.versions import Name
from pelops.controller.victims import Victims
from pelops.kube.client import KubeApi
from pelops.kube.resources import Kind
from pelops.policy.scaling import ScalingDecision
from pelops.redis_streams.waking import Waker


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDoors:
    """What scaling is made of."""

    api: KubeApi
    cache: Cache
    members: Members
    observer: Observer
    targets: Targets
    reporter: Reporter
    tell: Callable[[Name], None]  # the status of this resource is worth a look
    note: Callable[[StreamConsumerGroup, RedisView], None]  # keeps what a look found


class Scaling:
    """Scales, in mode Auto, the resources for which this replica ranks first."""

    def __init__(self, doors: ScalingDoors, clock: Callable[[], float]) -> None:
        self._waker = Waker(self._wake)
        victims = Victims(doors.api, doors.cache)
        scaler_doors = ScalerDoors(
            cache=doors.cache,
            members=doors.members,
            observer=doors.observer,
            writes=ScaleWrites(doors.targets, victims, doors.reporter, clock),
            dozing=Dozing(self._waker),
            tell=doors.tell,
            note=doors.note,
        )
        self._scaler = Scaler(scaler_doors, clock)
        self._loop = ScaleLoop(self._scaler, doors.cache, doors.members, clock)

    def decision(self, name: Name) -> ScalingDecision | None:
        """What was decided last; None when nothing was, or not by this replica."""
        return self._scaler.decision(name)

    def notice(self, kind: Kind, name: Name) -> None:
        """An object of this kind changed that concerns the resource."""
        self._loop.notice(kind, name)

    async def run(self) -> None:
        """Scale until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._waker.run())
            group.create_task(self._loop.run())

    def _wake(self, token: Hashable) -> None:
        self._loop.wake(cast(Name, token))
