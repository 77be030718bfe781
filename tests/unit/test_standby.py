"""Which replica observes a resource, and when the others do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import partial
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime import kind as kind_module
from pelops.controller.runtime.cache import Cache, Name, concern_itself
from pelops.controller.runtime.gate import Gate
from pelops.controller.runtime.kind import (
    ManagedKind,
    Memory,
    PassIntervals,
    PlannedAction,
    Services,
    StatusDecision,
)
from pelops.controller.runtime.leases import CHECK_S
from pelops.controller.runtime.passes import ReconcileLoop
from pelops.domain.condition import Finding
from pelops.errors import Conflict
from pelops.kube.client import POD, STREAM_CONSUMER_GROUP, Address, Manifest
from pelops.policy.membership import LONG_STEP, STEP
from pelops.policy.status.reasons import Reason
from tests.leases import KnownMembers
from tests.virtual_time import in_scene

KIND = STREAM_CONSUMER_GROUP
ORDERS = ("shop", "orders")
BOTH = frozenset({"one", "two"})
OBSERVE_S = 5.0
SELDOM, TOGETHER_S = 10, 1.0
STEP_S, LONG_S = STEP.total_seconds(), LONG_STEP.total_seconds()


def now() -> float:
    return asyncio.get_running_loop().time()


class VirtualDatetime(datetime):
    """The time of day of a scenario."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(now(), tz)


@dataclass
class Server:
    """An API server that takes every status, and sends it back."""

    cache: Cache
    report: Callable[[], None] = field(default=lambda: None)
    writes: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    newer: str | None = None  # the version that it has, which the watch did not bring yet

    async def apply(self, address: Address, body: Manifest, **_: object) -> Manifest:
        if self.newer not in (None, body["metadata"].get("resourceVersion", self.newer)):
            self.refused.append(now())
            raise Conflict("the object has been modified")
        self.writes.append(now())
        whole = self.cache.objects(KIND)[address.namespace or "", address.name]
        version = str(int(whole["metadata"]["resourceVersion"]) + 1)
        metadata = whole["metadata"] | {"resourceVersion": version}
        asyncio.get_running_loop().call_later(0.01, self.report)
        return {**whole, "metadata": metadata, "status": body["status"]}


class Groups(ManagedKind[StreamConsumerGroup, None, Memory]):
    """Resources with a status that never changes, and with an action when one is planned."""

    api = KIND
    is_shared_out = True

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, defaultdict(Memory))
        self.looks: list[float] = []
        self.measured: set[Name] = set()
        self.done: list[float] = []
        self.missing = 0
        self.problem: Finding | None = None

    def parse(self, manifest: Manifest) -> StreamConsumerGroup:
        return StreamConsumerGroup.parse(manifest)

    async def observe(self, _: object) -> None:
        self.looks.append(now())

    def actions(self, *_: object) -> Iterator[PlannedAction]:
        async def do() -> None:
            self.done.append(now())
            self.missing -= 1

        while self.missing:
            yield PlannedAction(part="any", what=f"mend {self.missing}", do=do)

    def add_problem(self, *_: object) -> None:
        return None

    def decide_status(self, *_: object) -> StatusDecision:
        return StatusDecision(status={"as": "it is"}, conditions=(), problem=self.problem)

    def intervals(self, known: int) -> PassIntervals:
        return PassIntervals(
            observe_s=OBSERVE_S, status_s=10.0, together_s=TOGETHER_S, seldom=SELDOM
        )

    def measure(self, *_: object) -> None:
        self.measured.add(ORDERS)

    def stand_by(self, name: Name) -> None:
        self.measured.discard(name)


