"""Whole workers behind Sentinels, in a cluster and by TLS: nothing is lost, and they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from local_cluster.redis_servers import (
    ClusterServers,
    RedisServers,
    SentinelServers,
    ServerOptions,
    StandaloneServers,
)
from pelops.errors import RedisError
from pelops.redis_streams.access import Feature
from pelops.worker import Entry, Worker
from tests.integration.redis_adapter import endpoint_of
from tests.integration.worker_adapter import KEYS, Behind, behind, grant, worker_endpoint
from tests.redis_fixtures import RunRedis
from tests.serving_worker import ReportedEvents, serving, until


class Traffic:
    """Entries that are added and worked on all the time, by a worker that has only its rights."""

    def __init__(self, redis: Behind) -> None:
        self.redis = redis
        self.added: list[bytes] = []  # to the knowledge of the producer
        self.handled: set[bytes] = set()
        self.heard = ReportedEvents()
        self.worker: Worker
        self._ends = asyncio.Event()

    async def handle(self, entry: Entry) -> None:
        """Takes a moment, so that a fault finds entries at work."""
        await asyncio.sleep(0.02)
        self.handled.add(entry.raw_id)

    async def produce(self) -> None:
        """Add entries until `_ends` is set."""
        while not self._ends.is_set():
            try:
                self.added += await self.redis.add(3)
            except RedisError:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.01)

    async def flows(self) -> None:
        """Wait until what was added from now on is acknowledged."""
        count = len(self.added)
        await until(lambda: len(self.added) > count + 20)
        wanted = self.added[-1].decode()
        await until(lambda: wanted in self.heard.done and self.worker.is_ready)

    def end(self) -> None:
        """Let `produce` return."""
        self._ends.set()


@asynccontextmanager
async def flowing(servers: RedisServers) -> AsyncIterator[Traffic]:
    """Traffic during the block, after which nothing may be missing."""
    async with behind(servers) as redis:
        await redis.create(KEYS.stream, KEYS.retry)
        traffic = Traffic(redis)
        endpoint = worker_endpoint(servers)
        async with serving(endpoint, traffic.handle, processing_timeout_ms=5000) as served:
            traffic.worker, traffic.heard = served
            producing = asyncio.create_task(traffic.produce())
            await traffic.flows()
            yield traffic
            await traffic.flows()
            traffic.end()
            await producing
            await until(lambda: _owes_nothing(redis))
            await _check(traffic)


async def _owes_nothing(redis: Behind) -> bool:
    (group,) = await redis.run("XINFO", "GROUPS", KEYS.stream)
    found = dict(zip(group[::2], group[1::2], strict=True))
    return bool(found[b"pending"] == 0 and found[b"lag"] == 0)


async def _check(traffic: Traffic) -> None:
    """What is in the stream was handled: nothing was acknowledged without effect, or lost."""
    there = {entry[0] for entry in await traffic.redis.run("XRANGE", KEYS.stream, "-", "+")}
    assert there - traffic.handled == set()
    assert {entry_id.encode() for entry_id in traffic.heard.done} <= traffic.handled
    assert traffic.heard.letters == []
    assert await traffic.redis.letters() == []


async def test_a_failover_by_sentinels_in_mid_batch(empty_sentinel: SentinelServers) -> None:
    grant(empty_sentinel)
    async with flowing(empty_sentinel):
        former = empty_sentinel.master_address()
        # A worker that has no command under way reconnects without a refusal. What it acknowledges
        # from now on shows that it found the new master: the former one refuses writes.
        assert await asyncio.to_thread(empty_sentinel.failover) != former


async def test_a_slot_that_moves_in_mid_batch(empty_cluster: ClusterServers) -> None:
    grant(empty_cluster, features={Feature.CLUSTER})
    async with flowing(empty_cluster) as traffic:
        owner = empty_cluster.owner_of(KEYS.slot)
        to = next(one for one in empty_cluster.masters() if one.port != owner.port)
        empty_cluster.begin_migration(KEYS.slot, to)
        await asyncio.to_thread(empty_cluster.migrate_keys, KEYS.slot, to, KEYS.retry)
        await until(lambda: traffic.heard.refusals)
        await asyncio.to_thread(empty_cluster.finish_migration, KEYS.slot, to)
    assert empty_cluster.owner_of(KEYS.slot).port == to.port


async def test_a_shard_whose_master_dies_in_mid_batch(run_redis: RunRedis) -> None:
    options = ServerOptions(replicas=1, config={"cluster-node-timeout": "1000"})
    servers = cast(ClusterServers, run_redis("8.6", "cluster", options))
    grant(servers, features={Feature.CLUSTER})
    async with flowing(servers) as traffic:
        owner = servers.owner_of(KEYS.slot)
        await asyncio.to_thread(owner.kill)
        await until(lambda: traffic.heard.refusals)
        await until(lambda: traffic.worker.is_ready)
        assert servers.owner_of(KEYS.slot).port != owner.port


async def test_connections_by_tls_with_a_certificate_that_are_cut_in_mid_batch(
    redis_tls: StandaloneServers,
) -> None:
    redis_tls.flush()
    grant(redis_tls)
    endpoint = endpoint_of(redis_tls)
    assert endpoint.tls
    async with flowing(redis_tls) as traffic:
        for _ in range(3):
            for line in redis_tls.cli("CLIENT", "LIST").splitlines():
                if "user=a-worker" in line:
                    redis_tls.cli("CLIENT", "KILL", "ID", line.split()[0].removeprefix("id="))
            await traffic.flows()
        assert traffic.heard.refusals
