"""Four ways to move the entries of a dead owner, each until all of them are moved.

For each entry all check that it is still pending and that its lock is free, add a copy with its
origin and the number of tries, and acknowledge it. The operator also writes the ledger.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from redis.asyncio import Redis

from benchmarks.pending import BODY, pending_ids
from benchmarks.raw_redis import RawRedis, pack
from pelops.domain.endpoint import parse_redis_url
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.domain.records.state import OwnerRecord
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Server
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.recovery.stuck_entries import RecoveryOrder, ScanContext, recover_owner

UID = "uid-of-the-benchmark"
BATCH = 100  # what the operator moves at once by default
PAGE = 1000  # IDs that the other ways ask for at once
CHUNK = 500  # entries, of which two chunks are always on the way


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where the entries are."""

    port: int
    keys: GroupKeys
    owner: str  # it is dead
    limit: int  # how many of its entries are moved by a slow way


Way: TypeAlias = Callable[[Scene], Awaitable[float]]  # the seconds that it took


@asynccontextmanager
async def operators_server(port: int) -> AsyncIterator[Server]:
    """A server as the operator connects to it."""
    pool = ServerPool()
    try:
        yield await pool.server(parse_redis_url(f"redis://127.0.0.1:{port}"))
    finally:
        await pool.close()


async def provision(server: Server, keys: GroupKeys, uid: str = UID) -> None:
    """The group and its keys, as the operator makes them for the resource with this uid."""
    born = datetime(2026, 1, 1, tzinfo=UTC)
    owner = OwnerRecord(uid=uid, cluster="", namespace="default", name=keys.group, created=born)
    await provision_group(server, keys, start=EntryId.MIN, owner=owner)


def build_act(keys: GroupKeys) -> ScanContext:
    """The context of the operator's scan."""
    return ScanContext(
        keys=keys,
        source=keys.stream,
        target=keys.stream,
        uid=UID,
        field_prefix="_",
        batch=BATCH,
        actor="replica-1",
        trigger="pod-death",
        allows_others=False,
    )


async def move_by_operator(scene: Scene) -> float:
    """The operator's own code, ledger included."""
    order = RecoveryOrder(owner=scene.owner, reason="PodTerminated", counts_attempt=True)
    async with operators_server(scene.port) as server:
        seconds, micros = await server.execute("TIME")
        cutoff = datetime.fromtimestamp(int(seconds), UTC) + timedelta(microseconds=int(micros))
        began = time.perf_counter()
        async for batch in recover_owner(server, build_act(scene.keys), order, cutoff=cutoff):
            if batch.stays:
                raise RuntimeError(f"an entry stays: {batch.stays[0]}")
        return time.perf_counter() - began


async def move_one_by_one(scene: Scene) -> float:
    """Five commands for each entry, each awaited."""
    async with Redis(host="127.0.0.1", port=scene.port) as redis:
        stream, group = scene.keys.stream, scene.keys.group
        ids = await _take_ids(redis, scene)
        began = time.perf_counter()
        for entry_id in ids[: scene.limit]:
            pending = await redis.xpending_range(stream, group, entry_id, entry_id, 1)
            locked = await redis.exists(_lock(scene, entry_id))
            found: Any = await redis.xrange(stream, entry_id, entry_id)
            if pending and not locked and found:
                await redis.xadd(stream, _copied(entry_id, found[0][1]))
                await redis.xack(stream, group, entry_id)
        return time.perf_counter() - began


async def move_pipelined(scene: Scene) -> float:
    """The same five commands, a pipeline of questions and one of writes for each page."""
    async with Redis(host="127.0.0.1", port=scene.port) as redis:
        ids = await _take_ids(redis, scene)
        began = time.perf_counter()
        for start in range(0, len(ids), PAGE):
            await _move_page(redis, scene, ids[start : start + PAGE])
        return time.perf_counter() - began


async def _move_page(redis: Redis, scene: Scene, ids: list[bytes]) -> None:
    stream, group = scene.keys.stream, scene.keys.group
    asking = redis.pipeline(transaction=False)
    for entry_id in ids:
        asking.xpending_range(stream, group, entry_id, entry_id, 1)
        asking.exists(_lock(scene, entry_id))
        asking.xrange(stream, entry_id, entry_id)
    answers = await asking.execute()
    moving = redis.pipeline(transaction=False)
    questions = zip(ids, answers[::3], answers[1::3], answers[2::3], strict=True)
    for entry_id, pending, locked, found in questions:
        if pending and not locked and found:
            moving.xadd(stream, _copied(entry_id, found[0][1]))
            moving.xack(stream, group, entry_id)
    await moving.execute()


async def move_raw(scene: Scene) -> float:
    """The ceiling: commands that were packed before, and nothing is looked at."""
    with RawRedis(scene.port) as raw:
        stream, group = scene.keys.stream, scene.keys.group
        pairs = [
            pack("XADD", stream, "*", *BODY, "_original_id", one, "_retry_count", 1)
            + pack("XACK", stream, group, one)
            for one in pending_ids(raw, scene.keys, scene.owner)
        ]
        chunks = [b"".join(pairs[n : n + CHUNK]) for n in range(0, len(pairs), CHUNK)]
        began = time.perf_counter()
        raw.drive(chunks, lines=3 * CHUNK)  # an ID takes two lines, a number one
        return time.perf_counter() - began


async def _take_ids(redis: Redis, scene: Scene) -> list[bytes]:
    """Which entries they are; not part of what is measured."""
    stream, group = scene.keys.stream, scene.keys.group
    found: Any = await redis.xpending_range(stream, group, "-", "+", 1_000_000, scene.owner)
    return [one["message_id"] for one in found]


def _lock(scene: Scene, entry_id: bytes) -> bytes:
    return b"lock:{%b}:%b" % (scene.keys.tag.encode(), entry_id)


def _copied(entry_id: bytes, fields: dict[Any, Any]) -> dict[Any, Any]:
    return fields | {b"_original_id": entry_id, b"_retry_count": 1}