@dataclass
class Scene:
    """One replica, from its start."""

    ranks: KnownMembers
    kind: Groups
    server: Server
    cache: Cache
    loop: ReconcileLoop[StreamConsumerGroup, None, Memory]

    def change(
        self, *, generation: int, ready: tuple[str, str] | None = None, observed: int | None = None
    ) -> None:
        """Ask for something else, or, in the same generation, write a status.

        `ready` is its Ready condition, of the `observed` generation.
        """
        before = self.cache.objects(KIND)[ORDERS]["metadata"]
        version = str(int(before["resourceVersion"]) + 1)
        status: dict[str, Any] = {}
        if ready is not None:
            conditions = [{"type": "Ready", "status": ready[0], "reason": ready[1]}]
            status = {"observedGeneration": observed or generation, "conditions": conditions}
        self.cache.put(KIND, a_group(generation=generation, version=version, **status))
        self.loop.handle_change(KIND, {ORDERS})

    async def look(self) -> None:
        """Wait for a look, so that the next one without a reason is far."""
        looks = len(self.kind.looks)
        while len(self.kind.looks) == looks:
            await asyncio.sleep(0.5)

    def looks_since(self, at: float) -> list[float]:
        return [one - at for one in self.kind.looks if one >= at]


def a_group(*, generation: int = 1, version: str = "1", **status: Any) -> Manifest:
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {
            "name": ORDERS[1],
            "namespace": ORDERS[0],
            "uid": "uid",
            "generation": generation,
            "resourceVersion": version,
        },
        "spec": {"redis": {"url": "redis://here"}, "stream": "orders"},
        "status": status or {"as": "it is"},
    }


@asynccontextmanager
async def replica(*, rank: int = 0, of: Manifest | None = None) -> AsyncIterator[Scene]:
    """One replica of this rank, which runs."""
    clock = asyncio.get_running_loop().time
    cache, ranks, kind = Cache(), KnownMembers(known=BOTH, rank_now=rank), Groups(clock)
    cache.follow(KIND, concern_itself(KIND))
    cache.put(KIND, of or a_group())
    server = Server(cache)
    services = Services(
        api=cast(Any, server),
        cache=cache,
        members=ranks,
        connections=cast(Any, SimpleNamespace(forget_stale_secrets=lambda *_: False)),
        settings=cast(Any, SimpleNamespace(identity="one")),
        clock=clock,
    )
    loop = ReconcileLoop(kind, services)
    server.report = lambda: loop.handle_change(KIND, {ORDERS})
    running = asyncio.create_task(loop.run())
    try:
        yield Scene(ranks, kind, server, cache, loop)
    finally:
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.parametrize("rank", [0, 1, 2])
@in_scene(replica)
async def test_only_the_first_in_rank_observes_at_each_interval(scene: Scene, rank: int) -> None:
    scene.ranks.rank_now = rank
    await asyncio.sleep(20 * SELDOM * OBSERVE_S)
    looks = len(scene.kind.looks)
    if rank == 0:
        assert looks >= 20 * SELDOM / 1.2 - 1
    else:
        assert 20 / 1.2 - 1 <= looks <= 20 / 0.8 + 1


@in_scene(partial(replica, rank=2))
async def test_other_replicas_reconcile_a_change_after_those_of_higher_rank(scene: Scene) -> None:
    await scene.look()
    began = now()
    scene.change(generation=2)
    await asyncio.sleep(2.5 * LONG_S)
    looks = scene.looks_since(began)
    assert looks and min(looks) >= 2 * LONG_S


@in_scene(partial(replica, rank=1))
async def test_a_status_that_another_replica_has_written_is_no_reason_to_look(scene: Scene) -> None:
    await scene.look()
    began = now()
    for _ in range(5):
        scene.change(generation=1)
    await asyncio.sleep(5 * STEP_S)
    assert scene.looks_since(began) == []


@in_scene(partial(replica, rank=1))
async def test_a_status_written_by_the_first_replica_postpones_the_pass(scene: Scene) -> None:
    await scene.look()
    began = now()
    scene.change(generation=2)
    scene.change(generation=2, ready=("True", "Ready"))
    await asyncio.sleep(2 * LONG_S)
    assert scene.looks_since(began) == []


@pytest.mark.parametrize("of_generation", [1, 2])
@in_scene(partial(replica, rank=1))
async def test_a_status_with_a_problem_or_older_generation_postpones_no_pass(
    scene: Scene, of_generation: int
) -> None:
    status = "True" if of_generation == 1 else "False"
    await scene.look()
    began = now()
    scene.change(generation=2)
    scene.change(generation=2, ready=(status, "RedisUnreachable"), observed=of_generation)
    await asyncio.sleep(2 * LONG_S)
    assert scene.looks_since(began)


