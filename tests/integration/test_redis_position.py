"""Where a lost group begins when it is created again, on real servers."""

import asyncio
from collections.abc import Iterable

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import END_OF_STREAM, EntryId
from pelops.domain.records.ledger import CreationReason, GroupCreation, LedgerKind
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import ProvisionVerdict, provision_group, release_group
from pelops.redis_streams.group.maintenance import remember_position
from tests.integration.position_cases import (
    KEYS,
    OWNER,
    acknowledge,
    add_all,
    create_anew,
    delivered_again,
    with_pending_3_and_5,
)
from tests.integration.redis_adapter import (
    add,
    an_owner,
    deliver,
    kinds_in_ledger,
    provision,
)


async def test_a_destroyed_group_is_given_again_what_was_pending(server: Server) -> None:
    await with_pending_3_and_5(server)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    creation = await create_anew(server)
    assert creation == GroupCreation(
        position=EntryId(3).before(), why=CreationReason.CONTINUES, repeats=4
    )
    assert await delivered_again(server) == [3, 4, 5, 6, 7, 8, 9, 10]


async def test_a_group_without_pending_entries_is_recreated_at_its_position(server: Server) -> None:
    await with_pending_3_and_5(server)
    await acknowledge(server, 3, 5)
    await remember_position(server, KEYS, OWNER)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    creation = await create_anew(server)
    assert (creation.position, creation.repeats) == (EntryId(6), 0)
    assert await delivered_again(server) == [7, 8, 9, 10]


async def test_a_flushed_server_is_read_from_its_beginning(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await with_pending_3_and_5(server)
    empty_redis.cli("FLUSHALL")
    await add_all(server, [1, 2])
    # The state is lost too: that the group existed is known from the resource.
    lost = await provision_group(server, KEYS, start=END_OF_STREAM, owner=OWNER, existed=True)
    assert lost.creation == GroupCreation(
        position=EntryId.MIN, why=CreationReason.NEW_STREAM, repeats=2
    )
    assert await delivered_again(server) == [1, 2]


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        ([], "nothing yet"),
        (range(11, 14), "fewer entries than were ever added"),
        (range(1, 10), "as many as were delivered, all below the former end"),
        ([1, 2, 3, 4, 5, 6, 7, 8, 8.5, 9, 9.5], "more entries, all below the former end"),
    ],
)
async def test_a_recreated_stream_is_read_from_its_beginning(
    server: Server, numbers: Iterable[float], what: str
) -> None:
    await with_pending_3_and_5(server)
    await server.execute("DEL", KEYS.stream)
    ids = [f"{int(number)}-{int(number % 1 * 10)}" for number in numbers]
    for entry_id in ids:
        await add(server, KEYS.stream, entry_id)
    creation = await create_anew(server)
    assert (creation.position, creation.why) == (EntryId.MIN, CreationReason.NEW_STREAM), what
    assert len(await delivered_again(server)) == len(ids)


async def lose_tail(server: Server, numbers: Iterable[int]) -> None:
    """Leave the stream as a replica that lagged has it: without group and newest entries."""
    await server.execute("DEL", KEYS.stream)
    await add_all(server, numbers)


async def test_a_stream_that_holds_nothing_of_what_was_seen_is_another_one(server: Server) -> None:
    await with_pending_3_and_5(server)
    await acknowledge(server, 3, 5)
    await remember_position(server, KEYS, OWNER)
    await lose_tail(server, range(1, 5))
    await server.execute("HSET", KEYS.state, "seen:replid", "another")
    # Both 6, the group's position, and 10, the stream's end, are lost.
    creation = await create_anew(server)
    assert creation.position == EntryId.MIN


@pytest.mark.parametrize(("remains", "position"), [(8, EntryId(6)), (4, EntryId(3).before())])
async def test_a_lost_tail_is_no_reason_to_read_everything_again(
    server: Server, remains: int, position: EntryId
) -> None:
    await with_pending_3_and_5(server)
    if remains == 8:
        await acknowledge(server, 3, 5)
        await remember_position(server, KEYS, OWNER)
    await lose_tail(server, range(1, remains + 1))
    await server.execute("HSET", KEYS.state, "seen:replid", "another")
    creation = await create_anew(server)
    assert (creation.position, creation.why) == (position, CreationReason.LOST_TAIL)


async def test_the_same_master_does_not_lose_a_tail(server: Server) -> None:
    await with_pending_3_and_5(server)
    await lose_tail(server, range(1, 9))
    assert (await create_anew(server)).why == CreationReason.NEW_STREAM


