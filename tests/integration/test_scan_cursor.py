"""A scan that stops early leaves a cursor, and no entry is passed by for ever."""

from datetime import timedelta

import pytest

from pelops.api.group.recovery import RecoverySpec
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.scan import AFTER_A_PART, StreamScan
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.recovery import Trigger
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import FIRST_PAGE, PAGE, SEEKABLE
from tests.integration.recovering import KEYS, a_context, bodies, look, pending, read_new, strand
from tests.integration.stream_scanning import (
    HOUR,
    a_run,
    add_old,
    cursor,
    died,
    make_idle,
    moved,
    scan,
    write_cursor,
)


async def test_a_scan_stops_after_so_many_pages_and_the_next_goes_on(server: Server) -> None:
    number = FIRST_PAGE + 50
    ids = await add_old(server, number)
    await make_idle(server, ids)
    findings = await scan(await a_run(server), most_pages=1)
    assert await moved(server) == ids[:FIRST_PAGE]
    assert await cursor(server) == str(ids[FIRST_PAGE - 1])
    assert findings.earliest == AFTER_A_PART
    findings = await scan(await a_run(server), most_pages=1)
    assert await moved(server) == ids
    assert await cursor(server) == ""
    assert findings.earliest is None


async def test_nothing_is_skipped_when_entries_are_moved_meanwhile(server: Server) -> None:
    """Entries before and after the cursor, and the cursor's own, are acknowledged between scans."""
    number = 3 * FIRST_PAGE + 10
    ids = await add_old(server, number)
    alive = ids[FIRST_PAGE - 10 : FIRST_PAGE]
    await make_idle(server, ids)
    await make_idle(server, alive, owner="alive", idle=timedelta())
    gone: set[EntryId] = set()
    for _ in range(10):
        await scan(await a_run(server), most_pages=1)
        left = sorted(set(await pending(server)) - set(alive))
        taken = left[:3] + left[-3:]
        gone |= set(taken)
        if taken:
            words = [str(one) for one in taken]
            await server.execute("XACK", KEYS.stream, KEYS.group, *words, key=KEYS.stream)
        if not await cursor(server):
            break
    assert set(await pending(server)) == set(alive)
    assert sorted(await moved(server)) == sorted(set(ids) - set(alive) - gone)


@pytest.mark.full
async def test_every_page_of_very_many_entries_is_looked_at_once_per_round(server: Server) -> None:
    """The entries of living workers are passed by; the idle one behind them is reached."""
    ids = await add_old(server, SEEKABLE + PAGE)
    await make_idle(server, ids[-1:])
    reached = []
    for _ in range(1 + (SEEKABLE + PAGE) // (10 * PAGE)):
        assert await moved(server) == []
        await scan(await a_run(server), most_pages=10)
        reached.append(await cursor(server))
    assert await moved(server) == ids[-1:]
    assert reached.pop() == ""
    stops = [parse_entry_id(one) for one in reached]
    assert stops == sorted(set(stops))


@pytest.mark.parametrize(
    "damaged",
    ["banana", "-", "+", "$", "(5-1", "5-1 6-1", "9" * 30 + "-1", f"{2**64 - 1}-{2**64 - 1}"],
)
async def test_a_damaged_cursor_counts_as_none(server: Server, damaged: str) -> None:
    ids = await add_old(server, 3)
    await make_idle(server, ids)
    await write_cursor(server, damaged)
    await scan(await a_run(server), most_pages=1)
    assert await moved(server) == ids
    assert await cursor(server) == ""


async def test_a_cursor_beyond_the_end_is_cleared(
    server: Server,
) -> None:
    ids = await add_old(server, 3)
    await make_idle(server, ids)
    await write_cursor(server, "9999999999999-1")
    await scan(await a_run(server), most_pages=1)
    assert await cursor(server) == ""
    await scan(await a_run(server), most_pages=1)
    assert await moved(server) == ids


async def test_dead_owners_do_not_wait_for_the_cursor(server: Server) -> None:
    ids = await add_old(server, 3)
    await write_cursor(server, str(ids[-1]))
    run = await a_run(server)
    await scan(run, died(run.observation.now + HOUR), most_pages=1)
    assert await moved(server) == ids


async def test_a_partial_scan_does_not_show_that_an_entry_failed_in_isolation(
    server: Server,
) -> None:
    """Invariant 11: what failed with it may lie in the other part."""
    ids = await add_old(server, FIRST_PAGE + 1)
    await make_idle(server, [ids[0], ids[-1]])
    for _ in range(2):
        await scan(await a_run(server, max_retries=0), most_pages=1)
    assert await bodies(server, KEYS.dead_letter) == {}
    assert await moved(server) == [ids[0]]


async def test_the_retry_stream_is_scanned_whole_and_leaves_the_cursor_alone(
    server: Server,
) -> None:
    await strand(server, 1)
    await write_cursor(server, "7-0")
    await server.execute(
        "XGROUP", "CREATE", KEYS.retry, KEYS.group, "0", "MKSTREAM", key=KEYS.retry
    )
    for n in range(FIRST_PAGE + 5):
        await server.execute("XADD", KEYS.retry, f"{n + 1}-1", "f", "v", key=KEYS.retry)
    ids = await read_new(server, KEYS, FIRST_PAGE + 5, stream=KEYS.retry)
    await make_idle(server, ids, stream=KEYS.retry)
    observation = await look(server, with_retry=True)
    assert observation.retry is not None
    run = StreamScan(
        server=server,
        context=a_context(source=KEYS.retry, target=KEYS.retry, allows_others=True),
        recovery=RecoverySpec(),
        observation=observation,
        stream=observation.retry,
        findings=Findings(trigger=Trigger.SCAN),
    )
    await scan(run, most_pages=1)
    assert await moved(server) == ids
    assert await cursor(server) == "7-0"