@in_scene(partial(replica, rank=1))
async def test_waiting_work_of_a_replica_delays_its_standby_passes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = {ORDERS[0]}
    monkeypatch.setattr(Gate, "has_waiting", lambda _, namespace: namespace in waiting)
    await asyncio.sleep(SELDOM * OBSERVE_S * 1.5)
    assert scene.kind.looks == []
    waiting.clear()
    await asyncio.sleep(2 * LONG_S)
    assert scene.kind.looks


@in_scene(replica)
async def test_all_actions_run_in_one_pass_and_the_next_one_reports(scene: Scene) -> None:
    await scene.look()
    began, scene.kind.missing = now(), 3
    scene.change(generation=2)
    await asyncio.sleep(OBSERVE_S / 4)
    assert len(scene.kind.done) == 3
    assert len(scene.looks_since(began)) == 2


@in_scene(replica)
async def test_changes_of_workers_are_looked_at_together(scene: Scene) -> None:
    await scene.look()
    began = now()
    for _ in range(3):
        scene.loop.handle_change(POD, {ORDERS})
        await asyncio.sleep(TOGETHER_S / 4)
    await asyncio.sleep(2 * TOGETHER_S)
    assert len(scene.looks_since(began)) == 1


@in_scene(partial(replica, of=a_group(other="status")))
async def test_a_replicas_own_status_write_does_not_cause_a_pass(scene: Scene) -> None:
    await asyncio.sleep(0.5 * OBSERVE_S)
    assert len(scene.server.writes) == 1
    assert len(scene.kind.looks) == 1


@pytest.mark.parametrize("rank", [0, 1])
@in_scene(partial(replica, of=a_group(other="status")))
async def test_only_the_first_in_rank_overwrites_a_newer_status(
    scene: Scene, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ranks.rank_now = rank
    monkeypatch.setattr(kind_module, "datetime", VirtualDatetime)
    scene.server.newer = "2"
    scene.loop.handle_change(KIND, {ORDERS})
    await asyncio.sleep(10 * LONG_S)
    if rank == 0:
        assert len(scene.server.writes) == 1 and not scene.server.refused
        return
    assert not scene.server.writes
    assert 2 <= len(scene.server.refused) <= 12
    assert scene.kind.memories[ORDERS].failures == 0
    scene.change(generation=1)
    await asyncio.sleep(2 * LONG_S)
    assert not scene.server.writes


@in_scene(partial(replica, rank=1))
async def test_work_left_by_the_first_replica_is_done_by_the_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind_module, "datetime", VirtualDatetime)
    await scene.look()
    scene.kind.missing = 1
    began = now()
    scene.change(generation=2)
    await asyncio.sleep(LONG_S + 2 * STEP_S)
    (done,) = scene.kind.done
    assert 0.99 * (LONG_S + STEP_S) <= done - began <= LONG_S + 1.5 * STEP_S


@pytest.mark.parametrize("rank", [0, 1])
@in_scene(replica)
async def test_only_the_first_in_rank_retries_a_problem_often(scene: Scene, rank: int) -> None:
    scene.ranks.rank_now = rank
    scene.kind.problem = Finding(reason=Reason.REDIS_UNREACHABLE, message="away")
    await asyncio.sleep(SELDOM * OBSERVE_S * 1.2)
    if rank == 0:
        assert len(scene.kind.looks) > SELDOM
    else:
        assert len(scene.kind.looks) <= 2


@in_scene(partial(replica, rank=1))
async def test_a_new_first_replica_starts_at_once_and_exports_the_series(scene: Scene) -> None:
    await asyncio.sleep(2 * SELDOM * OBSERVE_S)
    assert scene.kind.measured == set()
    began = now()
    scene.ranks.rank_now, scene.ranks.known = 0, frozenset({"one"})
    await asyncio.sleep(2 * CHECK_S)
    assert scene.looks_since(began)
    assert scene.kind.measured == {ORDERS}
    scene.ranks.rank_now, scene.ranks.known = 1, BOTH
    await asyncio.sleep(2 * CHECK_S)
    assert scene.kind.measured == set()
