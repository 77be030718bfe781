"""What garbage collection looks through while the process has other things to do."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from pelops.controller import replica
from pelops.controller.replica import MUCH, MUCH_GARBAGE, THOROUGH_EVERY, Heap


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
