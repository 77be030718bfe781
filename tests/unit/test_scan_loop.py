"""When a replica scans a group: at each interval, or seldom while nothing of it is pending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple, cast

from pelops.controller.recovery.scan_loop import STEP_S, ScanLoop
from pelops.controller.recovery.scanner import RECHECK
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.gate import Progress
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.recovery import Trigger
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.policy.recovery.scan_interval import QUIET
from tests.builders import manifest
from tests.leases import KnownMembers
from tests.virtual_time import in_scene

NAME = ("shop", "order-processing")
INTERVAL_S = 60.0


class FakeScanner:
    """Finds nothing, and wants to be asked again after the interval."""

    def __init__(self, cache: WorkloadCache) -> None:
        self.cache = cache
        self.scans: list[Trigger] = []
        self.settled = False

    def is_settled(self, _: Name) -> bool:
        return self.settled

    async def scan(self, _: Name, trigger: Trigger, *, since: float | None) -> timedelta:
        self.scans.append(trigger)
        return timedelta(seconds=INTERVAL_S)


class Scene(NamedTuple):
    """A scan loop, what it asks for, and its rank among the replicas."""

    scanner: FakeScanner
    loop: ScanLoop
    members: KnownMembers


@asynccontextmanager
async def one_replica() -> AsyncIterator[Scene]:
    cache = WorkloadCache()
    cache.put(STREAM_CONSUMER_GROUP, manifest(status={"conditions": [{"type": "Ready"}]}))
    scanner, members = FakeScanner(cache), KnownMembers()
    clock = asyncio.get_running_loop().time
    loop = ScanLoop(cast(Any, scanner), cache, members, Progress(), clock)
    running = asyncio.create_task(loop.run())
    try:
        yield Scene(scanner, loop, members)
    finally:
        running.cancel()
        await asyncio.wait({running})


@in_scene(one_replica)
async def test_a_group_is_scanned_at_each_interval(scene: Scene) -> None:
    await asyncio.sleep(10.5 * INTERVAL_S)
    assert len(scene.scanner.scans) == 11


@in_scene(one_replica)
async def test_a_settled_group_is_scanned_rarely_until_it_changes(scene: Scene) -> None:
    scene.scanner.settled = True
    await asyncio.sleep((4 * QUIET + 0.5) * INTERVAL_S)
    assert len(scene.scanner.scans) == 5
    await asyncio.sleep(INTERVAL_S)
    scene.scanner.settled = False
    await asyncio.sleep(INTERVAL_S)
    assert len(scene.scanner.scans) == 6


@in_scene(one_replica)
async def test_a_pod_death_starts_a_scan_even_of_a_settled_group(scene: Scene) -> None:
    scene.scanner.settled = True
    await asyncio.sleep(1.5 * INTERVAL_S)
    scene.loop.wake(NAME, Trigger.POD_DEATH)
    await asyncio.sleep(1.0)
    assert scene.scanner.scans == [Trigger.START_UP, Trigger.POD_DEATH]


@in_scene(one_replica)
async def test_a_pod_death_is_scanned_at_once_while_no_replica_is_admitted(scene: Scene) -> None:
    await asyncio.sleep(1.5 * INTERVAL_S)
    before, scene.members.is_admitted = len(scene.scanner.scans), False
    scene.loop.wake(NAME, Trigger.POD_DEATH)
    await asyncio.sleep(STEP_S / 2)
    assert scene.scanner.scans[before:] == [Trigger.POD_DEATH]


@in_scene(one_replica)
async def test_only_the_first_replica_in_rank_scans_at_start_up(scene: Scene) -> None:
    scene.members.rank_now = 1
    await asyncio.sleep(QUIET * RECHECK.total_seconds() / 2)
    assert scene.scanner.scans == []
    await asyncio.sleep(QUIET * RECHECK.total_seconds())
    assert scene.scanner.scans[0] is Trigger.SCAN


@in_scene(one_replica)
async def test_a_new_resource_is_scanned_once_its_group_is_ready(scene: Scene) -> None:
    await asyncio.sleep(1.0)  # the first scan of what was there at the beginning
    scene.scanner.scans.clear()
    changed = manifest(status={"observedGeneration": -1})
    changed["metadata"]["generation"] = 7
    scene.scanner.cache.put(STREAM_CONSUMER_GROUP, changed)
    scene.loop.notice(NAME)
    await asyncio.sleep(RECHECK.total_seconds() / 2)
    assert scene.scanner.scans == []
    scene.loop.wake(NAME, Trigger.START_UP)
    await asyncio.sleep(0.5)
    assert scene.scanner.scans == [Trigger.START_UP]


@in_scene(one_replica)
async def test_who_ranks_first_from_now_on_looks_at_once(scene: Scene) -> None:
    await asyncio.sleep(0.5 * INTERVAL_S)
    before = len(scene.scanner.scans)
    scene.members.known = frozenset({"one", "two"})
    await asyncio.sleep(1.0)
    assert len(scene.scanner.scans) == before + 1
    scene.members.rank_now, scene.members.known = 1, frozenset({"one", "three"})
    await asyncio.sleep(1.0)
    assert len(scene.scanner.scans) == before + 1
