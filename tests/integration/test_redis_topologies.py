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
    RedisServers,
    SentinelServers,
    ServerOptions,
    StandaloneServers,
    start_cluster,
    start_sentinel,
    start_servers,
)
from tests.redis_fixtures import NEWEST_UNLESS_FULL, RunRedis

ONCE = Retry(NoBackoff(), 0)
ODD = "a \"b\\ c'd #e"
LOCKED = ServerOptions(tls=True, tls_client_auth=True, password=ODD)


def connect(servers: RedisServers, **options: Any) -> redis.Redis:
    """A client of the master; a TLS server gets to see its certificate."""
    files = servers.tls_files
    if files is not None:
        options |= {"ssl": True, "ssl_ca_certs": str(files.ca)}
        options |= {"ssl_certfile": str(files.cert), "ssl_keyfile": str(files.key)}
    return redis.Redis(port=servers.master().port, retry=ONCE, **options)


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


def test_a_tls_server_takes_a_client_with_its_certificate(redis_tls: StandaloneServers) -> None:
    with connect(redis_tls) as client:
        assert client.ping()


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


def test_a_wrong_password_is_refused(run_redis: RunRedis) -> None:
    servers = run_redis(options=ServerOptions(password=ODD))
    with connect(servers, password="wrong") as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with connect(servers, password=ODD) as client:
        assert client.ping()


def test_an_acl_user_is_known_on_every_node(empty_cluster: ClusterServers) -> None:
    empty_cluster.acl_setuser("reader", "on", ">secret", "~*", "+xlen")
    for server in empty_cluster.servers:
        with (
            redis.Redis(port=server.port, username="reader", password="secret") as client,
            pytest.raises(redis.exceptions.NoPermissionError),
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
def test_a_failover_makes_a_replica_the_master_with_the_data(
    empty_sentinel: SentinelServers,
) -> None:
    before = empty_sentinel.master_address()
    empty_sentinel.cli("SET", "key", "value")
    after = empty_sentinel.failover()
    assert after != before
    assert empty_sentinel.url.endswith(f":{after[1]}")
    assert empty_sentinel.cli("GET", "key") == "value"


@pytest.mark.full
@pytest.mark.parametrize("version", NEWEST_UNLESS_FULL)
def test_a_killed_master_is_replaced_and_comes_back_as_a_replica(version: str) -> None:
    with start_sentinel(version) as servers:
        before, killed = servers.master_address(), servers.master()
        killed.kill()
        servers.await_failover(before)
        killed.start()
        servers.await_readiness()
        assert killed.info("replication")["role"] == "slave"


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


def test_clients_find_the_master_through_the_sentinels(empty_sentinel: SentinelServers) -> None:
    assert empty_sentinel.sentinel_master is not None
    sentinel_client: Any = redis.Sentinel  # the package does not type it
    sentinels = sentinel_client(list(empty_sentinel.sentinel_nodes))
    found = sentinels.discover_master(empty_sentinel.sentinel_master)
    assert found == empty_sentinel.master_address()


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


def test_an_abandoned_migration_leaves_the_slot_where_it_was(
    empty_cluster: ClusterServers,
) -> None:
    slot = empty_cluster.slot_of("key")
    source = empty_cluster.owner_of(slot)
    empty_cluster.begin_migration(slot, another_master(empty_cluster, slot))
    empty_cluster.abandon_migration(slot)
    assert source.cli("GET", "key") == ""
    assert empty_cluster.owner_of(slot) is source


def test_a_client_follows_the_cluster_to_each_key(empty_cluster: ClusterServers) -> None:
    with redis.RedisCluster.from_url(empty_cluster.url) as client:
        for number in range(20):
            client.set(f"key:{number}", number)
        assert client.dbsize(target_nodes=redis.RedisCluster.PRIMARIES) == 20


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
