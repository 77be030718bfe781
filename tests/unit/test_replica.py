"""A replica's garbage collection, its HTTP endpoint, and what its probes follow."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import aiohttp
import pytest

from pelops.controller import replica
from pelops.controller.replica import (
    MUCH,
    MUCH_GARBAGE,
    THOROUGH_EVERY,
    Heap,
    MetricsAccess,
    Replica,
    start_serving,
)
from pelops.controller.runtime.access import ALLOWED_S, REFUSED_S, WAITING
from pelops.controller.runtime.settings import parse_settings
from pelops.controller.runtime.watch import Watch
from pelops.errors import KubernetesUnavailable
from pelops.kube.client import TOKEN_REVIEW, Kind, KubeApi


class Node:
    """Something that can refer to itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def heap() -> Iterator[Heap]:
    thresholds = gc.get_threshold()
    yield Heap()
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def full_collections() -> Iterator[list[int]]:
    """How many there were, one after the other."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            seen.append(info["collected"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def manifests(count: int) -> list[dict[str, Any]]:
    """As a cache keeps them."""
    return [{"metadata": {"labels": {"n": str(n)}}, "items": [{}]} for n in range(count)]


def test_no_full_collection_happens_between_two_tidyings(
    heap: Heap, full_collections: list[int]
) -> None:
    heap.collect()
    full_collections.clear()
    kept = [manifests(1_000) for _ in range(100)]
    assert len(kept) == 100
    assert full_collections == []


def test_what_lives_is_not_looked_through_at_the_next_tidying(heap: Heap) -> None:
    kept = manifests(10_000)
    heap.collect()
    assert len(gc.get_objects()) < len(kept)


def test_new_garbage_is_freed_by_the_next_tidying(heap: Heap) -> None:
    heap.collect()
    seen = weakref.ref(Node())
    heap.collect()
    assert seen() is None


def test_frozen_objects_that_became_garbage_are_freed_eventually(heap: Heap) -> None:
    node = Node()
    seen = weakref.ref(node)
    heap.collect()
    del node
    for _ in range(THOROUGH_EVERY):
        heap.collect()
    assert seen() is None


def test_much_new_garbage_is_freed_before_the_next_tidying(heap: Heap) -> None:
    heap.collect()
    nodes = [Node() for _ in range(MUCH_GARBAGE)]
    seen = [weakref.ref(node) for node in nodes]
    while gc.get_count()[2] < MUCH:
        gc.collect(1)  # they live, and are out of reach of smaller collections then
    del nodes
    heap.free_early()
    assert not any(one() for one in seen)


def test_little_new_garbage_is_left_to_the_next_tidying(
    heap: Heap, full_collections: list[int]
) -> None:
    heap.collect()
    full_collections.clear()
    heap.free_early()
    assert full_collections == []


def test_much_that_is_new_and_lives_is_set_aside_early(heap: Heap) -> None:
    heap.collect()
    kept = manifests(10_000)
    while gc.get_count()[2] < MUCH:
        gc.collect(1)
    heap.free_early()
    assert len(gc.get_objects()) < len(kept)


async def test_much_garbage_is_freed_between_two_collections(
    monkeypatch: pytest.MonkeyPatch, heap: Heap
) -> None:
    monkeypatch.setattr(replica, "FIRST_COLLECTION_S", 0.0)
    monkeypatch.setattr(replica, "CHECK_EVERY_S", 0.01)
    looked = asyncio.Event()
    monkeypatch.setattr(heap, "free_early", looked.set)
    running = asyncio.create_task(heap.run())
    async with asyncio.timeout(30):
        assert await looked.wait()
    running.cancel()


# --- The operator's own HTTP endpoint


class Health:
    """What is not well, to be changed by a test."""

    alive = ""
    ready = "the cache is not filled yet"


@pytest.fixture
async def endpoint() -> AsyncIterator[tuple[str, Health]]:
    health = Health()
    runner, port = await start_serving(
        host="127.0.0.1", port=0, is_alive=lambda: health.alive, is_ready=lambda: health.ready
    )
    yield f"http://127.0.0.1:{port}", health
    await runner.cleanup()


async def get(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_a_probe_says_what_is_not_well(endpoint: tuple[str, Health]) -> None:
    url, health = endpoint
    assert (await get(f"{url}/livez"))[:2] == (200, "ok\n")
    assert (await get(f"{url}/readyz"))[:2] == (503, "the cache is not filled yet\n")
    health.ready = ""
    assert (await get(f"{url}/readyz"))[:2] == (200, "ok\n")


async def test_metrics_are_served_for_prometheus(endpoint: tuple[str, Health]) -> None:
    status, text, kind = await get(f"{endpoint[0]}/metrics")
    assert status == 200
    assert kind.startswith("text/plain")
    assert "# HELP pelops_reconciles_total" in text


async def test_single_metrics_are_served_by_their_names(endpoint: tuple[str, Health]) -> None:
    names = "name[]=pelops_members&name[]=pelops_resources"
    _, text, _ = await get(f"{endpoint[0]}/metrics?{names}")
    shown = {line.split()[0] for line in text.splitlines() if not line.startswith("#")}
    assert shown == {"pelops_members", "pelops_resources"}


async def test_guarded_metrics_need_permission_and_probes_do_not() -> None:
    asked: list[str] = []

    async def access(authorization: str) -> int:
        asked.append(authorization)
        return {"": 401, "Bearer other": 403, "Bearer well": 200}[authorization]

    runner, port = await start_serving(
        host="127.0.0.1", port=0, is_alive=str, is_ready=str, access=access
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as session:
            for header, status in (("Bearer other", 403), ("Bearer well", 200)):
                headers = {"Authorization": header}
                async with session.get(f"{url}/metrics", headers=headers) as answer:
                    text = await answer.text()
                    assert (answer.status, "pelops_" in text) == (status, status == 200)
            async with session.get(f"{url}/metrics") as answer:
                assert (answer.status, await answer.text()) == (401, "")
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert [(await get(f"{url}{probe}"))[0] for probe in ("/livez", "/readyz")] == [200, 200]
    finally:
        await runner.cleanup()
    assert asked == ["Bearer other", "Bearer well", ""]


async def test_nothing_else_is_served(endpoint: tuple[str, Health]) -> None:
    assert (await get(f"{endpoint[0]}/"))[0] == 404


# --- What `/readyz` and `/livez` of a replica follow


class SilentWatch(Watch):
    """A watch that is as silent as a test says."""

    def __init__(self) -> None:
        self.said = ""

    def problem(self) -> str:
        return self.said


@pytest.fixture
async def a_replica() -> Replica:
    return Replica(parse_settings([], {}), asyncio.Event())


async def test_a_replica_is_not_ready_before_its_cache_is_filled(a_replica: Replica) -> None:
    assert a_replica.why_not_ready() == "no request to the API server has completed yet"


async def test_a_silent_watch_makes_a_replica_unready_and_not_dead(a_replica: Replica) -> None:
    watch = SilentWatch()
    a_replica.begin(watch)
    assert a_replica.why_not_ready() == ""
    watch.said = "the watch of pods has received nothing for 61 s"
    assert a_replica.why_not_ready() == watch.said
    assert a_replica.why_not_alive() == ""
    watch.said = ""
    assert a_replica.why_not_ready() == ""


@pytest.mark.full
def test_a_replica_takes_as_many_file_descriptors_as_it_may() -> None:
    begin = (
        "import resource as r; _, hard = r.getrlimit(r.RLIMIT_NOFILE);"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, hard));"
        "from pelops.controller import replica; replica.raise_file_limit();"
        "soft, hard = r.getrlimit(r.RLIMIT_NOFILE);"
        "print(soft == (replica.FILES if hard == r.RLIM_INFINITY else min(hard, replica.FILES)))"
    )
    said = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "True"


# --- Who may read the metrics: what is asked of the API server, and what is remembered


USER = {"username": "prometheus", "uid": "7", "groups": ["scrapers"], "extra": {"a": ["b"]}}


class Reviews:
    """Answers reviews as an API server that knows the token `well`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.is_allowed = True
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, kind: Kind, _: str, body: dict[str, Any]) -> dict[str, Any]:
        await self.gate.wait()
        if self.is_away:
            raise KubernetesUnavailable("away")
        self.asked.append(body["spec"])
        if kind is not TOKEN_REVIEW:
            return {"status": {"allowed": self.is_allowed}}
        is_known = body["spec"]["token"] == "well"
        return {"status": {"authenticated": is_known, "user": USER} if is_known else {}}


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def access(reviews: Reviews, now: list[float]) -> MetricsAccess:
    return MetricsAccess(cast(KubeApi, reviews), lambda: now[0])


