"""A retry stream without readers, or one that is no longer configured, on real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.stream_observation import RetryObservation
from pelops.errors import NotOurs, PermissionDenied, PositionAhead, WouldDuplicate, WrongType
from pelops.redis_core.server import Server
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import destroy_group, provision_group
from pelops.redis_streams.group.maintenance import (
    RETURN_BATCH,
    Returned,
    has_retry_stream,
    note_retry_wait,
    return_copies,
)
from pelops.redis_streams.recovery.consumers import remove_consumer
from pelops.redis_streams.recovery.scan_calls import finish_scan, read_fields
from tests.integration.recovering import (
    DEAD,
    KEYS,
    a_context,
    an_order,
    look,
    read_new,
    recorded,
    recover_all,
    targets,
)
from tests.integration.redis_adapter import an_owner, connected, endpoint_of, writes_so_far

OWNER: Final = an_owner()
LIVE: Final = "live"
MANY: Final = 3 * RETURN_BATCH + 7


@pytest.fixture
async def server(empty_redis: StandaloneServers) -> AsyncIterator[Server]:
    async with connected(endpoint_of(empty_redis)) as connection:
        await provision_group(connection, KEYS, start=EntryId.MIN, owner=OWNER, with_retry=True)
        yield connection


async def copy(server: Server, number: int, value: str | bytes = "v") -> list[EntryId]:
    """Copies as a recovery adds them, of entries that are long gone; the n-th failed n times."""
    ids = []
    for each in range(number):
        marks = ("_original_id", f"1-{each + 1}", "_retry_count", each)
        words = ("XADD", KEYS.retry, "*", "n", each, "f", value, *marks)
        ids.append(parse_entry_id(await server.execute(*words, key=KEYS.retry)))
    return ids


async def give_back(server: Server, **changes: Any) -> Returned:
    reported: dict[str, Any] = {"field_prefix": "_", "actor": "replica-1", "reason": "as asked"}
    return await return_copies(server, KEYS, changes.pop("owner", OWNER), **(reported | changes))


async def give_back_all(server: Server) -> int:
    moved = 0
    while (returned := await give_back(server)).may_continue:
        moved += returned.moved
    return moved + returned.moved


async def entries(server: Server, stream: str) -> dict[str, list[bytes]]:
    found = await server.execute("XRANGE", stream, "-", "+", key=stream)
    return {entry_id.decode(): pairs for entry_id, pairs in found}


async def seen_former(server: Server) -> RetryObservation:
    seen = await observe_group(server, KEYS, with_retry=True, is_retry_former=True)
    assert seen.retry is not None
    return seen.retry


async def test_undelivered_copies_go_back_once_and_unchanged(server: Server) -> None:
    ids = await copy(server, MANY)
    given = await read_new(server, KEYS, 5, LIVE, KEYS.retry)
    assert await give_back_all(server) == MANY - 5
    moved = await entries(server, KEYS.stream)
    assert [pairs[1] for pairs in moved.values()] == [b"%d" % n for n in range(5, MANY)]
    assert [pairs[4:] for pairs in moved.values()] == [
        [b"_original_id", b"1-%d" % (n + 1), b"_retry_count", b"%d" % n] for n in range(5, MANY)
    ]
    # Entries pending with a worker stay in the retry stream; all others have left it.
    assert list(await entries(server, KEYS.retry)) == [str(one) for one in given]
    left = await seen_former(server)
    assert (left.lag, left.pending, left.first_undelivered) == (0, 5, None)
    acts = await recorded(server, "requeued")
    assert [one.entry_id for one in acts] == ids[5:]
    assert [str(one.new_id) for one in acts] == list(moved)
    assert [one.retry_count for one in acts] == list(range(5, MANY))
    assert await targets(server, "requeued") == {KEYS.stream}
    assert await read_fields(server, KEYS, ["total:requeued"]) == [str(MANY - 5)]
    assert await give_back(server) == Returned()


async def test_however_many_replicas_move_them_each_goes_back_once(server: Server) -> None:
    """Invariant 3."""
    await copy(server, MANY)
    moved = sum(await asyncio.gather(*(give_back_all(server) for _ in range(5))))
    roots = [pairs[5] for pairs in (await entries(server, KEYS.stream)).values()]
    assert moved == len(roots) == len(set(roots)) == MANY


async def test_no_copy_is_both_delivered_and_given_back(
    server: Server,
) -> None:
    await copy(server, MANY)

    async def read_all() -> list[EntryId]:
        return [one for _ in range(20) for one in await read_new(server, KEYS, 4, LIVE, KEYS.retry)]

    given, moved = await asyncio.gather(read_all(), give_back_all(server))
    assert len(given) + moved == MANY
    assert list(await entries(server, KEYS.retry)) == [str(one) for one in given]


async def test_a_call_reads_at_most_its_bytes_and_at_least_one_entry(server: Server) -> None:
    await copy(server, 3, b"x" * 1_000_000)
    returned = await give_back(server)
    assert (returned.moved, returned.may_continue) == (1, True)
    await copy(server, 10, b"x" * 100_000)
    assert (await give_back(server)).moved == 1
    assert (await give_back(server)).moved == 1
    assert (await give_back(server)).moved == 3
    await copy(server, 1, b"small")
    assert await give_back_all(server) == 8


async def test_what_is_remembered_of_suspects_goes_with_them(server: Server) -> None:
    first, second, third = await copy(server, 3)
    await read_new(server, KEYS, 1, LIVE, KEYS.retry)
    state = ("chunk", f"{first} {second}", f"try:{second}", "3 1 0", f"try:{third}", "2 0 0")
    await server.execute("HSET", KEYS.state, *state, key=KEYS.state)
    await give_back(server)
    new_second, new_third = await entries(server, KEYS.stream)
    retry_batch, *tries = await read_fields(
        server, KEYS, ["chunk", f"try:{new_second}", f"try:{new_third}", f"try:{second}"]
    )
    assert retry_batch == f"{first} {new_second}"
    assert tries[:2] == ["3 1 0", "2 0 0"]
    # Of two streams, two entries of one millisecond may have the same ID.
    assert tries[2] is None or str(second) in (new_second, new_third)
    # A scan finds the entries of the retry batch in both streams.
    observation = await look(server, with_retry=True, is_retry_former=True)
    assert observation.retry_batch.under_way == {first, parse_entry_id(new_second.encode())}
    assert observation.retry is not None
    assert (observation.retry.pending, observation.stream.pending) == (1, 0)


async def test_scans_keep_the_attempts_of_pending_copies(
    server: Server,
) -> None:
    held, done = await copy(server, 2)
    await read_new(server, KEYS, 2, LIVE, KEYS.retry)
    await server.execute("XACK", KEYS.retry, KEYS.group, str(done), key=KEYS.retry)
    tries = [f"try:{held}", f"try:{done}"]
    await server.execute("HSET", KEYS.state, tries[0], "1 0 0", tries[1], "1 0 0", key=KEYS.state)
    others = (KEYS.retry,)
    await finish_scan(
        server, KEYS, uid="uid-1", target=KEYS.stream, tries_cursor="0", others=others
    )
    assert await read_fields(server, KEYS, tries) == ["1 0 0", None]


async def test_stuck_copies_of_a_former_retry_stream_move_to_the_stream(server: Server) -> None:
    await copy(server, 4)
    stuck = await read_new(server, KEYS, 3, DEAD, KEYS.retry)
    (kept,) = await read_new(server, KEYS, 1, LIVE, KEYS.retry)
    context = a_context(source=KEYS.retry, former_retry=KEYS.retry)
    batches = await recover_all(server, context, an_order(counts_attempt=False))
    assert sum(batch.moved for batch in batches) == 3
    roots = [pairs[5] for pairs in (await entries(server, KEYS.stream)).values()]
    assert roots == [b"1-1", b"1-2", b"1-3"]
    assert [one.entry_id for one in await recorded(server, "requeued")] == stuck
    left = await seen_former(server)
    assert (left.pending, left.lowest_pending) == (1, kept)


async def test_a_consumer_with_copies_in_a_former_retry_stream_is_kept(
    server: Server,
) -> None:
    """Invariant 5."""
    await copy(server, 1)
    await server.execute("XADD", KEYS.stream, "*", "f", "v", key=KEYS.stream)
    (entry,) = await read_new(server, KEYS, 1, LIVE)
    await server.execute("XACK", KEYS.stream, KEYS.group, str(entry), key=KEYS.stream)
    (held,) = await read_new(server, KEYS, 1, LIVE, KEYS.retry)
    context = a_context(former_retry=KEYS.retry)
    assert not await remove_consumer(server, context, LIVE)
    await server.execute("XACK", KEYS.retry, KEYS.group, str(held), key=KEYS.retry)
    assert await remove_consumer(server, context, LIVE)


async def test_nothing_goes_back_to_a_stream_of_several_groups(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await copy(server, 3)
    await server.execute("XGROUP", "CREATE", KEYS.stream, "other", "0", key=KEYS.stream)
    before = writes_so_far(empty_redis)
    with pytest.raises(WouldDuplicate):
        await give_back(server)
    assert writes_so_far(empty_redis) == before


async def test_what_refuses_the_script_comes_before_its_first_write(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await copy(server, 3)
    before = writes_so_far(empty_redis)
    with pytest.raises(NotOurs):
        await give_back(server, owner=an_owner("uid-2"))
    with pytest.raises(NotOurs):
        await note_retry_wait(server, KEYS, an_owner("uid-2"), forget=False)
    rules = acl_rules(KEYS, UserRole.OPERATOR, {Feature.RECOVERY})
    empty_redis.acl_setuser("least", "reset", "on", ">sesame", *rules)
    for word in ("+xdel", "+xadd", "+hincrby"):
        fewer = [rule for rule in rules if rule != word]
        empty_redis.acl_setuser("fewer", "reset", "on", ">sesame", *fewer)
        endpoint = endpoint_of(empty_redis, username="fewer", password="sesame")
        async with connected(endpoint) as other:
            with pytest.raises(PermissionDenied, match=word[1:]):
                await give_back(other)
    assert writes_so_far(empty_redis) == before
    await server.execute("XGROUP", "SETID", KEYS.stream, KEYS.group, "9999999999999-0")
    with pytest.raises(PositionAhead):
        await give_back(server)
    await server.execute("XGROUP", "SETID", KEYS.stream, KEYS.group, "0")
    async with connected(endpoint_of(empty_redis, username="least", password="sesame")) as other:
        assert await has_retry_stream(other, KEYS)
        await note_retry_wait(other, KEYS, OWNER, forget=False)
        assert (await give_back(other)).moved == 3
    await server.execute("DEL", KEYS.retry)
    await server.execute("SET", KEYS.retry, "x")
    with pytest.raises(WrongType):
        await give_back(server)


async def test_a_former_retry_stream_is_found_whatever_became_of_its_group(server: Server) -> None:
    assert await has_retry_stream(server, KEYS)
    await copy(server, 3)
    await server.execute("XGROUP", "DESTROY", KEYS.retry, KEYS.group, key=KEYS.retry)
    left = await seen_former(server)
    assert (left.exists, left.lag, left.pending) == (False, 3, 0)
    observation = await look(server, with_retry=True, is_retry_former=True)
    assert observation.retry is None
    assert await give_back_all(server) == 3
    assert (await seen_former(server)).lag == 0
    await server.execute("DEL", KEYS.retry)
    assert not await has_retry_stream(server, KEYS)
    await server.execute("SET", KEYS.retry, "x")
    assert not await has_retry_stream(server, KEYS)
    assert await give_back_all_or_none(server) is None


async def give_back_all_or_none(server: Server) -> int | None:
    try:
        return await give_back_all(server)
    except WrongType:
        return None


async def test_the_first_copy_that_waits_is_seen_whatever_lies_before_it(server: Server) -> None:
    ids = await copy(server, 6)
    assert (await seen_former(server)).first_undelivered == ids[0]
    await read_new(server, KEYS, 2, LIVE, KEYS.retry)
    assert (await seen_former(server)).first_undelivered == ids[2]
    await server.execute("XDEL", KEYS.retry, str(ids[2]), key=KEYS.retry)
    assert (await seen_former(server)).first_undelivered == ids[3]
    await read_new(server, KEYS, 9, LIVE, KEYS.retry)
    assert (await seen_former(server)).first_undelivered is None


async def test_a_wait_is_noted_once_until_another_copy_waits_first(
    server: Server, empty_redis: StandaloneServers
) -> None:
    first, second = await copy(server, 2)
    await server.execute("XADD", KEYS.stream, "*", "f", "v", key=KEYS.stream)
    (position,) = await read_new(server, KEYS, 1, LIVE)
    await note_retry_wait(server, KEYS, OWNER, forget=False)
    noted = (await observe_group(server, KEYS)).state.retry_wait
    assert noted is not None
    assert (noted.first_undelivered, noted.position) == (first, position)
    before = writes_so_far(empty_redis)
    await note_retry_wait(server, KEYS, OWNER, forget=False)
    assert writes_so_far(empty_redis) == before
    await read_new(server, KEYS, 1, LIVE, KEYS.retry)
    await note_retry_wait(server, KEYS, OWNER, forget=False)
    again = (await observe_group(server, KEYS)).state.retry_wait
    assert again is not None
    assert again.first_undelivered == second
    assert again.at - noted.at >= timedelta()
    await read_new(server, KEYS, 1, LIVE, KEYS.retry)
    await note_retry_wait(server, KEYS, OWNER, forget=False)
    assert (await observe_group(server, KEYS)).state.retry_wait is None


async def test_the_end_of_a_group_counts_the_copies_that_go_with_it(server: Server) -> None:
    await copy(server, 5)
    done, *_ = await read_new(server, KEYS, 3, LIVE, KEYS.retry)
    await server.execute("XACK", KEYS.retry, KEYS.group, str(done), key=KEYS.retry)
    assert (await destroy_group(server, KEYS, OWNER)).copies == 4
