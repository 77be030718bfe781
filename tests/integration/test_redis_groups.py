"""Provisioning, observing, releasing and destroying groups on real servers of each version."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import END_OF_STREAM, EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind, parse_ledger_event
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.domain.ownership import HOLD
from pelops.errors import OutcomeUnknown, RedisUnavailable, WrongType
from pelops.redis_streams import transport
from pelops.redis_streams.groups import (
    DestroyVerdict,
    ProvisionVerdict,
    destroy_group,
    provision_group,
    release_group,
)
from pelops.redis_streams.observing import observe_group, observe_groups
from pelops.redis_streams.server import Server
from tests.integration.redis_door import an_owner, connected, endpoint_of, writes_so_far

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()


@pytest.fixture
async def server(empty_redis: StandaloneServers) -> AsyncIterator[Server]:
    async with connected(endpoint_of(empty_redis)) as connection:
        yield connection


async def provision(server: Server, keys: GroupKeys = KEYS) -> ProvisionVerdict:
    return (await provision_group(server, keys, start=EntryId.MIN, owner=OWNER)).verdict


async def add(server: Server, stream: str, entry_id: str = "*") -> EntryId:
    return parse_entry_id(await server.execute("XADD", stream, entry_id, "f", "v", key=stream))


async def deliver(server: Server, count: int, consumer: str = "worker") -> None:
    group = ("GROUP", KEYS.group, consumer, "COUNT", count)
    await server.execute("XREADGROUP", *group, "STREAMS", KEYS.stream, ">", key=KEYS.stream)


async def kinds_in_ledger(server: Server) -> list[str]:
    entries = await server.execute("XRANGE", KEYS.ledger, "-", "+", key=KEYS.ledger)
    events = [
        parse_ledger_event(
            parse_entry_id(entry_id), dict(zip(pairs[::2], pairs[1::2], strict=True))
        )
        for entry_id, pairs in entries
    ]
    return [event.kind for event in events]


async def test_what_is_missing_is_a_fact_and_not_an_error(server: Server) -> None:
    seen = await observe_group(server, KEYS)
    assert (seen.exists, seen.group, seen.hold, seen.is_provisioned) == (False, None, None, False)
    assert (seen.length, seen.last_generated_id, seen.entries_added) == (0, EntryId.MIN, None)


async def test_a_missing_group_of_a_stream_is_a_fact(server: Server) -> None:
    last = await add(server, KEYS.stream)
    seen = await observe_group(server, KEYS)
    assert (seen.exists, seen.length, seen.first_id, seen.last_generated_id) == (
        True,
        1,
        last,
        last,
    )
    assert (seen.groups, seen.group) == (0, None)


async def test_provisioning_creates_all_that_the_group_needs(server: Server) -> None:
    assert await provision(server) == ProvisionVerdict.CREATED
    seen = await observe_group(server, KEYS)
    assert seen.is_provisioned
    assert (seen.length, seen.dead_letters) == (0, 0)
    assert seen.hold is not None
    assert seen.hold.owner == OWNER
    assert timedelta() < seen.hold.held_until - seen.server_time <= HOLD
    assert await kinds_in_ledger(server) == [LedgerKind.GROUP_CREATED]


async def test_a_settled_group_is_not_written_to(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server)
    before = writes_so_far(empty_redis)
    assert await provision(server) == ProvisionVerdict.SETTLED
    assert writes_so_far(empty_redis) == before


async def test_a_hold_that_is_a_third_used_up_is_renewed(server: Server) -> None:
    short = timedelta(minutes=1)
    first = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, hold=short)
    again = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, hold=short * 2)
    assert first.hold is not None
    assert again.hold is not None
    assert again.verdict == ProvisionVerdict.SETTLED
    assert again.hold.held_until > first.hold.held_until


async def test_an_existing_group_is_adopted_untouched(server: Server) -> None:
    for _ in range(5):
        await add(server, KEYS.stream)
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "0")
    await deliver(server, 2)
    before = (await observe_group(server, KEYS)).group
    outcome = await provision_group(server, KEYS, start=END_OF_STREAM, owner=OWNER)
    assert outcome.verdict == ProvisionVerdict.ADOPTED
    assert (await observe_group(server, KEYS)).group == before
    assert await kinds_in_ledger(server) == [LedgerKind.GROUP_ADOPTED]


@pytest.mark.parametrize(("start", "lag"), [(EntryId.MIN, 3), (END_OF_STREAM, 0)])
async def test_a_new_group_begins_where_it_was_asked_to(
    server: Server, start: EntryId, lag: int
) -> None:
    for _ in range(3):
        await add(server, KEYS.stream)
    await provision_group(server, KEYS, start=start, owner=OWNER)
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert group.lag == lag


async def test_a_new_group_may_begin_after_an_entry(server: Server) -> None:
    await add(server, KEYS.stream, "5-1")
    await add(server, KEYS.stream, "7-0")
    await provision_group(server, KEYS, start=EntryId(5, 1), owner=OWNER)
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert group.last_delivered_id == EntryId(5, 1)


async def test_a_group_that_was_lost_skips_nothing_when_it_is_created_again(
    server: Server,
) -> None:
    await provision_group(server, KEYS, start=END_OF_STREAM, owner=OWNER)
    await add(server, KEYS.stream)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    again = await provision_group(server, KEYS, start=END_OF_STREAM, owner=OWNER)
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert (again.verdict, group.lag) == (ProvisionVerdict.CREATED, 1)


async def test_streams_that_were_created_empty_take_any_later_entry(server: Server) -> None:
    await provision(server)
    await add(server, KEYS.dead_letter, "0-2")
    first, second = await add(server, KEYS.dead_letter), await add(server, KEYS.dead_letter)
    assert EntryId(0, 2) < first < second
    assert (await observe_group(server, KEYS)).dead_letters == 3


async def test_an_existing_dead_letter_stream_is_kept(server: Server) -> None:
    letter = await add(server, KEYS.dead_letter)
    await provision(server)
    entries = await server.execute("XRANGE", KEYS.dead_letter, "-", "+")
    assert [entry_id for entry_id, _ in entries] == [str(letter).encode()]


@pytest.mark.parametrize("which", ["stream", "dead_letter", "ledger", "state"])
async def test_a_key_of_another_type_stops_everything_before_a_write(
    server: Server, empty_redis: StandaloneServers, which: str
) -> None:
    key = getattr(KEYS, which)
    await server.execute("SET", key, "x", key=key)
    before = writes_so_far(empty_redis)
    for attempt in (provision(server), observe_group(server, KEYS)):
        with pytest.raises(WrongType, match="holds a string") as refused:
            await attempt
        assert (refused.value.key, refused.value.found) == (key, "string")
    assert writes_so_far(empty_redis) == before


async def test_the_older_of_two_resources_acts_and_the_other_is_told_who_does(
    server: Server, empty_redis: StandaloneServers
) -> None:
    older, younger = an_owner("a", age=timedelta(days=1)), an_owner("b", cluster="other")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    before = writes_so_far(empty_redis)
    refused = await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    assert refused.verdict == ProvisionVerdict.CONFLICT
    assert refused.hold is not None
    assert refused.hold.owner == older
    assert writes_so_far(empty_redis) == before


async def test_an_older_resource_that_comes_later_takes_over(server: Server) -> None:
    older, younger = an_owner("a", age=timedelta(days=1)), an_owner("b")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    refused = await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    assert (taken.verdict, refused.verdict) == (
        ProvisionVerdict.ADOPTED,
        ProvisionVerdict.CONFLICT,
    )
    assert await kinds_in_ledger(server) == [LedgerKind.GROUP_CREATED, LedgerKind.OWNER_CHANGED]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
async def test_of_two_resources_of_one_second_the_smaller_uid_acts(
    server: Server, first: str, second: str
) -> None:
    outcomes = {}
    for uid in (first, second, first):
        outcomes[uid] = await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner(uid))
    assert outcomes["a"].verdict != ProvisionVerdict.CONFLICT
    assert outcomes["b"].verdict == ProvisionVerdict.CONFLICT


async def test_a_hold_that_ran_out_is_taken_over_by_a_younger_resource(server: Server) -> None:
    older, younger = an_owner("a", age=timedelta(days=1)), an_owner("b")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    await server.execute("HSET", KEYS.state, "owner:held_until_ms", "1")
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    assert taken.verdict == ProvisionVerdict.ADOPTED


async def test_a_resource_that_was_deleted_and_made_again_acts_at_once(server: Server) -> None:
    old, new = an_owner("a", age=timedelta(days=1), name="orders"), an_owner("b", name="orders")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=old)
    made_again = await provision_group(server, KEYS, start=EntryId.MIN, owner=new)
    outdated = await provision_group(server, KEYS, start=EntryId.MIN, owner=old)
    assert (made_again.verdict, outdated.verdict) == (
        ProvisionVerdict.ADOPTED,
        ProvisionVerdict.CONFLICT,
    )


async def test_the_same_name_in_another_cluster_is_another_resource(server: Server) -> None:
    older = an_owner("a", age=timedelta(days=1), name="orders")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    other = an_owner("b", name="orders", cluster="other")
    refused = await provision_group(server, KEYS, start=EntryId.MIN, owner=other)
    assert refused.verdict == ProvisionVerdict.CONFLICT


@pytest.mark.parametrize("damage", ["x", "", "99999999999999999"])
async def test_a_damaged_hold_binds_nobody(server: Server, damage: str) -> None:
    await provision(server)
    await server.execute("HSET", KEYS.state, "owner:held_until_ms", damage)
    await observe_group(server, KEYS)
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner("z"))
    assert taken.verdict == ProvisionVerdict.ADOPTED


async def test_a_released_group_stays_and_is_free_for_another(server: Server) -> None:
    await provision(server)
    assert not await release_group(server, KEYS, an_owner("stranger"))
    assert await release_group(server, KEYS, OWNER)
    assert not await release_group(server, KEYS, OWNER)
    seen = await observe_group(server, KEYS)
    assert (seen.is_provisioned, seen.hold) == (True, None)
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner("z"))
    assert taken.verdict == ProvisionVerdict.ADOPTED


async def test_a_destroyed_group_leaves_the_stream_and_its_dead_letters(server: Server) -> None:
    await provision(server)
    await add(server, KEYS.stream)
    await deliver(server, 1)
    await add(server, KEYS.dead_letter)
    for key in (KEYS.retry, KEYS.handover):
        await add(server, key)
    await server.execute("HSET", KEYS.started, "worker", "1-1")
    assert (await destroy_group(server, KEYS, OWNER)).verdict == DestroyVerdict.DESTROYED
    left = {key.decode() for key in await server.execute("KEYS", "*")}
    assert left == {KEYS.stream, KEYS.dead_letter}
    assert (await destroy_group(server, KEYS, OWNER)).verdict == DestroyVerdict.ABSENT


async def test_a_group_of_another_resource_is_not_destroyed(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server)
    before = writes_so_far(empty_redis)
    kept = await destroy_group(server, KEYS, an_owner("stranger"))
    assert kept.verdict == DestroyVerdict.NOT_OWNER
    assert kept.hold is not None
    assert kept.hold.owner == OWNER
    assert writes_so_far(empty_redis) == before


async def test_a_group_that_nobody_adopted_is_not_destroyed(server: Server) -> None:
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "0", "MKSTREAM")
    kept = await destroy_group(server, KEYS, OWNER)
    assert (kept.verdict, kept.hold) == (DestroyVerdict.NOT_OWNER, None)


async def test_a_stream_that_is_gone_or_another_type_does_not_stop_a_deletion(
    server: Server,
) -> None:
    await provision(server)
    await server.execute("DEL", KEYS.stream)
    assert (await destroy_group(server, KEYS, OWNER)).verdict == DestroyVerdict.DESTROYED
    await provision(server)
    await server.execute("DEL", KEYS.stream)
    await server.execute("SET", KEYS.stream, "x")
    assert (await destroy_group(server, KEYS, OWNER)).verdict == DestroyVerdict.DESTROYED


async def test_pending_lag_and_the_lowest_pending_entry_are_seen(server: Server) -> None:
    ids = [await add(server, KEYS.stream) for _ in range(5)]
    await provision(server)
    await deliver(server, 3, "one")
    await server.execute("XACK", KEYS.stream, KEYS.group, str(ids[0]))
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert (group.pending, group.lag, group.consumers) == (2, 2, 1)
    assert (group.lowest_pending, group.last_delivered_id) == (ids[1], ids[2])


async def test_a_position_ahead_of_the_stream_is_no_lag_of_zero(server: Server) -> None:
    await add(server, KEYS.stream, "5-0")
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "900-0")
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert group.lag is None


async def test_an_unknown_lag_is_unknown_and_the_end_is_zero(server: Server) -> None:
    for number in (1, 2, 3, 4):
        await add(server, KEYS.stream, f"{number}-0")
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "2-0")
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert group.lag is None
    await deliver(server, 10)
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert group.lag == 0


async def test_only_our_group_is_seen_among_a_thousand(server: Server) -> None:
    await add(server, KEYS.stream)
    for number in range(1000):
        await server.execute("XGROUP", "CREATE", KEYS.stream, f"other-{number}", "0")
    await provision(server)
    seen = await observe_group(server, KEYS)
    assert seen.groups == 1001
    assert seen.group is not None
    assert seen.group.lag == 1


async def test_many_groups_are_seen_together_and_fail_one_by_one(server: Server) -> None:
    groups = [derive_keys(f"stream-{number}", "g") for number in range(250)]
    for number in (0, 249):
        await provision(server, groups[number])
    await server.execute("SET", groups[7].stream, "x")
    seen = await observe_groups(server, groups)
    assert list(seen) == groups
    provisioned = {keys for keys, found in seen.items() if getattr(found, "is_provisioned", False)}
    assert provisioned == {groups[0], groups[249]}
    assert {keys for keys, found in seen.items() if isinstance(found, WrongType)} == {groups[7]}


@pytest.mark.parametrize(
    "stream", ["{a}:b", "a{}b", "a}b", "{}x", "a b\t\n", "é\N{SNOWMAN}%:", "*?[x]\\", "nul\0x"]
)
async def test_any_name_that_redis_allows_is_served(server: Server, stream: str) -> None:
    keys = derive_keys(stream, f"group of {stream}")
    assert await provision(server, keys) == ProvisionVerdict.CREATED
    assert (await observe_group(server, keys)).is_provisioned
    assert (await destroy_group(server, keys, OWNER)).verdict == DestroyVerdict.DESTROYED


async def test_a_server_out_of_memory_refuses_and_a_settled_group_stays_settled(
    server: Server, empty_redis: StandaloneServers
) -> None:
    other = derive_keys("other", "g")
    await provision(server)
    empty_redis.cli("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(RedisUnavailable, match="out of memory"):
            await provision(server, other)
        assert await provision(server) == ProvisionVerdict.SETTLED
        assert (await observe_group(server, KEYS)).is_provisioned
    finally:
        empty_redis.cli("CONFIG", "SET", "maxmemory", "0")
    assert not (await observe_group(server, other)).exists


async def test_scripts_that_the_server_forgot_are_sent_again(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server)
    empty_redis.cli("SCRIPT", "FLUSH")
    assert await provision(server) == ProvisionVerdict.SETTLED
    empty_redis.cli("SCRIPT", "FLUSH")
    assert (await observe_group(server, KEYS)).is_provisioned


async def test_an_answer_that_never_comes_leaves_a_write_in_doubt(
    empty_redis: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", 0.3)
    async with connected(endpoint_of(empty_redis)) as server:
        empty_redis.master().pause()
        try:
            with pytest.raises(OutcomeUnknown, match="did not answer"):
                await provision(server)
            with pytest.raises(RedisUnavailable, match="cannot be reached"):
                await observe_group(server, KEYS)
        finally:
            empty_redis.master().resume()
        # Whatever became of it, repeating it is safe.
        again = await provision(server)
    assert again in {ProvisionVerdict.CREATED, ProvisionVerdict.SETTLED}
