"""A server that lost count of the backlog of a group is put right, and nothing else changes."""

import asyncio

import pytest

from local_cluster.redis_servers import ClusterServers, SentinelServers, StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.stream_observation import StreamObservation
from pelops.errors import NoSuchGroup, NotOurs, PermissionDenied, WrongType
from pelops.redis_core.server import Server
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from pelops.redis_streams.group.group_observation import (
    ObservationRequest,
    observe_group,
    observe_groups,
)
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import repair_lag
from tests.integration.lag_cases import (
    CASES,
    KEYS,
    STREAM,
    UID,
    Case,
    created_in_the_middle,
    deleted_ahead,
    fill,
    look,
    reported,
)
from tests.integration.redis_adapter import (
    add,
    an_owner,
    connected,
    deliver,
    endpoint_of,
    provision,
    writes_so_far,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_lag_is_exact_and_a_repair_makes_the_server_right(
    server: Server, case: Case, empty_redis: StandaloneServers
) -> None:
    await fill(server, 10)
    await case(server)
    await provision(server, KEYS)
    owed, can_be_right = CASES[case]
    before = await look(server)
    assert (before.lag, before.at_least) == (owed, owed)
    pending = await server.execute("XPENDING", STREAM, KEYS.group, "-", "+", 100)
    assert await repair_lag(server, KEYS, UID) == before.is_lag_repairable
    if can_be_right:
        assert await reported(server) == owed
    after = await look(server)
    assert not after.is_lag_repairable
    assert (after.lag, after.last_delivered_id) == (before.lag, before.last_delivered_id)
    again = await server.execute("XPENDING", STREAM, KEYS.group, "-", "+", 100)
    assert [each[:2] + each[3:] for each in again] == [each[:2] + each[3:] for each in pending]
    writes = writes_so_far(empty_redis)
    assert not await repair_lag(server, KEYS, UID)
    assert writes_so_far(empty_redis) == writes


async def test_a_repaired_group_started_at_the_end_has_a_known_lag(
    server: Server,
) -> None:
    await fill(server, 10)
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "$")
    await provision(server, KEYS)
    assert await repair_lag(server, KEYS, UID)
    await fill(server, 3, first=11)
    assert await reported(server) == 3


async def test_a_lag_becomes_repairable_when_the_group_has_passed_what_was_deleted(
    server: Server,
) -> None:
    await fill(server, 10)
    await deleted_ahead(server)
    await provision(server, KEYS)
    assert not await repair_lag(server, KEYS, UID)
    await deliver(server, KEYS, 3)  # 5, 7 and 9
    await repair_lag(server, KEYS, UID)
    assert await reported(server) == 1


async def test_a_repair_is_the_right_of_the_owner_alone(server: Server) -> None:
    await fill(server, 10)
    await created_in_the_middle(server)
    with pytest.raises(NotOurs):
        await repair_lag(server, KEYS, UID)
    await provision(server, KEYS)
    with pytest.raises(NotOurs):
        await repair_lag(server, KEYS, "uid-2")
    assert (await look(server)).is_lag_repairable
    await server.execute("XGROUP", "DESTROY", STREAM, KEYS.group)
    with pytest.raises(NoSuchGroup):
        await repair_lag(server, KEYS, UID)
    await server.execute("DEL", STREAM)
    with pytest.raises(NoSuchGroup):
        await repair_lag(server, KEYS, UID)
    await server.execute("SET", STREAM, "x")
    with pytest.raises(WrongType):
        await repair_lag(server, KEYS, UID)


async def test_the_retry_stream_is_counted_and_repaired_too(server: Server) -> None:
    await provision(server, KEYS)
    for number in (1, 2, 3):
        await add(server, KEYS.retry, f"{number}-0")
    await server.execute("XGROUP", "CREATE", KEYS.retry, KEYS.group, "2-0")
    retry = (await observe_group(server, KEYS, with_retry=True)).retry
    assert retry is not None
    assert (retry.lag, retry.at_least, retry.is_lag_repairable) == (1, 1, True)
    assert await repair_lag(server, KEYS, UID, of_retry=True)
    retry = (await observe_group(server, KEYS, with_retry=True)).retry
    assert retry is not None
    assert not retry.is_lag_repairable


async def test_what_a_repair_lacks_is_named(server: Server, empty_redis: StandaloneServers) -> None:
    await fill(server, 10)
    await created_in_the_middle(server)
    await provision(server, KEYS)
    rules = acl_rules(KEYS, UserRole.OPERATOR, {Feature.SCALING})
    for word in ("xgroup|setid", "xrange", "xinfo|stream", "hmget"):
        allowed = [rule for rule in rules if rule != f"+{word}"]
        empty_redis.acl_setuser("narrow", "reset", "on", ">sesame", *allowed)
        writes = writes_so_far(empty_redis)
        endpoint = endpoint_of(empty_redis, username="narrow", password="sesame")
        async with connected(endpoint) as narrow:
            with pytest.raises(PermissionDenied) as denied:
                await repair_lag(narrow, KEYS, UID)
        assert denied.value.command == word
        assert writes_so_far(empty_redis) == writes


async def test_a_repair_outlives_a_failover(empty_sentinel: SentinelServers) -> None:
    async with connected(endpoint_of(empty_sentinel)) as server:
        await fill(server, 10)
        await created_in_the_middle(server)
        await provision(server, KEYS)
        assert await repair_lag(server, KEYS, UID)
        await server.execute("WAIT", 2, 5_000)
        await asyncio.to_thread(empty_sentinel.failover)
        assert await reported(server) == 3
        assert not (await look(server)).is_lag_repairable


async def test_groups_of_all_masters_of_a_cluster_are_counted_and_repaired(
    empty_cluster: ClusterServers,
) -> None:
    groups = [derive_keys(f"stream-{number}", "g") for number in range(9)]
    assert len({empty_cluster.owner_of(keys.slot).port for keys in groups}) == 3
    looks = [ObservationRequest(keys, with_retry=True) for keys in groups]
    async with connected(endpoint_of(empty_cluster)) as server:
        for keys in groups:
            for number in (1, 2, 3, 4):
                await add(server, keys.stream, f"{number}-0")
            await server.execute("XGROUP", "CREATE", keys.stream, "g", "2-0", key=keys.stream)
            await provision_group(
                server, keys, start=EntryId.MIN, owner=an_owner(), with_retry=True
            )
        for is_repairable in (True, False):
            for one, seen in (await observe_groups(server, looks)).items():
                assert isinstance(seen, StreamObservation)
                assert seen.group is not None
                assert seen.retry is not None
                assert (seen.group.lag, seen.retry.lag) == (2, 0)
                assert seen.group.is_lag_repairable == is_repairable
                assert await repair_lag(server, one.keys, UID) == is_repairable
