"""Reaching servers: detection, credentials, TLS, Sentinel, proxies, and what a failure leaves."""

import asyncio
from datetime import timedelta

import pytest

from local_cluster.redis_servers import ServerOptions, StandaloneServers
from pelops.domain.endpoint import build_endpoint
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.errors import (
    AuthenticationFailed,
    InvalidSpec,
    OutcomeUnknown,
    RedisUnavailable,
    UnsupportedServer,
)
from pelops.redis_core import transport
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Flavour, Topology
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import ProvisionVerdict, provision_group
from tests.integration.redis_adapter import an_owner, connected, endpoint_of
from tests.integration.redis_proxy import proxied
from tests.redis_fixtures import RunRedis

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()


async def test_a_server_says_what_it_is(any_redis: StandaloneServers) -> None:
    async with connected(endpoint_of(any_redis)) as server:
        assert server.kind.topology == Topology.STANDALONE
        assert server.kind.flavour == Flavour(any_redis.flavour)
        assert server.kind.version is not None
        assert ".".join(map(str, server.kind.version)) == any_redis.version
        assert not server.kind.evicts_any_key


async def test_eviction_of_any_key_is_seen(run_redis: RunRedis) -> None:
    servers = run_redis(options=ServerOptions(config={"maxmemory-policy": "allkeys-lru"}))
    async with connected(endpoint_of(servers)) as server:
        assert server.kind.evicts_any_key


async def test_another_database_is_another_place(empty_redis_86: StandaloneServers) -> None:
    endpoint = build_endpoint(url=f"{empty_redis_86.url}/3")
    async with connected(endpoint) as server:
        await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
        assert (await observe_group(server, KEYS)).is_provisioned
    async with connected(endpoint_of(empty_redis_86)) as server:
        assert not (await observe_group(server, KEYS)).exists


async def test_a_database_that_is_not_there_is_the_users_to_change(
    redis_86: StandaloneServers,
) -> None:
    with pytest.raises(InvalidSpec, match="database number in the Redis URL does not exist"):
        async with connected(build_endpoint(url=f"{redis_86.url}/9999")):
            pass


async def test_a_server_that_is_down_is_unavailable_and_found_again(run_redis: RunRedis) -> None:
    servers = run_redis()
    servers.master().stop()
    pool = ServerPool()
    endpoint = endpoint_of(servers)
    try:
        with pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1"):
            await pool.server(endpoint)
        servers.master().start()
        server = await pool.server(endpoint)
        assert not (await observe_group(server, KEYS)).exists
        servers.master().restart()
        assert not (await observe_group(server, KEYS)).exists  # without a restart of the operator
        servers.master().kill()
        with pytest.raises(RedisUnavailable):
            await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
    finally:
        await pool.close()


