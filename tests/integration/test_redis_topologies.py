"""Sentinel, Cluster, TLS, passwords and ACL users, on each server that can be asked for."""

from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from local_cluster.processes import wait_until
from local_cluster.redis_servers import (
    TOPOLOGIES,
    ClusterServers,
    CommandFailed,
    SentinelServers,
    ServerOptions,
    StandaloneServers,
    start_cluster,
    start_servers,
)
from tests.redis_fixtures import NEWEST_UNLESS_FULL

ONCE = Retry(NoBackoff(), 0)
ODD = "a \"b\\ c'd #e"
LOCKED = ServerOptions(tls=True, tls_client_auth=True, password=ODD)


@pytest.mark.full
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("version", NEWEST_UNLESS_FULL)
def test_every_topology_runs_on_every_version_behind_tls_and_a_password(
    version: str, topology: str
) -> None:
    with start_servers(version, topology, options=LOCKED) as servers:
        assert servers.url.startswith("rediss://127.0.0.1:")
        assert ODD not in servers.url
        assert servers.cli("XADD", "stream", "1-1", "field", "value") == "1-1"
        assert servers.cli("XLEN", "stream") == "1"
        assert servers.secret()["password"] == ODD
        assert ODD not in str(servers.describe())


# --- TLS, passwords and ACL users


def test_a_tls_server_refuses_a_client_without_one(redis_tls: StandaloneServers) -> None:
    assert redis_tls.tls_files is not None
    ca = str(redis_tls.tls_files.ca)
    with (
        redis.Redis(port=redis_tls.server.port, ssl=True, ssl_ca_certs=ca, retry=ONCE) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.ping()


def test_a_tls_server_leaves_no_plain_port_open(redis_tls: StandaloneServers) -> None:
    with (
        redis.Redis(port=redis_tls.server.port, retry=ONCE) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.ping()


def test_emptying_forgets_keys_functions_and_users(empty_redis: StandaloneServers) -> None:
    empty_redis.cli("SET", "key", "value")
    empty_redis.cli("ACL", "SETUSER", "reader", "on")
    code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"
    empty_redis.cli("FUNCTION", "LOAD", code)
    empty_redis.flush()
    assert empty_redis.cli("DBSIZE") == "0"
    assert empty_redis.cli("ACL", "USERS") == "default"
    assert empty_redis.cli("FUNCTION", "LIST") == ""


# --- Sentinel


@pytest.mark.full
def test_a_hung_master_is_replaced_and_follows_when_it_wakes(
    empty_sentinel: SentinelServers,
) -> None:
    before, hung = empty_sentinel.master_address(), empty_sentinel.master()
    hung.pause()
    empty_sentinel.await_failover(before)
    hung.resume()
    empty_sentinel.await_readiness()
    assert hung.info("replication")["role"] == "slave"


# --- Cluster


def another_master(cluster: ClusterServers, slot: int) -> Any:
    owner = cluster.owner_of(slot)
    return next(master for master in cluster.masters() if master is not owner)


@pytest.mark.full
@pytest.mark.parametrize("version", NEWEST_UNLESS_FULL)
def test_a_slot_moves_with_its_keys_step_by_step(version: str) -> None:
    with start_cluster(version) as cluster:
        slot = cluster.slot_of("{tag}")
        cluster.cli("SET", "{tag}:1", "moves first")
        cluster.cli("SET", "{tag}:2", "moves last")
        source, target = cluster.owner_of(slot), another_master(cluster, slot)

        cluster.begin_migration(slot, target)
        cluster.migrate_keys(slot, target, "{tag}:1")
        with pytest.raises(CommandFailed, match="ASK"):
            source.cli("GET", "{tag}:1")
        with pytest.raises(CommandFailed, match="TRYAGAIN"):
            source.cli("MGET", "{tag}:1", "{tag}:2")
        assert source.cli("GET", "{tag}:2") == "moves last"

        cluster.finish_migration(slot, target)
        assert cluster.owner_of(slot) is target
        assert target.cli("MGET", "{tag}:1", "{tag}:2").split("\n") == ["moves first", "moves last"]


@pytest.mark.full
@pytest.mark.parametrize("version", NEWEST_UNLESS_FULL)
def test_with_replicas_a_killed_master_of_a_cluster_is_replaced(version: str) -> None:
    with start_cluster(version, options=ServerOptions(replicas=1)) as cluster:
        cluster.cli("SET", "key", "value")
        slot = cluster.slot_of("key")
        killed = cluster.owner_of(slot)

        def is_replicated() -> bool:
            reported = killed.info("replication")
            return f"offset={reported['master_repl_offset']}," in reported.get("slave0", "")

        wait_until(is_replicated, timeout_s=60, what="the replica has the key")
        killed.kill()

        wait_until(lambda: len(cluster.masters()) == 3, timeout_s=60, what="a replica is promoted")
        cluster.await_readiness()
        assert cluster.owner_of(slot) is not killed
        assert cluster.cli("GET", "key") == "value"
