"""Provisioning, observing, releasing and destroying groups on real servers of each version."""

from dataclasses import replace
from datetime import timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import END_OF_STREAM, EntryId, StartPosition
from pelops.domain.naming import derive_keys
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import OWNERSHIP_LIFETIME
from pelops.errors import OutcomeUnknown, RedisUnavailable, WrongType
from pelops.redis_core import transport
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import (
    DestroyVerdict,
    ProvisionVerdict,
    destroy_group,
    provision_group,
)
from tests.integration.redis_adapter import (
    add,
    an_owner,
    connected,
    deliver,
    endpoint_of,
    kinds_in_ledger,
    provision,
    writes_so_far,
)
from tests.integration.retaining import fill_letters

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()


async def test_provisioning_creates_all_that_the_group_needs(server: Server) -> None:
    assert await provision(server, KEYS) == ProvisionVerdict.CREATED
    seen = await observe_group(server, KEYS)
    assert seen.is_provisioned
    assert (seen.length, seen.dead_letters) == (0, 0)
    assert seen.ownership is not None
    assert seen.ownership.owner == OWNER
    assert timedelta() < seen.ownership.owned_until - seen.server_time <= OWNERSHIP_LIFETIME
    assert await kinds_in_ledger(server, KEYS) == [LedgerKind.GROUP_CREATED]


async def test_the_ledger_counts_entries_before_a_group_started_at_the_end(
    server: Server,
) -> None:
    for _ in range(5):
        await add(server, KEYS.stream)
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", 2)
    at_beginning = derive_keys(KEYS.stream, "from-the-beginning")
    for keys, start, added in ((KEYS, END_OF_STREAM, b"5"), (at_beginning, EntryId.MIN, b"")):
        await provision_group(server, keys, start=start, owner=OWNER)
        ((_, flat),) = await server.execute("XRANGE", keys.ledger, "-", "+")
        assert flat[flat.index(b"added") + 1] == added


async def test_a_settled_group_is_not_written_to(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server, KEYS)
    before = writes_so_far(empty_redis)
    assert await provision(server, KEYS) == ProvisionVerdict.SETTLED
    assert writes_so_far(empty_redis) == before


async def test_an_existing_group_is_adopted_untouched(server: Server) -> None:
    for _ in range(5):
        await add(server, KEYS.stream)
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "0")
    await deliver(server, KEYS, 2)
    before = (await observe_group(server, KEYS)).group
    outcome = await provision_group(server, KEYS, start=END_OF_STREAM, owner=OWNER)
    assert outcome.verdict == ProvisionVerdict.ADOPTED
    after = (await observe_group(server, KEYS)).group
    assert before is not None and after is not None and before.lowest_idle is not None
    assert after.lowest_idle is not None and after.lowest_idle >= before.lowest_idle
    assert replace(after, lowest_idle=before.lowest_idle) == before
    assert await kinds_in_ledger(server, KEYS) == [LedgerKind.GROUP_ADOPTED]


@pytest.mark.parametrize(
    ("start", "position", "lag"),
    [
        (EntryId.MIN, EntryId.MIN, 3),
        (END_OF_STREAM, EntryId(9), 0),
        (EntryId(5, 1), EntryId(5, 1), 2),
    ],
)
async def test_a_new_group_begins_where_it_was_asked_to(
    server: Server, start: StartPosition, position: EntryId, lag: int
) -> None:
    for entry_id in ("5-1", "7-0", "9-0"):
        await add(server, KEYS.stream, entry_id)
    await provision_group(server, KEYS, start=start, owner=OWNER)
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert (group.last_delivered_id, group.lag) == (position, lag)


async def test_streams_that_were_created_empty_take_any_later_entry(server: Server) -> None:
    await provision(server, KEYS)
    await add(server, KEYS.dead_letter, "0-2")
    first, second = await add(server, KEYS.dead_letter), await add(server, KEYS.dead_letter)
    assert EntryId(0, 2) < first < second
    assert (await observe_group(server, KEYS)).dead_letters == 3


async def test_an_existing_dead_letter_stream_of_the_group_is_kept(server: Server) -> None:
    await fill_letters(server, 1, ms=5)
    await provision(server, KEYS)
    entries = await server.execute("XRANGE", KEYS.dead_letter, "-", "+")
    assert [entry_id for entry_id, _ in entries] == [b"5-1"]


@pytest.mark.parametrize("which", ["stream", "dead_letter", "ledger", "state"])
async def test_a_key_of_another_type_stops_everything_before_a_write(
    server: Server, empty_redis: StandaloneServers, which: str
) -> None:
    key = getattr(KEYS, which)
    await server.execute("SET", key, "x", key=key)
    before = writes_so_far(empty_redis)
    for attempt in (provision(server, KEYS), observe_group(server, KEYS)):
        with pytest.raises(WrongType, match="contains a string") as refused:
            await attempt
        assert (refused.value.key, refused.value.found) == (key, "string")
    assert writes_so_far(empty_redis) == before


async def test_a_destroyed_group_leaves_the_stream_and_its_dead_letters(server: Server) -> None:
    await provision_group(
        server, KEYS, start=EntryId.MIN, owner=OWNER, with_retry=True, with_offers=True
    )
    await add(server, KEYS.stream)
    await deliver(server, KEYS, 1)
    await add(server, KEYS.dead_letter)
    for key in (KEYS.retry, KEYS.offer_stream):
        await add(server, key)
    await server.execute("HSET", KEYS.started, "worker", "1-1")
    assert (await destroy_group(server, KEYS, OWNER)).verdict == DestroyVerdict.DESTROYED
    left = {key.decode() for key in await server.execute("KEYS", "*")}
    assert left == {KEYS.stream, KEYS.dead_letter, KEYS.dead_letter_owner}
    assert (await destroy_group(server, KEYS, OWNER)).verdict == DestroyVerdict.ABSENT


async def test_a_stream_missing_or_of_another_type_does_not_block_deletion(
    server: Server,
) -> None:
    await provision(server, KEYS)
    await server.execute("DEL", KEYS.stream)
    assert (await destroy_group(server, KEYS, OWNER)).verdict == DestroyVerdict.DESTROYED
    other = an_owner("other")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=other)
    await server.execute("DEL", KEYS.stream)
    await server.execute("SET", KEYS.stream, "x")
    assert (await destroy_group(server, KEYS, other)).verdict == DestroyVerdict.DESTROYED


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
    await provision(server, KEYS)
    empty_redis.cli("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(RedisUnavailable, match="out of memory"):
            await provision(server, other)
        assert await provision(server, KEYS) == ProvisionVerdict.SETTLED
        assert (await observe_group(server, KEYS)).is_provisioned
    finally:
        empty_redis.cli("CONFIG", "SET", "maxmemory", "0")
    assert not (await observe_group(server, other)).exists


async def test_scripts_that_the_server_forgot_are_sent_again(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server, KEYS)
    empty_redis.cli("SCRIPT", "FLUSH")
    assert await provision(server, KEYS) == ProvisionVerdict.SETTLED
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
                await provision(server, KEYS)
            with pytest.raises(RedisUnavailable, match="cannot be reached"):
                await observe_group(server, KEYS)
        finally:
            empty_redis.master().resume()
        # Whatever became of it, repeating it is safe.
        again = await provision(server, KEYS)
    assert again in {ProvisionVerdict.CREATED, ProvisionVerdict.SETTLED}
