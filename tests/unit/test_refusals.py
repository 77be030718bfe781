"""How often resources are looked at and written to that cost much and bring nothing.

The API server takes seconds to write an object of 1 MiB, and sends it as a whole to all who watch.
A Redis that never answers takes all the time that a pass has.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime import cache as cache_module
from pelops.controller.runtime.cache import BURST_S, Cache, Resync, concern_itself, name_of
from pelops.controller.runtime.kind import (
    FIRST_BREAK_S,
    FLIPS_PER_S,
    LONGEST_BREAK_S,
    LONGEST_RETRY_S,
    ManagedKind,
    Memory,
    PassIntervals,
    PlannedAction,
    Services,
    StatusDecision,
    WriteBudget,
)
from pelops.controller.runtime.passes import (
    FIRST_LARGE_S,
    LARGE_TAKEN_S,
    LONGEST_LARGE_S,
    ReconcileLoop,
)
from pelops.domain.condition import Finding
from pelops.kube.client import STREAM_CONSUMER_GROUP, Address, Kind, Manifest, Page
from pelops.kube.trimmed import MOST_TEMPLATE_BYTES
from pelops.policy.membership import STEP
from pelops.policy.status.reasons import Reason
from tests.leases import KnownMembers
from tests.virtual_time import run_virtually

KIND = STREAM_CONSUMER_GROUP
WRITE_S = 4.0


class Server:
    """An API server that takes its time for each write of a status, and may never answer one."""

    def __init__(self, cache: Cache, *manifests: Manifest, answers: bool = True) -> None:
        self._cache = cache
        self._manifests = {name_of(one): one for one in manifests}
        self._answers = answers
        self.writes: list[tuple[float, str]] = []  # when each began, and of what
        self.events: Counter[str] = Counter()
        self.under_way = self.most = 0

    async def apply(self, address: Address, body: Manifest, **_: object) -> Manifest:
        self.writes.append((now(), address.name))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await (asyncio.sleep(WRITE_S) if self._answers else asyncio.Event().wait())
        finally:
            self.under_way -= 1
        whole = self._manifests["shop", address.name]
        version = self._cache.version(KIND, name_of(whole)) + 1
        metadata = {**whole["metadata"], "resourceVersion": str(version)}
        return {**whole, "metadata": metadata, "status": body["status"]}

    async def create(self, _: Kind, __: str, body: Manifest) -> Manifest:
        self.events[body["regarding"]["name"]] += 1
        return body


class Groups(ManagedKind[StreamConsumerGroup, Any, Memory]):
    """Nothing of any resource can be observed."""

    api = KIND

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, defaultdict(Memory))
        self.looks: list[float] = []

    def parse(self, manifest: Manifest) -> StreamConsumerGroup:
        return StreamConsumerGroup.parse(manifest)

    async def observe(self, _: object) -> Any:
        self.looks.append(now())
        await asyncio.Event().wait()

    def actions(self, *_: object) -> Iterator[PlannedAction]:
        return iter(())

    def decide_status(self, *_: object) -> StatusDecision:
        problem = Finding(reason=Reason.REDIS_UNREACHABLE, message=f"trouble {len(self.looks)}")
        return StatusDecision(status={"trouble": problem.message}, conditions=(), problem=problem)

    def intervals(self, known: int) -> PassIntervals:
        return PassIntervals(observe_s=5.0, status_s=10.0)

    def add_problem(self, *_: object) -> Any:
        raise AssertionError("no look of these fails")


class Flapping(Groups):
    """Each look finds another trouble."""

    async def observe(self, _: object) -> Any:
        self.looks.append(now())


def now() -> float:
    return asyncio.get_running_loop().time()


def large(name: str) -> Manifest:
    template = {"spec": {"containers": [{"name": "x" * (MOST_TEMPLATE_BYTES + 1)}]}}
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": "1",
        },
        "spec": {"template": template},
    }


def small(name: str) -> Manifest:
    return {**large(name), "spec": {"redis": {"url": "redis://evil"}, "stream": name}}


def run_for(
    seconds: float,
    *manifests: Manifest,
    rank: int = 0,
    answers: bool = True,
    of: type[Groups] = Groups,
) -> tuple[Server, Groups]:
    """What the API server saw of one replica that ranks so, in so many seconds."""

    async def scenario() -> tuple[Server, Groups]:
        clock = asyncio.get_running_loop().time
        cache = Cache()
        cache.follow(KIND, concern_itself(KIND))
        kind = of(clock)
        server = Server(cache, *manifests, answers=answers)
        services = Services(
            api=cast(Any, server),
            cache=cache,
            members=KnownMembers(known=frozenset(), rank_now=rank),
            connections=cast(Any, None),
            settings=cast(Any, SimpleNamespace(identity="one")),
            clock=clock,
        )
        loop = asyncio.create_task(ReconcileLoop(kind, services).run())
        for manifest in manifests:
            cache.put(KIND, manifest)
            kind.queue.add(name_of(manifest))
        await asyncio.sleep(seconds)
        loop.cancel()
        await asyncio.wait({loop})
        return server, kind

    return run_virtually(scenario())


def test_each_large_resource_is_refused_once_and_one_at_a_time() -> None:
    names = [f"evil-{number}" for number in range(8)]
    seconds = len(names) * (WRITE_S + LARGE_TAKEN_S[1]) + 600
    server, _ = run_for(seconds, *map(large, names))
    assert Counter(name for _, name in server.writes) == Counter(names)
    assert server.events == Counter(names)
    assert server.most == 1


def test_only_the_replica_that_ranks_first_refuses() -> None:
    server, _ = run_for(600, large("evil"), rank=1)
    assert not server.writes


@pytest.mark.parametrize("rank", [0, 1])
def test_a_small_refusal_is_written_at_once_by_the_first_in_rank(rank: int) -> None:
    unreadable = {**small("evil"), "spec": {"stream": 7}}
    server, _ = run_for(STEP.total_seconds() / 2, unreadable, rank=rank)
    assert len(server.writes) == (1 if rank == 0 else 0)


def test_an_unanswered_status_write_is_retried_with_backoff() -> None:
    server, _ = run_for(10 * LONGEST_LARGE_S, large("evil"), answers=False)
    pauses = pauses_between([at for at, _ in server.writes])
    assert pauses[0] >= FIRST_LARGE_S
    assert max(pauses) >= LONGEST_LARGE_S / 2
    assert len(pauses) < 25


def test_writes_for_a_resource_that_changes_constantly_are_limited() -> None:
    hour_s = 3600.0
    server, kind = run_for(hour_s, small("flapping"), of=Flapping)
    assert len(kind.looks) > hour_s / LONGEST_RETRY_S / 4
    assert len(server.writes) <= WriteBudget().capacity + hour_s * FLIPS_PER_S + 1


def test_a_resource_whose_passes_time_out_is_reconciled_with_backoff() -> None:
    _, kind = run_for(20 * LONGEST_BREAK_S, small("silent"))
    pauses = pauses_between(kind.looks)
    assert pauses[0] < Groups.limits.deadline_s + 2 * FIRST_BREAK_S
    assert min(pauses[-5:]) > Groups.limits.deadline_s + LONGEST_BREAK_S / 2


def pauses_between(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


async def test_a_list_of_large_resources_leaves_others_their_turn_after_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count(step=2 * BURST_S)
    slow = SimpleNamespace(monotonic=lambda: next(ticks), time=lambda: 0.0)
    monkeypatch.setattr(cache_module, "time", slow)
    text = json.dumps({"metadata": {}, "items": [large(f"evil-{number}") for number in range(8)]})

    class Pages:
        async def list_pages(self, *_: object, **__: object) -> AsyncIterator[Page]:
            yield Page(KIND, text)

    cache = Cache()
    cache.follow(KIND, concern_itself(KIND))
    listing = Resync(cast(Any, Pages()), cache, ()).list_feed(KIND, None)
    seen: list[int] = []

    async def look() -> None:
        while len(cache.objects(KIND)) < 8:
            seen.append(len(cache.objects(KIND)))
            await asyncio.sleep(0)

    await asyncio.gather(listing, look())
    assert len(set(seen)) >= 7