async def test_all_who_wait_for_a_dead_server_learn_it_together(
    run_redis: RunRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_s = 2.0
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", silent_s)
    servers = run_redis(options=ServerOptions(password="sesame"))
    async with connected(endpoint_of(servers)) as server:
        servers.master().pause()
        try:
            began = asyncio.get_running_loop().time()
            looks = (observe_group(server, KEYS) for _ in range(300))
            outcomes = await asyncio.gather(*looks, return_exceptions=True)
            took = asyncio.get_running_loop().time() - began
        finally:
            servers.master().resume()
        assert {type(outcome) for outcome in outcomes} == {RedisUnavailable}
        assert took < silent_s * 300 / transport.CONNECTIONS_PER_NODE / 2
        assert not (await observe_group(server, KEYS)).exists


async def test_a_name_that_does_not_resolve_is_unavailable() -> None:
    with pytest.raises(RedisUnavailable):
        async with connected(build_endpoint(url="redis://no-such-host.invalid")):
            pass


async def test_those_who_name_one_endpoint_share_a_server(redis_86: StandaloneServers) -> None:
    pool = ServerPool()
    try:
        endpoint = endpoint_of(redis_86)
        servers = await asyncio.gather(*(pool.server(endpoint) for _ in range(20)))
        assert len(set(map(id, servers))) == 1
        other = build_endpoint(url=f"{redis_86.url}/1")
        assert await pool.server(other) is not servers[0]
    finally:
        await pool.close()


async def test_each_call_of_a_script_is_reported_with_its_outcome(
    redis_86: StandaloneServers,
) -> None:
    calls: list[tuple[str, str, float]] = []
    pool = ServerPool(lambda *call: calls.append(call))
    try:
        server = await pool.server(endpoint_of(redis_86))
        await observe_group(server, KEYS)
        await observe_group(server.dry, KEYS)
    finally:
        await pool.close()
    assert {outcome for _, outcome, _ in calls} == {"ok"}
    assert len(calls) == 2
    assert all(script and seconds > 0 for script, _, seconds in calls)


async def test_an_unused_server_is_disconnected(redis_86: StandaloneServers) -> None:
    pool = ServerPool()
    endpoint = endpoint_of(redis_86)
    try:
        first = await pool.server(endpoint)
        assert await pool.close_unused(timedelta(hours=1)) == 0
        assert await pool.server(endpoint) is first
        assert await pool.close_unused(timedelta(seconds=-1)) == 1
        assert await pool.server(endpoint) is not first
    finally:
        await pool.close()


async def test_a_caller_who_gives_up_leaves_the_others_their_server(
    redis_86: StandaloneServers,
) -> None:
    pool = ServerPool()
    endpoint = endpoint_of(redis_86)
    try:
        impatient = asyncio.create_task(pool.server(endpoint))
        patient = asyncio.create_task(pool.server(endpoint))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient is await pool.server(endpoint)
    finally:
        await pool.close()


async def test_many_at_once_share_a_bounded_number_of_connections(
    redis_86: StandaloneServers,
) -> None:
    async with connected(endpoint_of(redis_86)) as server:
        before = int(redis_86.master().info("clients")["connected_clients"])
        await asyncio.gather(*(observe_group(server, KEYS) for _ in range(300)))
        after = int(redis_86.master().info("clients")["connected_clients"])
    assert after - before <= transport.CONNECTIONS_PER_NODE


async def test_a_password_is_asked_for_and_checked(run_redis: RunRedis) -> None:
    servers = run_redis(options=ServerOptions(password="sesame"))
    async with connected(endpoint_of(servers)) as server:
        assert not (await observe_group(server, KEYS)).exists
    with pytest.raises(AuthenticationFailed, match="rejects the username or password"):
        async with connected(endpoint_of(servers, password="wrong")):
            pass
    with pytest.raises(AuthenticationFailed, match="asks for a password"):
        async with connected(build_endpoint(url=servers.url)):
            pass


async def test_a_password_for_a_server_that_has_none_is_refused(
    redis_86: StandaloneServers,
) -> None:
    with pytest.raises(AuthenticationFailed):
        async with connected(endpoint_of(redis_86, username="nobody", password="x")):
            pass


async def test_a_proxy_without_cluster_commands_is_used_as_it_is(
    empty_redis_86: StandaloneServers,
) -> None:
    refused = ("CLUSTER", "INFO", "COMMAND", "CLIENT", "HELLO")
    async with proxied(empty_redis_86.master().port, refused=refused) as proxy:
        endpoint = build_endpoint(url=f"redis://127.0.0.1:{proxy.port}")
        async with connected(endpoint) as server:
            assert server.kind.topology == Topology.STANDALONE
            assert server.kind.flavour == Flavour.UNKNOWN
            outcome = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
            assert outcome.verdict == ProvisionVerdict.CREATED
            assert (await observe_group(server, KEYS)).is_provisioned


async def test_a_server_without_scripts_is_unsupported(redis_86: StandaloneServers) -> None:
    async with (
        proxied(redis_86.master().port, refused=("EVALSHA",)) as proxy,
        connected(build_endpoint(url=f"redis://127.0.0.1:{proxy.port}")) as server,
    ):
        with pytest.raises(UnsupportedServer, match="EVALSHA"):
            await observe_group(server, KEYS)


async def test_a_write_whose_answer_is_lost_happened_once_and_repeats_safely(
    empty_redis_86: StandaloneServers,
) -> None:
    async with (
        proxied(empty_redis_86.master().port) as proxy,
        connected(build_endpoint(url=f"redis://127.0.0.1:{proxy.port}")) as server,
    ):
        proxy.lose_answers_to = {"EVAL", "EVALSHA"}
        await load_scripts(empty_redis_86)
        proxy.seen.clear()
        with pytest.raises(OutcomeUnknown):
            await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
        assert proxy.seen == ["EVALSHA"]  # the client has not sent it again on its own
        with pytest.raises(RedisUnavailable):
            await observe_group(server, KEYS)
        proxy.lose_answers_to = set()
        again = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
    assert again.verdict == ProvisionVerdict.SETTLED


async def load_scripts(servers: StandaloneServers) -> None:
    async with connected(endpoint_of(servers)) as server:
        other = derive_keys("other", "g")
        await provision_group(server, other, start=EntryId.MIN, owner=OWNER)
        await observe_group(server, other)
