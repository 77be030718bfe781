"""Keys that expire are told by every master, also after connections, masters and slots moved.

A key is looked at once its time is over, since a server may remove one that nobody touches late.
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
from pelops.redis_streams.recovery import lock_expiry as expiry
from pelops.redis_streams.recovery.lock_expiry import ExpiryEvents
from tests.integration.expiring import (
    TELLING,
    Told,
    expire,
    expire_until_told,
    listening_to,
    until,
)
from tests.integration.redis_door import connected, endpoint_of

CLUSTER_KEYS: Final = ("lock:a", "lock:b", "lock:c", "lock:d", "lock:e", "lock:f")


@pytest.fixture(scope="module")
def telling_cluster() -> Iterator[ClusterServers]:
    with start_cluster("8.6", options=TELLING) as servers:
        yield servers


@pytest.fixture(scope="module")
def telling_sentinel() -> Iterator[SentinelServers]:
    with start_sentinel("8.6", options=TELLING) as servers:
        yield servers


def subscribers(servers: RedisServers) -> list[str]:
    """The connections that are subscribed, by their ID, on the master."""
    lines = servers.master().cli("CLIENT", "LIST").splitlines()
    parsed = [dict(part.partition("=")[::2] for part in line.split()) for line in lines]
    return [line["id"] for line in parsed if line["psub"] != "0"]


# --- one server


async def test_lifetimes_are_those_of_keys_that_exist_and_expire(
    telling: StandaloneServers,
) -> None:
    async with connected(endpoint_of(telling)) as server:
        await server.execute("SET", "lifetime:short", "x", "PX", 60_000, writes=True)
        await server.execute("SET", "lifetime:long", "x", "PX", 600_000, writes=True)
        await server.execute("SET", "lifetime:endless", "x", writes=True)
        keys = [f"lifetime:{one}" for one in ("long", "none", "endless", "short")]
        long, short = await expiry.read_lifetimes(server, keys)
        assert short <= timedelta(seconds=60) < long <= timedelta(seconds=600)
        assert await expiry.read_lifetimes(server, []) == []


async def test_a_key_that_expires_is_told_by_its_name(telling: StandaloneServers) -> None:
    """C3."""
    async with listening_to(endpoint_of(telling)) as (server, _, told):
        await server.execute("SET", "deleted", "x", "PX", 60_000, writes=True)
        await server.execute("DEL", "deleted", writes=True)
        await expire(server, "lock:{a b}:é")
        await until(lambda: bool(told.keys), "the key is told")
        assert told.keys == ["lock:{a b}:é"]


async def test_a_key_of_another_database_is_not_told(telling: StandaloneServers) -> None:
    telling_url = f"{telling.url}/3"
    async with listening_to(endpoint_of(telling, url=telling_url)) as (third, _, told):
        async with connected(endpoint_of(telling)) as first:
            await expire(first, "other")
        await expire(third, "own")
        await until(lambda: bool(told.keys), "the key is told")
        assert told.keys == ["own"]


async def test_a_killed_subscription_is_made_again(telling: StandaloneServers) -> None:
    async with listening_to(endpoint_of(telling)) as (server, _, told):
        (former,) = subscribers(telling)
        telling.cli("CLIENT", "KILL", "ID", former)
        await expire_until_told(server, told, "lock")
        assert former not in subscribers(telling)


async def test_a_restarted_server_is_listened_to_again(telling: StandaloneServers) -> None:
    async with listening_to(endpoint_of(telling)) as (server, _, told):
        await asyncio.to_thread(telling.restart)
        await expire_until_told(server, told, "lock")


async def test_a_server_that_hangs_is_left_and_listened_to_when_it_wakes(
    telling: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "SILENCE_S", 0.2)
    monkeypatch.setattr(expiry, "ANSWER_S", 0.5)
    async with listening_to(endpoint_of(telling)) as (server, _, told):
        telling.server.pause()
        try:
            await until(lambda: not told.is_listening(), "the silence is noticed")
        finally:
            telling.server.resume()
        await expire_until_told(server, told, "lock")


async def test_a_server_with_nothing_to_tell_keeps_its_connection(
    telling: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "SILENCE_S", 0.02)
    async with listening_to(endpoint_of(telling)) as (_, _, _):
        (former,) = subscribers(telling)

        def asked() -> int:
            stats = telling.server.cli("INFO", "commandstats")
            counted = stats.partition("cmdstat_psubscribe:calls=")[2].partition(",")[0]
            return int(counted or 0)

        before = asked()
        await until(lambda: asked() > before + 3, "it is asked whether it listens")
        assert subscribers(telling) == [former]


async def test_all_who_ask_share_one_connection_which_ends_with_the_last(
    telling: StandaloneServers,
) -> None:
    async with listening_to(endpoint_of(telling)) as (server, events, told):
        other = Told()
        second = events.subscribe(server, other.hear)
        await expire(server, "one")
        await until(lambda: told.keys == other.keys == ["one"], "both are told")
        assert len(subscribers(telling)) == 1

        await second.close()
        await second.close()  # twice is well
        await expire(server, "two")
        await until(lambda: told.keys == ["one", "two"], "the first one is told")
        assert other.keys == ["one"]

        assert told.subscription is not None
        await told.subscription.close()
        await until(lambda: not subscribers(telling), "nobody is subscribed")

        third = events.subscribe(server, other.hear)
        await until(lambda: third.is_complete, "it listens anew")
        await expire(server, "three")
        await until(lambda: other.keys == ["one", "three"], "the newcomer is told")


async def test_a_listener_that_breaks_leaves_the_others_listening(
    telling: StandaloneServers,
) -> None:
    async with listening_to(endpoint_of(telling)) as (server, events, told):

        def fail(key: str) -> None:
            raise RuntimeError(key)

        assert told.subscription is not None
        broken = events.subscribe(server, fail)
        await told.subscription.close()
        again = events.subscribe(server, told.hear)
        await expire(server, "one", "two")
        await until(lambda: len(told.keys) == 2, "both keys are told")
        await broken.close()
        await again.close()


async def test_listening_ends_whatever_is_under_way(
    telling: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "SILENCE_S", 0.0)  # the subscription is repeated all the time
    async with connected(endpoint_of(telling)) as server, asyncio.timeout(120):
        for turns in range(20):
            events, told = ExpiryEvents(), Told()
            subscription = told.subscription = events.subscribe(server, told.hear)
            await until(told.is_listening, "the master tells")
            for _ in range(turns):
                await asyncio.sleep(0)
            await events.close()
            assert not subscription.is_complete
    await until(lambda: not subscribers(telling), "nobody is subscribed")


# --- several servers


async def test_every_master_of_a_cluster_is_listened_to(telling_cluster: ClusterServers) -> None:
    owners = {telling_cluster.owner_of(key_slot(key)).port for key in CLUSTER_KEYS}
    assert len(owners) == 3
    async with listening_to(endpoint_of(telling_cluster)) as (server, _, told):
        await expire_until_told(server, told, *CLUSTER_KEYS)


async def test_a_master_of_a_cluster_that_comes_back_is_listened_to_again(
    telling_cluster: ClusterServers,
) -> None:
    async with listening_to(endpoint_of(telling_cluster)) as (server, _, told):
        down = telling_cluster.owner_of(key_slot(CLUSTER_KEYS[0]))
        down.stop()
        down.start()
        await asyncio.to_thread(telling_cluster.await_readiness)
        await expire_until_told(server, told, *CLUSTER_KEYS)


async def test_the_replica_that_takes_over_in_a_cluster_is_listened_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiry, "LOOK_S", 0.5)
    options = ServerOptions(replicas=1, config=TELLING.config)
    with start_cluster("8.6", options=options) as cluster:
        async with listening_to(endpoint_of(cluster)) as (server, _, told):
            slot = key_slot("lock")
            former = cluster.owner_of(slot)
            masters = {master.port for master in cluster.masters()}
            for replica in [each for each in cluster.servers if each.port not in masters]:
                if f"master_port:{former.port}" in replica.cli("INFO", "replication"):
                    replica.cli("CLUSTER", "FAILOVER")
            await until(lambda: cluster.owner_of(slot).port != former.port, "the replica took over")
            await expire_until_told(server, told, "lock")


async def test_the_master_after_a_sentinel_failover_is_listened_to(
    telling_sentinel: SentinelServers,
) -> None:
    async with listening_to(endpoint_of(telling_sentinel)) as (server, _, told):
        await expire_until_told(server, told, "before")
        await asyncio.to_thread(telling_sentinel.failover)
        await expire_until_told(server, told, "after")
