"""Entries beyond `maxEntryBytes` are read once, never copied, and reported."""

from __future__ import annotations

from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Action, EntryVerdict
from pelops.redis_core.server import Server
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import return_copies
from pelops.redis_streams.recovery.suspects import settle_suspects
from tests.integration.recovering import (
    KEYS,
    LETTER,
    a_context,
    a_plan,
    an_order,
    bodies,
    look,
    pending,
    read_new,
    recover_all,
    server_time,
    settlement,
)
from tests.integration.recovery_moves import SOON
from tests.integration.redis_adapter import an_owner, provision
from tests.integration.stream_scanning import a_run, add_old, make_idle, scan

SMALL, LARGE, LIMIT = b"v" * 100, b"v" * 5_000, 4_096
ACT = a_context(max_entry_bytes=LIMIT)


async def _strand(server: Server, *values: bytes) -> list[str]:
    """Have the dead consumer hold entries of these sizes; their IDs."""
    await provision(server, KEYS)
    for value in values:
        await server.execute("XADD", KEYS.stream, "*", "f", value, key=KEYS.stream)
    return [str(one) for one in await read_new(server, KEYS, len(values))]


async def _bodies_read(server: Server) -> int:
    """How often a stream's entries were read, by commands of scripts too."""
    stats = (await server.execute("INFO", "commandstats")).decode()
    return next(
        (
            int(line.split("calls=")[1].split(",")[0])
            for line in stats.splitlines()
            if line.startswith("cmdstat_xrange:")
        ),
        0,
    )


async def test_a_large_entry_stays_pending_and_its_neighbours_move(server: Server) -> None:
    """M5."""
    ids = await _strand(server, SMALL, LARGE, SMALL, SMALL, LARGE, SMALL)
    batches = await recover_all(server, ACT)
    large = {ids[1], ids[4]}
    assert {str(one) for one in await pending(server)} == large
    stays = {str(one): why for batch in batches for one, why in batch.stays}
    assert stays == dict.fromkeys(large, EntryVerdict.TOO_LARGE)
    assert len(await bodies(server, KEYS.stream)) == 6 + 4
    assert await bodies(server, KEYS.dead_letter) == {}


async def test_a_large_entry_is_recovered_once_the_limit_is_raised(
    server: Server,
) -> None:
    await _strand(server, LARGE, LARGE)
    await recover_all(server, ACT)
    before = await _bodies_read(server)
    for _ in range(3):
        await recover_all(server, ACT)
    assert await _bodies_read(server) == before
    await recover_all(server, a_context(max_entry_bytes=2 * LIMIT))
    assert await pending(server) == {}


async def test_a_large_suspect_is_neither_copied_nor_made_a_dead_letter(server: Server) -> None:
    await _strand(server, LARGE, LARGE, SMALL)
    ids = list(await pending(server))
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(
        *(
            settlement(one, what)
            for one, what in zip(ids, (Action.DEAD, Action.RETRY, Action.DEAD), strict=True)
        ),
        cutoff=cutoff,
    )
    done = await settle_suspects(server, ACT, plan, owner, **LETTER)
    assert (done.copied, done.dead) == (0, 1)
    assert dict(done.stays) == dict.fromkeys(ids[:2], EntryVerdict.TOO_LARGE)
    assert list(await pending(server)) == ids[:2]


async def test_with_release_a_large_entry_is_answered_and_read_once(server: Server) -> None:
    ids = await _strand(server, LARGE)
    order = an_order(recovers=False)
    (first,) = await recover_all(server, ACT, order)
    before = await _bodies_read(server)
    (second,) = await recover_all(server, ACT, order)
    assert [str(one.entry_id) for one in first.suspects] == ids
    assert [one.entry_id for one in second.suspects] == [one.entry_id for one in first.suspects]
    assert await _bodies_read(server) == before


async def test_a_large_entry_that_is_acknowledged_is_forgotten(server: Server) -> None:
    ids = await _strand(server, LARGE, LARGE)
    await recover_all(server, ACT)
    await server.execute("XACK", KEYS.stream, KEYS.group, ids[0])
    await look(server)
    (known,) = await server.execute("HMGET", KEYS.state, "large")
    assert known.decode() == f"{ids[1]}:{len(LARGE) + 1}"
    await server.execute("XACK", KEYS.stream, KEYS.group, ids[1])
    await look(server)
    assert await server.execute("HMGET", KEYS.state, "large") == [None]


async def test_a_scan_reports_large_entries(server: Server) -> None:
    ids = await add_old(server, 1, "f", LARGE)
    await make_idle(server, ids)
    run = await a_run(server, context={"max_entry_bytes": LIMIT})
    report = (await scan(run)).report()
    assert (report.unmovable, report.unmovable_example) == (1, str(ids[0]))


async def test_a_large_copy_stays_in_a_former_retry_stream(server: Server) -> None:
    await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner(), with_retry=True)
    for value in (SMALL, LARGE, SMALL):
        await server.execute(
            "XADD", KEYS.retry, "*", "f", value, "_original_id", "1-1", "_retry_count", "1"
        )
    returned = await return_copies(
        server,
        KEYS,
        an_owner(),
        field_prefix="_",
        actor="r-1",
        reason="asked",
        max_entry_bytes=LIMIT,
    )
    assert (returned.moved, returned.stayed) == (2, 1)
    assert len(await bodies(server, KEYS.retry)) == 1
