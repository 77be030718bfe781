"""Redis goes and comes back, loses its data, fails over: resources recover without a restart."""

from __future__ import annotations

from local_cluster.processes import wait_until
from local_cluster.redis_servers import ClusterServers, RedisServers, SentinelServers, ServerOptions
from pelops.domain.naming import derive_keys, key_slot
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    a_spec,
    acts_of,
    await_observed,
    get,
    group_of,
    secret,
)
from tests.operators import Operators, Resources
from tests.redis_fixtures import RunRedis


def test_a_group_is_made_as_soon_as_redis_answers(
    resources: Resources, operator: Operators, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    url = servers.url
    servers.servers[0].kill()
    resources.apply(NAME, a_spec(url, stream))
    unreachable = resources.await_condition(NAME, reason="RedisUnreachable")
    assert url.removeprefix("redis://") in unreachable["message"]
    waiting = resources.condition(NAME, "WorkloadReady")
    assert waiting["reason"] == "WaitingForGroup"
    servers.servers[0].start()
    resources.await_condition(NAME, reason="Ready")
    assert all(process.is_alive() for process in operator.processes)


def test_a_redis_that_hangs_is_reported_and_left_when_it_answers_again(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    resources.apply(NAME, a_spec(servers.url, stream))
    resources.await_condition(NAME, reason="Ready")
    servers.servers[0].pause()
    resources.await_condition(NAME, reason="RedisUnreachable")
    servers.servers[0].resume()
    resources.await_condition(NAME, reason="Ready")


def test_after_redis_returns_empty_the_group_is_recreated_at_the_beginning(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    resources.apply(NAME, a_spec(servers.url, stream, startFrom="End"))
    resources.await_condition(NAME, reason="Ready")
    servers.servers[0].kill()
    resources.await_condition(NAME, reason="RedisUnreachable")
    servers.servers[0].start()
    servers.cli("XADD", stream, "5-0", "sku", "A")
    resources.await_condition(NAME, reason="Ready")
    _await_group_at(servers, stream, "0-0")
    assert _last_event(servers, stream) == ("group-created", "0-0")


def test_a_destroyed_group_is_recreated_at_its_position(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    state = _declare_at_the_end(resources, redis_86, stream)
    wait_until(
        lambda: redis_86.cli("HGET", state, "seen:last_delivered") == "5-0",
        timeout_s=WAIT_S,
        what="the position to be remembered",
    )
    redis_86.cli("XGROUP", "DESTROY", stream, NAME)
    wait_until(lambda: group_of(redis_86, stream, NAME), timeout_s=WAIT_S, what="the group")
    assert _last_event(redis_86, stream) == ("group-created", "5-0")


def test_a_group_destroyed_with_its_state_is_recreated_at_the_beginning(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    state = _declare_at_the_end(resources, redis_86, stream)
    # Both at once: the operator would remember the position again.
    destroy = "redis.call('DEL', KEYS[2]) return redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1])"
    redis_86.cli("EVAL", destroy, "2", stream, state, NAME)
    _await_group_at(redis_86, stream, "0-0")
    assert _last_event(redis_86, stream) == ("group-created", "0-0")


def _declare_at_the_end(resources: Resources, servers: RedisServers, stream: str) -> str:
    """A group at 5-0, the end of its stream; the name of its state."""
    servers.cli("XADD", stream, "5-0", "sku", "A")
    resources.apply(NAME, a_spec(servers.url, stream, startFrom="End"))
    resources.await_condition(NAME, reason="Ready")
    assert group_of(servers, stream, NAME)["last-delivered-id"] == "5-0"
    return derive_keys(stream, NAME).state


def test_deleted_keys_of_the_group_are_recreated(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    keys = derive_keys(stream, NAME)
    redis_86.cli("DEL", keys.dead_letter, keys.ledger, keys.state)
    wait_until(
        lambda: redis_86.cli("EXISTS", keys.dead_letter, keys.ledger, keys.state) == "3",
        timeout_s=WAIT_S,
        what="the keys",
    )
    assert resources.condition(NAME)["reason"] == "Ready"


def test_a_sentinel_failover_is_followed(
    resources: Resources, empty_sentinel: SentinelServers, stream: str
) -> None:
    servers = empty_sentinel
    nodes = [f"{host}:{port}" for host, port in servers.sentinel_nodes]
    redis = {"sentinel": {"masterName": servers.sentinel_master, "nodes": nodes}}
    resources.apply(NAME, a_spec("", stream, redis=redis))
    resources.await_condition(NAME, reason="Ready")
    assert _summary(resources) == f"{servers.version} Sentinel"
    servers.failover()
    servers.cli("XGROUP", "DESTROY", stream, NAME)
    _await_group_at(servers, stream, "0-0")
    resources.await_condition(NAME, reason="Ready")


def test_a_group_in_a_cluster_lives_in_one_slot(
    resources: Resources, empty_cluster: ClusterServers, stream: str
) -> None:
    for name, chosen in {
        "plain": stream,
        "tagged": f"{{{stream}}}:b",
        "odd": f"{stream}}}",
    }.items():
        resources.apply(name, a_spec(empty_cluster.url, chosen))
        resources.await_condition(name, reason="Ready")
        keys = derive_keys(chosen, name)
        assert empty_cluster.slot_of(keys.dead_letter) == key_slot(chosen)
        assert empty_cluster.slot_of(keys.ledger) == empty_cluster.slot_of(chosen)
        assert empty_cluster.cli("-c", "TYPE", keys.dead_letter) == "stream"
        assert _summary(resources, name) == f"{empty_cluster.version} Cluster"


def test_a_changed_address_is_followed(
    resources: Resources, run_redis: RunRedis, redis_86: RedisServers, stream: str
) -> None:
    other = run_redis(options=ServerOptions(password="another"))
    resources.apply_raw(secret("redis", url=redis_86.url))
    resources.apply(NAME, a_spec("", stream, redis={"secretRef": {"name": "redis"}}))
    resources.await_condition(NAME, reason="Ready")
    resources.apply_raw(secret("other", url=other.url, password="another"))
    resources.apply(NAME, a_spec("", stream, redis={"secretRef": {"name": "other"}}))
    wait_until(
        lambda: other.cli("EXISTS", stream) == "1", timeout_s=WAIT_S, what="the group's new home"
    )
    await_observed(resources)
    resources.await_condition(NAME, reason="Ready")


def _summary(resources: Resources, name: str = NAME) -> str:
    return str(get(resources, "scg", name)["status"]["summary"]["redis"])


def _await_group_at(servers: RedisServers, stream: str, position: str) -> None:
    def is_there() -> bool:
        exists = servers.cli("EXISTS", stream) == "1"
        found = group_of(servers, stream, NAME) if exists else {}
        return found.get("last-delivered-id") == position

    wait_until(is_there, timeout_s=WAIT_S, what=f"a group at {position}", every_s=0.1)


def _last_event(servers: RedisServers, stream: str) -> tuple[str, str]:
    event = acts_of(servers, derive_keys(stream, NAME).ledger)[-1]
    return event["kind"], event["position"]