async def test_a_position_is_never_created_beyond_the_stream(server: Server) -> None:
    await with_pending_3_and_5(server)
    await server.execute("XGROUP", "SETID", KEYS.stream, KEYS.group, "900-0")
    await acknowledge(server, 3, 5)
    await remember_position(server, KEYS, OWNER)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    assert (await create_anew(server)).position == EntryId(10)


async def test_a_recreated_group_has_no_count_of_entries_read(server: Server) -> None:
    await with_pending_3_and_5(server)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    await create_anew(server)
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert group.entries_read is None
    assert group.lag == 8  # counted: 3 to 10


async def test_what_a_released_group_remembers_does_not_count(server: Server) -> None:
    await with_pending_3_and_5(server)
    await release_group(server, KEYS, OWNER)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    creation = await create_anew(server, EntryId.MIN)
    assert (creation.position, creation.why) == (EntryId.MIN, CreationReason.FIRST)


async def test_two_replicas_make_a_lost_group_once(server: Server) -> None:
    await with_pending_3_and_5(server)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    outcomes = await asyncio.gather(
        *(provision_group(server, KEYS, start=END_OF_STREAM, owner=OWNER) for _ in range(2))
    )
    verdicts = {outcome.verdict for outcome in outcomes}
    assert verdicts == {ProvisionVerdict.CREATED, ProvisionVerdict.SETTLED}
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.GROUP_CREATED) == 2


async def test_the_start_applies_only_to_the_first_creation_of_a_group(server: Server) -> None:
    await add_all(server, range(1, 4))
    first = await create_anew(server, EntryId(1))
    assert first == GroupCreation(position=EntryId(1), why=CreationReason.FIRST, repeats=0)
    for start in (END_OF_STREAM, EntryId(3)):
        await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
        assert (await create_anew(server, start)).position == EntryId(1)
    other = await provision_group(server, KEYS, start=END_OF_STREAM, owner=an_owner("older"))
    assert other.creation is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seen:last_delivered", "6"),
        ("seen:last_delivered", "18446744073709551616-0"),
        ("seen:lowest_pending", "x"),
        ("seen:entries_added", "nan"),
        ("seen:entries_added", ""),
        ("seen:last_generated", "\0"),
    ],
)
async def test_a_damaged_memory_counts_as_none(server: Server, field: str, value: str) -> None:
    await with_pending_3_and_5(server)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    await server.execute("HSET", KEYS.state, field, value)
    assert (await observe_group(server, KEYS)).state.seen is None
    creation = await create_anew(server)
    assert (creation.position, creation.why) == (EntryId.MIN, CreationReason.NEW_STREAM)
    assert creation.repeats == 10


@pytest.mark.full
async def test_very_many_repeats_are_not_counted(server: Server) -> None:
    await provision(server, KEYS)
    await add_all(server, range(1, 1102))
    await deliver(server, KEYS, 2000)
    await remember_position(server, KEYS, OWNER)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    creation = await create_anew(server)
    assert (creation.position, creation.repeats) == (EntryId(1).before(), None)


async def test_the_largest_ids_are_compared_to_the_last_digit(server: Server) -> None:
    await provision(server, KEYS)
    largest = 2**64 - 1
    ids = [EntryId(largest - 2, largest), EntryId(largest - 1, 0), EntryId(largest - 1, 1)]
    for entry_id in ids:
        await add(server, KEYS.stream, str(entry_id))
    await deliver(server, KEYS, 3)
    await server.execute("XACK", KEYS.stream, KEYS.group, str(ids[0]))
    await remember_position(server, KEYS, OWNER)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    creation = await create_anew(server)
    assert (creation.position, creation.repeats) == (EntryId(largest - 2, largest), 2)


async def test_the_retry_and_the_handover_stream_are_made_when_asked_for(server: Server) -> None:
    await provision(server, KEYS)
    missing = await observe_group(server, KEYS, with_retry=True, with_offers=True)
    assert missing.retry is not None
    assert (missing.retry.exists, missing.has_offer_stream, missing.is_provisioned) == (
        *(False, False),
        False,
    )
    for _ in range(2):
        await provision_group(
            server, KEYS, start=EntryId.MIN, owner=OWNER, with_retry=True, with_offers=True
        )
    await add(server, KEYS.retry, "1-0")
    seen = await observe_group(server, KEYS, with_retry=True, with_offers=True)
    assert seen.is_provisioned
    assert seen.retry is not None
    assert (seen.retry.length, seen.retry.lag, seen.retry.pending) == (1, 1, 0)
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.GROUP_CREATED) == 3
