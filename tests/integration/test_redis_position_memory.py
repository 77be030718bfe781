"""A group's position is recorded when it changes, and again when the record is damaged."""

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import (
    CHECKPOINT_AT,
    SEEN_ADDED,
    SEEN_AT,
    SEEN_DELIVERED,
    SEEN_GENERATED,
    SEEN_LOWEST,
)
from pelops.errors import NoSuchGroup, NotOurs, WrongType
from pelops.policy.group.position import needs_remembering
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.maintenance import remember_position
from tests.integration.position_cases import KEYS, OWNER, acknowledge, with_pending_3_and_5
from tests.integration.redis_adapter import (
    an_owner,
    kinds_in_ledger,
    provision,
    writes_so_far,
)


async def test_an_unchanged_position_is_not_written_again(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await with_pending_3_and_5(server)
    before = writes_so_far(empty_redis)
    assert not await remember_position(server, KEYS, OWNER)
    assert writes_so_far(empty_redis) == before


async def test_a_position_is_remembered_with_its_lowest_pending_entry(server: Server) -> None:
    await with_pending_3_and_5(server)
    seen = (await observe_group(server, KEYS)).state.seen
    assert seen is not None
    assert (seen.last_delivered_id, seen.lowest_pending) == (EntryId(6), EntryId(3))
    assert (seen.entries_added, seen.last_generated_id) == (10, EntryId(10))
    await acknowledge(server, 3)
    assert await remember_position(server, KEYS, OWNER)
    seen = (await observe_group(server, KEYS)).state.seen
    assert seen is not None
    assert seen.lowest_pending == EntryId(5)


async def test_checkpoints_are_a_minute_apart(server: Server) -> None:
    await with_pending_3_and_5(server)
    await acknowledge(server, 3)
    await remember_position(server, KEYS, OWNER)
    kinds = await kinds_in_ledger(server, KEYS)
    assert kinds == [LedgerKind.GROUP_CREATED, LedgerKind.CHECKPOINT]
    await server.execute("HSET", KEYS.state, "bookmark:at_ms", "1")
    assert needs_remembering(await observe_group(server, KEYS))
    assert await remember_position(server, KEYS, OWNER)
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.CHECKPOINT) == 2
    assert not needs_remembering(await observe_group(server, KEYS))


@pytest.mark.parametrize(
    "field",
    [SEEN_DELIVERED, SEEN_LOWEST, SEEN_ADDED, SEEN_GENERATED, SEEN_AT, CHECKPOINT_AT],
)
async def test_a_damaged_remembered_position_is_written_again(server: Server, field: str) -> None:
    await with_pending_3_and_5(server)
    for damage in ("nan", "-1", "9" * 30, "x", "1e9", "²"):
        await server.execute("HSET", KEYS.state, field, damage)
        for _ in range(2):
            if needs_remembering(await observe_group(server, KEYS)):
                await remember_position(server, KEYS, OWNER)
        seen = await observe_group(server, KEYS)
        assert seen.state.seen is not None
        assert seen.state.seen.lowest_pending == EntryId(3)
        assert not needs_remembering(seen)


async def test_only_who_acts_on_the_group_remembers_it(server: Server) -> None:
    await provision(server, KEYS)
    with pytest.raises(NotOurs):
        await remember_position(server, KEYS, an_owner("other"))
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    with pytest.raises(NoSuchGroup):
        await remember_position(server, KEYS, OWNER)
    await server.execute("DEL", KEYS.state)
    await server.execute("SET", KEYS.state, "x")
    with pytest.raises(WrongType):
        await remember_position(server, KEYS, OWNER)
