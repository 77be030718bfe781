"""Every idle entry is found, without a read of entries that cannot be idle."""

from datetime import timedelta
from random import Random

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import PendingEntry
from pelops.errors import NoSuchGroup
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import FIRST_PAGE, PAGE, SEEKABLE, find_idle
from tests.integration.recovering import DEAD, KEYS, look, pending, read_new, server_time, strand
from tests.integration.redis_adapter import (
    provision,
)

MINUTE = timedelta(minutes=1)


async def found_idle(server: Server, idle: timedelta) -> tuple[list[PendingEntry], int]:
    """All that was found, and in how many pages."""
    pages = find_idle(server, (await look(server)).stream, KEYS.group, idle=idle)
    found = [page async for page, _ in pages]
    return [one for page in found for one in page], len(found)


@pytest.mark.parametrize("ids_are", ["old", "mixed", "in the future"])
@pytest.mark.parametrize("number", [0, 1, 99, 100, 101, 700])
async def test_what_is_idle_is_found_exactly_as_by_looking_at_everything(
    server: Server, ids_are: str, number: int
) -> None:
    chance = Random(number)
    await provision(server, KEYS)
    now_ms = int((await server_time(server)).timestamp() * 1000)
    for n in range(number):
        age_ms = chance.randrange(10_000_000) if ids_are == "mixed" else 20_000_000 - n
        when = 9_999_999_999_999 if ids_are == "in the future" else now_ms - 20_000_000
        made = max(when, 0) + n if ids_are != "mixed" else now_ms - 20_000_000 + n * 10
        await server.execute("XADD", KEYS.stream, f"{made}-{age_ms % 7}", "f", "v", key=KEYS.stream)
    ids = await read_new(server, KEYS, number or 1, consumer=DEAD)
    for entry_id in ids:
        idle_ms = chance.choice([0, 1_000, 300_000, 500_000, 10_000_000])
        claim = ("XCLAIM", KEYS.stream, KEYS.group, f"c{chance.randrange(3)}", 0, str(entry_id))
        await server.execute(*claim, "IDLE", idle_ms, key=KEYS.stream)
    for limit_ms in (1, 250_000, 400_000, 9_000_000, 20_000_000_000):
        limit = timedelta(milliseconds=limit_ms)
        found, _ = await found_idle(server, limit)
        everything = await pending(server)
        # What came of age between the two looks may be in one of them alone.
        sure = {one for one, held in everything.items() if held.idle_ms >= limit_ms + 2_000}
        perhaps = {one for one, held in everything.items() if held.idle_ms >= limit_ms}
        assert sure <= {one.entry_id for one in found} <= perhaps
        assert len({one.entry_id for one in found}) == len(found)
        for one in found:
            assert one.owner == everything[one.entry_id].owner


async def test_b6_an_entry_with_an_id_in_the_future_is_found(server: Server) -> None:
    await provision(server, KEYS)
    await server.execute("XADD", KEYS.stream, "9999999999999-1", "f", "v", key=KEYS.stream)
    await read_new(server, KEYS, 1)
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, "9999999999999-1", "IDLE", 10**6)
    await server.execute(*claim, key=KEYS.stream)
    found, _ = await found_idle(server, MINUTE)
    assert [one.entry_id for one in found] == [EntryId(9_999_999_999_999, 1)]


async def test_entries_younger_than_the_limit_are_not_visited(server: Server) -> None:
    """What was created a moment ago cannot have been idle for an hour."""
    await strand(server, 5_000)
    assert await found_idle(server, timedelta(hours=1)) == ([], 1)


async def test_many_pending_entries_are_visited_page_by_page(server: Server) -> None:
    """No call holds the server for longer than a page, however many are alive."""
    number = SEEKABLE + 1_000
    await strand(server, number)
    await server.execute("XADD", KEYS.stream, "9999999999999-1", "f", "v", key=KEYS.stream)
    found, pages = await found_idle(server, timedelta(hours=1))
    assert found == []
    assert pages == 1 + (number - FIRST_PAGE) // PAGE + 1
    everything, _ = await found_idle(server, timedelta())
    assert len(everything) == number


async def test_few_old_entries_are_sought_in_few_calls(server: Server) -> None:
    ids = await strand(server, 5_000)
    await server.execute("XADD", KEYS.stream, "9999999999999-1", "f", "v", key=KEYS.stream)
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(ids[4_000]), "IDLE", 10**7)
    await server.execute(*claim, key=KEYS.stream)
    found, pages = await found_idle(server, timedelta(hours=1))
    assert [one.entry_id for one in found] == [ids[4_000]]
    assert pages == 2


async def test_without_the_group_nothing_can_be_found(server: Server) -> None:
    await strand(server, 1)
    observation = await look(server)
    destroy = ("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    await server.execute(*destroy, key=KEYS.stream)
    with pytest.raises(NoSuchGroup):
        [page async for page in find_idle(server, observation.stream, KEYS.group, idle=MINUTE)]
