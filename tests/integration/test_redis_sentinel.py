"""Sentinel: the master is found, a failover is followed, and mistakes are explained."""

import asyncio

import pytest

from local_cluster.processes import free_port, wait_until
from local_cluster.redis_servers import SentinelServers, ServerOptions
from pelops.domain.endpoint import build_endpoint
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.errors import (
    InvalidSpec,
    RedisUnavailable,
)
from pelops.redis_core.server import Topology
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import ProvisionVerdict, provision_group
from tests.fake_sentinel import fake_sentinel
from tests.integration.redis_adapter import an_owner, connected, endpoint_of
from tests.redis_fixtures import RunRedis

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()


async def test_a_sentinel_failover_is_followed(empty_sentinel: SentinelServers) -> None:
    async with connected(endpoint_of(empty_sentinel)) as server:
        assert server.kind.topology == Topology.SENTINEL
        await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
        await asyncio.to_thread(empty_sentinel.failover)
        again = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
        assert again.verdict == ProvisionVerdict.SETTLED
        port = empty_sentinel.master().port
        await server.execute("SET", "{orders:events}:seen", "x", writes=True)
        assert empty_sentinel.cli("GET", "{orders:events}:seen", port=port) == "x"


@pytest.mark.full
async def test_a_failover_that_a_sentinel_gave_up_is_asked_for_again(
    empty_sentinel: SentinelServers,
) -> None:
    before = empty_sentinel.master_address()
    replicas = [one for one in empty_sentinel.servers if one.port != before[1]]
    for replica in replicas:
        replica.cli("ACL", "SETUSER", "default", "-slaveof", "-replicaof")
    failover = asyncio.create_task(asyncio.to_thread(empty_sentinel.failover))
    try:
        for is_under_way in (True, False):
            await asyncio.to_thread(_await_failover_under_way, empty_sentinel, is_under_way)
    finally:
        for replica in replicas:
            replica.cli("ACL", "SETUSER", "default", "+slaveof", "+replicaof")
    assert await failover != before


def _await_failover_under_way(servers: SentinelServers, wanted: bool) -> None:
    def is_as_wanted() -> bool:
        flags = servers.sentinels[0].cli("SENTINEL", "MASTER", servers.sentinel_master or "")
        return ("failover_in_progress" in flags) == wanted

    wait_until(is_as_wanted, timeout_s=60, what=f"failover under way: {wanted}")


async def test_a_sentinel_that_is_down_is_passed_over_and_others_are_learned(
    empty_sentinel: SentinelServers,
) -> None:
    known, *others = empty_sentinel.sentinels
    dead = free_port()
    endpoint = build_endpoint(
        sentinel_master=empty_sentinel.sentinel_master,
        sentinel_nodes=[f"127.0.0.1:{dead}", f"127.0.0.1:{known.port}"],
    )
    async with connected(endpoint) as server:
        known.stop()
        master = empty_sentinel.master_address()[1]
        empty_sentinel.server_at(master).restart()  # so that the adapter has to ask again
        try:
            assert others[0].is_alive()
            assert (await observe_group(server, KEYS)).server_time  # it answers
        finally:
            known.start()


async def test_a_master_that_no_sentinel_knows_is_unavailable(
    redis_sentinel: SentinelServers,
) -> None:
    nodes = [f"{host}:{port}" for host, port in redis_sentinel.sentinel_nodes]
    endpoint = build_endpoint(sentinel_master="other", sentinel_nodes=nodes)
    with pytest.raises(
        RedisUnavailable, match="no Sentinel returned the address of the master other"
    ):
        async with connected(endpoint):
            pass


async def test_a_master_that_is_none_yet_is_asked_for_again(
    redis_sentinel: SentinelServers,
) -> None:
    master = redis_sentinel.master_address()[1]
    replica = next(one.port for one in redis_sentinel.servers if one.port != master)
    with fake_sentinel(replica, master) as sentinel:
        endpoint = build_endpoint(sentinel_master="m", sentinel_nodes=[sentinel.node])
        with pytest.raises(RedisUnavailable, match="not the master yet"):
            async with connected(endpoint):
                pass
        async with connected(endpoint) as server:
            assert b"role:master" in await server.execute("INFO", "replication")


async def test_the_address_of_a_sentinel_is_no_redis_url(redis_sentinel: SentinelServers) -> None:
    host, port = redis_sentinel.sentinel_nodes[0]
    with pytest.raises(InvalidSpec, match=r"spec\.redis\.sentinel"):
        async with connected(build_endpoint(url=f"redis://{host}:{port}")):
            pass


async def test_a_replica_refuses_writes_and_says_what_to_do(
    empty_sentinel: SentinelServers,
) -> None:
    master = empty_sentinel.master_address()[1]
    replica = next(server for server in empty_sentinel.servers if server.port != master)
    async with connected(build_endpoint(url=f"redis://127.0.0.1:{replica.port}")) as server:
        with pytest.raises(RedisUnavailable, match="read-only replica"):
            await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)


async def test_sentinels_that_ask_for_no_password_stand_before_servers_that_do(
    run_redis: RunRedis,
) -> None:
    servers = run_redis(topology="sentinel", options=ServerOptions(password="sesame"))
    async with connected(endpoint_of(servers)) as server:
        assert not (await observe_group(server, KEYS)).exists


async def test_a_sentinel_that_requires_a_password_gets_that_of_the_servers(
    run_redis: RunRedis,
) -> None:
    servers = run_redis(topology="sentinel", options=ServerOptions(password="sesame"))
    endpoint = endpoint_of(servers)
    for sentinel in servers.sentinels:
        sentinel.cli("ACL", "SETUSER", "default", "resetpass", ">sesame")
    async with connected(endpoint) as server:
        assert not (await observe_group(server, KEYS)).exists