async def test_the_rights_of_the_tokens_user_are_asked_for(
    access: MetricsAccess, reviews: Reviews
) -> None:
    assert await access("Bearer well") == 200
    path = {"path": "/metrics", "verb": "get"}
    whom = {"user": "prometheus", "uid": "7", "groups": ["scrapers"], "extra": {"a": ["b"]}}
    assert reviews.asked == [{"token": "well"}, {**whom, "nonResourceAttributes": path}]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic well", "well"])
async def test_without_a_bearer_token_no_review_is_requested(
    access: MetricsAccess, reviews: Reviews, header: str
) -> None:
    assert await access(header) == 401
    assert reviews.asked == []


async def test_an_answer_is_believed_for_a_while(
    access: MetricsAccess, reviews: Reviews, now: list[float]
) -> None:
    assert [await access("bearer well") for _ in range(3)] == [200] * 3
    reviews.is_allowed = False
    assert await access("Bearer well") == 200
    now[0] += ALLOWED_S
    assert [await access("Bearer well") for _ in range(3)] == [403] * 3
    reviews.is_allowed = True
    now[0] += REFUSED_S
    assert await access("Bearer well") == 200
    assert [await access("Bearer other") for _ in range(3)] == [401] * 3
    assert len(reviews.asked) == 3 * 2 + 1


async def test_an_outage_refuses_and_is_not_remembered(
    access: MetricsAccess, reviews: Reviews
) -> None:
    reviews.is_away = True
    assert await access("Bearer well") == 503
    reviews.is_away = False
    assert await access("Bearer well") == 200


async def test_a_flood_of_tokens_waits_for_the_api_server_within_bounds(
    access: MetricsAccess, reviews: Reviews
) -> None:
    reviews.gate.clear()
    flood = [asyncio.create_task(access(f"Bearer {number}")) for number in range(WAITING)]
    await asyncio.sleep(0)
    assert await access("Bearer one-more") == 429
    reviews.gate.set()
    assert await asyncio.gather(*flood) == [401] * WAITING
    assert await access("Bearer well") == 200
