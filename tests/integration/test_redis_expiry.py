"""Keys that expire are reported by every master, also after connections, masters and slots moved.

A key is read when its time is over, since a server may remove a key that no client reads late.
"""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from local_cluster.redis_servers import (
    ClusterServers,
    RedisServers,
    SentinelServers,
    ServerOptions,
    StandaloneServers,
    start_cluster,
    start_sentinel,
)
from pelops.domain.naming import key_slot
from pelops.redis_core.masters import end_tasks
from pelops.redis_streams.recovery import keyspace_events as expiry
from pelops.redis_streams.recovery.keyspace_events import ExpiryEvents
from pelops.redis_streams.recovery.lock_lifetimes import find_existing, read_lifetimes
from tests.integration.expiring import (
    REPORTING,
    expire,
    expire_until_reported,
    listening_to,
    until,
)
from tests.integration.redis_adapter import connected, endpoint_of

CLUSTER_KEYS: Final = ("lock:a", "lock:b", "lock:c", "lock:d", "lock:e", "lock:f")


@pytest.fixture(scope="module")
def reporting_cluster() -> Iterator[ClusterServers]:
    with start_cluster("8.6", options=REPORTING) as servers:
        yield servers


@pytest.fixture(scope="module")
def reporting_sentinel() -> Iterator[SentinelServers]:
    with start_sentinel("8.6", options=REPORTING) as servers:
        yield servers


def subscribers(servers: RedisServers) -> list[str]:
    """The connections that are subscribed, by their ID, on the master."""
    lines = servers.master().cli("CLIENT", "LIST").splitlines()
    parsed = [dict(part.partition("=")[::2] for part in line.split()) for line in lines]
    return [line["id"] for line in parsed if line["psub"] != "0"]


# --- one server


async def test_lifetimes_are_those_of_keys_that_exist_and_expire(
    reporting: StandaloneServers,
) -> None:
    async with connected(endpoint_of(reporting)) as server:
        await server.execute("SET", "lifetime:short", "x", "PX", 60_000, writes=True)
        await server.execute("SET", "lifetime:long", "x", "PX", 600_000, writes=True)
        await server.execute("SET", "lifetime:endless", "x", writes=True)
        keys = [f"lifetime:{one}" for one in ("long", "none", "endless", "short")]
        long, short = await read_lifetimes(server, keys)
        assert short <= timedelta(seconds=60) < long <= timedelta(seconds=600)
        assert await read_lifetimes(server, []) == []
        assert await find_existing(server, keys) == [keys[0], *keys[2:]]


async def test_a_key_that_expires_is_reported_by_its_name(reporting: StandaloneServers) -> None:
    """C3."""
    async with listening_to(endpoint_of(reporting)) as (server, reported):
        await server.execute("SET", "deleted", "x", "PX", 60_000, writes=True)
        await server.execute("DEL", "deleted", writes=True)
        await expire(server, "lock:{a b}:é")
        await until(lambda: bool(reported.keys), "the key is reported")
        assert reported.keys == ["lock:{a b}:é"]


async def test_a_key_of_another_database_is_not_reported(reporting: StandaloneServers) -> None:
    reporting_url = f"{reporting.url}/3"
    async with listening_to(endpoint_of(reporting, url=reporting_url)) as (third, reported):
        async with connected(endpoint_of(reporting)) as first:
            await expire(first, "other")
        await expire(third, "own")
        await until(lambda: bool(reported.keys), "the key is reported")
        assert reported.keys == ["own"]


async def test_a_killed_subscription_is_made_again(reporting: StandaloneServers) -> None:
    async with listening_to(endpoint_of(reporting)) as (server, reported):
        (former,) = subscribers(reporting)
        reporting.cli("CLIENT", "KILL", "ID", former)
        await expire_until_reported(server, reported, "lock")
        assert former not in subscribers(reporting)


async def test_a_restarted_server_is_listened_to_again(reporting: StandaloneServers) -> None:
    async with listening_to(endpoint_of(reporting)) as (server, reported):
        await asyncio.to_thread(reporting.restart)
        await expire_until_reported(server, reported, "lock")


async def test_listening_ends_whatever_is_under_way(
    reporting: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LIFETIME_S", 0.01)
    async with connected(endpoint_of(reporting)) as server, asyncio.timeout(120):
        for turns in range(40):
            task = asyncio.create_task(ExpiryEvents(server, lambda _: None).run())
            for _ in range(turns):
                await asyncio.sleep(0.001)
            await end_tasks([task])
    await until(lambda: not subscribers(reporting), "nobody is subscribed")


# --- several servers


async def test_every_master_of_a_cluster_is_listened_to(reporting_cluster: ClusterServers) -> None:
    owners = {reporting_cluster.owner_of(key_slot(key)).port for key in CLUSTER_KEYS}
    assert len(owners) == 3
    async with listening_to(endpoint_of(reporting_cluster)) as (server, reported):
        await expire_until_reported(server, reported, *CLUSTER_KEYS)


async def test_a_master_of_a_cluster_that_comes_back_is_listened_to_again(
    reporting_cluster: ClusterServers,
) -> None:
    async with listening_to(endpoint_of(reporting_cluster)) as (server, reported):
        down = reporting_cluster.owner_of(key_slot(CLUSTER_KEYS[0]))
        down.stop()
        down.start()
        await asyncio.to_thread(reporting_cluster.await_readiness)
        await expire_until_reported(server, reported, *CLUSTER_KEYS)


async def test_the_replica_that_takes_over_in_a_cluster_is_listened_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiry, "LIFETIME_S", 0.5)
    options = ServerOptions(replicas=1, config=REPORTING.config)
    with start_cluster("8.6", options=options) as cluster:
        async with listening_to(endpoint_of(cluster)) as (server, reported):
            slot = key_slot("lock")
            former = cluster.owner_of(slot)
            masters = {master.port for master in cluster.masters()}
            for replica in [each for each in cluster.servers if each.port not in masters]:
                if f"master_port:{former.port}" in replica.cli("INFO", "replication"):
                    replica.cli("CLUSTER", "FAILOVER")
            await until(lambda: cluster.owner_of(slot).port != former.port, "the replica took over")
            await expire_until_reported(server, reported, "lock")


async def test_the_master_after_a_sentinel_failover_is_listened_to(
    reporting_sentinel: SentinelServers,
) -> None:
    async with listening_to(endpoint_of(reporting_sentinel)) as (server, reported):
        await expire_until_reported(server, reported, "before")
        await asyncio.to_thread(reporting_sentinel.failover)
        await expire_until_reported(server, reported, "after")
