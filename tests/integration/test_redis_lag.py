"""The backlog of a group, where the server's own number is unknown or wrong."""

from local_cluster.redis_servers import StandaloneServers
from pelops.redis_core.server import Server
from pelops.redis_streams.access import UserRole, acl_rules
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.maintenance import repair_lag
from tests.integration.lag_cases import (
    KEYS,
    STREAM,
    UID,
    calls_of,
    created_in_the_middle,
    deliver_from_start,
    fill,
    look,
    set_id,
)
from tests.integration.redis_adapter import (
    connected,
    deliver,
    endpoint_of,
    provision,
)


async def test_a_group_that_is_gone_owes_nothing_that_is_known(server: Server) -> None:
    await fill(server, 10)
    await provision(server, KEYS)
    await server.execute("XGROUP", "DESTROY", STREAM, KEYS.group)
    assert (await observe_group(server, KEYS)).group is None
    await server.execute("DEL", STREAM)
    seen = await observe_group(server, KEYS)
    assert (seen.exists, seen.group) == (False, None)


async def test_many_entries_of_an_unknown_lag_are_at_least_so_many(server: Server) -> None:
    await fill(server, 5_000)
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "2000-0")
    await provision(server, KEYS)
    group = await look(server)
    assert (group.lag, group.at_least, group.is_lag_repairable) == (None, 400, False)
    assert not await repair_lag(server, KEYS, UID)


async def test_many_entries_are_exact_when_few_lie_behind_the_group(server: Server) -> None:
    await fill(server, 5_000)
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "20-0")
    group = await look(server)
    assert (group.lag, group.is_lag_repairable) == (4_980, True)


async def test_a_deep_observation_finds_a_wrong_lag_beyond_the_usual_count(
    server: Server,
) -> None:
    await fill(server, 1_000)
    await deliver_from_start(server, 700)
    await set_id(server, "700-0", "ENTRIESREAD", 100)
    assert (await look(server)).lag == 900
    group = await look(server, deep=True)
    assert (group.lag, group.is_lag_repairable) == (300, True)


async def test_a_long_stream_is_counted_within_bounds(server: Server) -> None:
    await fill(server, 200_000)
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "100000-0")
    group = await look(server)
    assert (group.lag, group.at_least) == (None, 400)
    before = await calls_of(server, "xrange")
    await look(server)
    # Each call reads a page of at most 4 entries.
    assert await calls_of(server, "xrange") - before <= 500 / 4 + 2 * 3
    await set_id(server, "100000-0", "ENTRIESREAD", 100_000)
    before = await calls_of(server, "xrange")
    assert (await look(server)).lag == 100_000
    assert await calls_of(server, "xrange") - before <= 80 / 4 + 2 * 3
    await set_id(server, "200000-0")
    before = await calls_of(server, "xrange")
    assert (await look(server)).lag == 0
    assert await calls_of(server, "xrange") == before


async def test_big_entries_end_the_count_early(server: Server) -> None:
    await fill(server, 100, body="x" * 300_000)
    await server.execute("XGROUP", "CREATE", STREAM, KEYS.group, "50-0")
    before = await calls_of(server, "xrange")
    group = await look(server)
    assert group.lag is None
    assert 1 <= group.at_least <= 4  # 1 MB of them
    assert await calls_of(server, "xrange") - before <= 8


async def test_without_xrange_the_lag_is_known_only_at_the_end(
    server: Server, empty_redis: StandaloneServers
) -> None:
    rules = acl_rules(KEYS, UserRole.OPERATOR)
    empty_redis.acl_setuser("narrow", "reset", "on", ">sesame", *rules, "-xrange")
    await fill(server, 10)
    await deliver_from_start(server, 4)
    await provision(server, KEYS)
    async with connected(endpoint_of(empty_redis, username="narrow", password="sesame")) as narrow:
        group = await look(narrow)
        assert (group.lag, group.at_least, group.pending) == (None, 0, 4)
        await deliver(server, KEYS, 10)
        assert (await look(narrow)).lag == 0


async def test_a_server_that_went_back_is_judged_by_its_own_counters(server: Server) -> None:
    """As after a failover to a replica that lagged, or from a backup."""
    await fill(server, 10)
    await created_in_the_middle(server)
    await provision(server, KEYS)
    await repair_lag(server, KEYS, UID)
    older = await server.execute("DUMP", STREAM)
    await fill(server, 5, first=11)
    await deliver(server, KEYS, 100)
    assert (await look(server)).lag == 0
    await server.execute("RESTORE", STREAM, 0, older, "REPLACE")
    seen = await observe_group(server, KEYS)
    assert seen.group is not None
    assert (seen.entries_added, seen.group.lag, seen.group.is_lag_repairable) == (10, 3, False)
