"""What is seen of streams and groups on real servers of each version."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.state import FIXED_FIELDS, SCAN_DONE, GroupState
from pelops.domain.stream_observation import RetryObservation, StreamObservation
from pelops.errors import WrongType
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import (
    Digest,
    ObservationRequest,
    observe_group,
    observe_groups,
    read_digests,
)
from tests.integration.redis_adapter import (
    add,
    deliver,
    provision,
)

KEYS = derive_keys("orders:events", "processing")


async def test_what_is_missing_is_a_fact_and_not_an_error(server: Server) -> None:
    seen = await observe_group(server, KEYS)
    assert (seen.exists, seen.group, seen.ownership, seen.is_provisioned) == (
        False,
        None,
        None,
        False,
    )
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


async def test_how_long_the_oldest_entries_wait_is_seen(server: Server) -> None:
    ids = [await add(server, KEYS.stream) for _ in range(3)]
    await provision(server, KEYS)
    seen = (await observe_group(server, KEYS)).group
    assert seen is not None
    assert (seen.first_undelivered, seen.lowest_idle) == (ids[0], None)
    await deliver(server, KEYS, 3, "one")
    claim = ("XCLAIM", KEYS.stream, KEYS.group, "one", 0, str(ids[0]), "IDLE", 3_600_000)
    await server.execute(*claim, key=KEYS.stream)
    seen = (await observe_group(server, KEYS)).group
    assert seen is not None and seen.lowest_idle is not None
    assert seen.first_undelivered is None
    assert timedelta(hours=1) <= seen.lowest_idle < timedelta(hours=2)


async def test_the_first_dead_letter_is_seen_when_asked_for(server: Server) -> None:
    await provision(server, KEYS)
    asked = ObservationRequest(KEYS, with_letters=True)

    async def first(request: ObservationRequest) -> EntryId | None:
        seen = (await observe_groups(server, [request]))[request]
        assert isinstance(seen, StreamObservation)
        return seen.first_dead_letter

    assert await first(asked) is None
    letters = [await add(server, KEYS.dead_letter) for _ in range(2)]
    assert await first(asked) == letters[0]
    assert await first(ObservationRequest(KEYS)) is None


async def test_pending_lag_and_the_lowest_pending_entry_are_seen(server: Server) -> None:
    ids = [await add(server, KEYS.stream) for _ in range(5)]
    await provision(server, KEYS)
    await deliver(server, KEYS, 3, "one")
    await server.execute("XACK", KEYS.stream, KEYS.group, str(ids[0]))
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert (group.pending, group.lag, group.consumers) == (2, 2, 1)
    assert (group.lowest_pending, group.last_delivered_id) == (ids[1], ids[2])


async def test_consumers_that_hold_entries_are_counted(server: Server) -> None:
    ids = [await add(server, KEYS.stream) for _ in range(5)]
    await provision(server, KEYS)
    assert await _holding(server) == 0
    await deliver(server, KEYS, 3, "one")
    await deliver(server, KEYS, 2, "two")
    await server.execute("XGROUP", "CREATECONSUMER", KEYS.stream, KEYS.group, "idle")
    assert await _holding(server) == 2
    await server.execute("XACK", KEYS.stream, KEYS.group, *map(str, ids[:3]))
    assert await _holding(server) == 1


async def test_owners_are_not_counted_among_too_many_consumers(server: Server) -> None:
    await add(server, KEYS.stream)
    await provision(server, KEYS)
    await deliver(server, KEYS, 1, "one")
    create = "for i = 1, 500 do redis.call('XGROUP', 'CREATECONSUMER', KEYS[1], ARGV[1], i) end"
    await server.execute("EVAL", create, 1, KEYS.stream, KEYS.group, key=KEYS.stream)
    assert await _holding(server) is None


async def _holding(server: Server) -> int | None:
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    return group.holding


async def test_a_position_ahead_of_the_stream_is_no_lag_of_zero(server: Server) -> None:
    await add(server, KEYS.stream, "5-0")
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "900-0")
    group = (await observe_group(server, KEYS)).group
    assert group is not None
    assert group.lag is None


async def test_the_greatest_entry_deleted_by_hand_is_seen(server: Server) -> None:
    ids = [await add(server, KEYS.stream) for _ in range(4)]
    assert (await observe_group(server, KEYS)).max_deleted_id == EntryId.MIN
    await server.execute("XDEL", KEYS.stream, str(ids[2]), str(ids[1]))
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", "0")
    assert (await observe_group(server, KEYS)).max_deleted_id == ids[2]


async def test_the_state_is_seen_with_the_group_whatever_it_holds(server: Server) -> None:
    await provision(server, KEYS)
    seen = (await observe_group(server, KEYS)).state.seen
    assert seen is not None
    assert (seen.last_delivered_id, seen.lowest_pending) == (EntryId.MIN, None)
    await server.execute("HSET", KEYS.state, "total:requeued", "7", "sweep:report", "{")
    assert (await observe_group(server, KEYS)).state.totals.requeued == 7
    for field in FIXED_FIELDS:
        await server.execute("HSET", KEYS.state, field, b"\xff\x00 no number", key=KEYS.state)
    assert (await observe_group(server, KEYS)).state == GroupState()


async def test_streams_beside_it_are_seen_when_asked_for(server: Server) -> None:
    seen = await observe_group(server, KEYS, with_retry=True, with_offers=True)
    assert (seen.retry, seen.has_offer_stream) == (RetryObservation(exists=False), False)
    await server.execute("XGROUP", "CREATE", KEYS.retry, KEYS.group, "0", "MKSTREAM")
    await server.execute("XGROUP", "CREATE", KEYS.offer_stream, KEYS.group, "0", "MKSTREAM")
    ids = [await add(server, KEYS.retry) for _ in range(3)]
    words = ("GROUP", KEYS.group, "w", "COUNT", 2, "STREAMS", KEYS.retry, ">")
    await server.execute("XREADGROUP", *words, key=KEYS.retry)
    seen = await observe_group(server, KEYS, with_retry=True, with_offers=True)
    assert seen.has_offer_stream
    assert seen.retry is not None and seen.retry.lowest_idle is not None
    assert replace(seen.retry, lowest_idle=None) == RetryObservation(
        exists=True,
        length=3,
        first_id=ids[0],
        last_delivered_id=ids[1],
        pending=2,
        lag=1,
        lowest_pending=ids[0],
        first_undelivered=ids[2],
        holding=1,
    )
    assert (await observe_group(server, KEYS)).retry is None
    await server.execute("DEL", KEYS.offer_stream)
    await server.execute("SET", KEYS.offer_stream, "x")
    with pytest.raises(WrongType):
        await observe_group(server, KEYS, with_offers=True)


async def test_only_our_group_is_seen_among_a_thousand(server: Server) -> None:
    await add(server, KEYS.stream)
    for number in range(1000):
        await server.execute("XGROUP", "CREATE", KEYS.stream, f"other-{number}", "0")
    await provision(server, KEYS)
    seen = await observe_group(server, KEYS)
    assert seen.groups == 1001
    assert seen.group is not None
    assert seen.group.lag == 1


async def test_each_of_many_observations_includes_its_optional_parts(server: Server) -> None:
    await server.execute("XGROUP", "CREATE", KEYS.retry, KEYS.group, "0", "MKSTREAM")
    await add(server, KEYS.retry)
    looks = [
        ObservationRequest(KEYS),
        ObservationRequest(KEYS, with_retry=True),
        ObservationRequest(KEYS, with_offers=True),
    ]
    seen = await observe_groups(server, looks)
    assert list(seen) == looks
    found = [each for each in seen.values() if isinstance(each, StreamObservation)]
    assert [each.retry and each.retry.at_least for each in found] == [None, 1, None]
    assert [each.has_offer_stream for each in found] == [True, True, False]


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


WHOLE = ObservationRequest(KEYS, with_consumers=True, with_letters=True)


async def read_digest(server: Server) -> int:
    (digest,) = await read_digests(server, [WHOLE])
    assert isinstance(digest, Digest)
    return digest.value


async def test_a_digest_equals_the_full_observation_and_ignores_time(
    server: Server,
) -> None:
    await provision(server, KEYS)
    entry = await add(server, KEYS.stream)
    await deliver(server, KEYS, 1, "one")
    await server.execute("XACK", KEYS.stream, KEYS.group, str(entry), key=KEYS.stream)
    seen = (await observe_groups(server, [WHOLE]))[WHOLE]
    assert isinstance(seen, StreamObservation) and seen.consumers
    idle = seen.consumers[0].idle
    await until_idle_longer(server, idle)
    assert await read_digest(server) == seen.digest


async def until_idle_longer(server: Server, idle: timedelta) -> None:
    while True:
        seen = (await observe_groups(server, [WHOLE]))[WHOLE]
        assert isinstance(seen, StreamObservation) and seen.consumers
        if seen.consumers[0].idle > idle:
            return


async def test_a_completed_scan_is_read_beside_the_digest_and_changes_it_not(
    server: Server,
) -> None:
    await provision(server, KEYS)
    before = await read_digest(server)
    await server.execute("HSET", KEYS.state, SCAN_DONE, "1700000000123", key=KEYS.state)
    (digest,) = await read_digests(server, [WHOLE])
    assert isinstance(digest, Digest)
    assert digest.value == before
    assert digest.scanned_at == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)


CHANGES = {
    "an entry": ("XADD", KEYS.stream, "*", "f", "v"),
    "a position": ("XGROUP", "SETID", KEYS.stream, KEYS.group, "7-7"),
    "a consumer": ("XGROUP", "CREATECONSUMER", KEYS.stream, KEYS.group, "new"),
    "another group": ("XGROUP", "CREATE", KEYS.stream, "another", "0"),
    "no group": ("XGROUP", "DESTROY", KEYS.stream, KEYS.group),
    "a dead letter": ("XADD", KEYS.dead_letter, "*", "f", "v"),
    "a reader of dead letters": ("XGROUP", "CREATE", KEYS.dead_letter, "readers", "0"),
    "no ledger": ("DEL", KEYS.ledger),
    "another owner": ("HSET", KEYS.state, "owner:uid", "another"),
    "a total": ("HSET", KEYS.state, FIXED_FIELDS[-2], "3"),
    "no record of the dead letters": ("DEL", KEYS.dead_letter_owner),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_whatever_changes_gives_another_digest(server: Server, change: str) -> None:
    await provision(server, KEYS)
    before = await read_digest(server)
    words = CHANGES[change]
    await server.execute(*words, key=KEYS.stream, writes=True)
    assert await read_digest(server) != before
