"""No entry is lost or stops the others, however odd: wide, large, gone, named twice."""

from datetime import timedelta

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.recovery import EntryVerdict
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.stuck_entries import recover_entries
from tests.integration.recovering import (
    DEAD,
    KEYS,
    a_context,
    an_order,
    bodies,
    ledger,
    pending,
    read_new,
    recorded,
    recover_all,
    strand,
    totals,
)
from tests.integration.recovery_moves import settle_one
from tests.integration.redis_adapter import provision


async def test_b3_an_entry_that_cannot_be_copied_does_not_stop_the_others(server: Server) -> None:
    await provision(server, KEYS)
    wide = [b"f", b"v"] * 3_901
    for pairs in ([b"n", b"1"], wide, [b"f", b"v"] * 4_500, [b"n", b"2"], wide[2:]):
        await server.execute("XADD", KEYS.stream, "*", *pairs, key=KEYS.stream)
    ids = await read_new(server, KEYS, 10)
    batches = await recover_all(server)
    assert sum(batch.moved for batch in batches) == 3
    stays = {one: verdict for batch in batches for one, verdict in batch.stays}
    assert stays[ids[1]] == stays[ids[2]] == EntryVerdict.TOO_WIDE
    assert set(await pending(server)) == {ids[1], ids[2]}


@pytest.mark.parametrize("count", [b"banana", b"", b"nan", b"-5", b"0x10", b"1e400", b"1234567"])
async def test_b3_a_users_own_field_under_our_name_stays_as_it_is(
    server: Server, count: bytes
) -> None:
    await provision(server, KEYS)
    pairs = [b"_original_id", b"1-1", b"_retry_count", count]
    await server.execute("XADD", KEYS.stream, "*", *pairs, key=KEYS.stream)
    (entry_id,) = await read_new(server, KEYS, 1)
    await recover_all(server)
    ours = [b"_original_id", str(entry_id).encode(), b"_retry_count", b"1"]
    assert list((await bodies(server, KEYS.stream)).values())[-1] == [*pairs, *ours]


async def test_a_forged_count_of_failed_attempts_is_bounded(server: Server) -> None:
    """A count of more than six digits is not recognized, and would end the chain of copies."""
    await provision(server, KEYS)
    pairs = [b"a", b"1", b"_original_id", b"1-1", b"_retry_count", b"999999"]
    await server.execute("XADD", KEYS.stream, "*", *pairs, key=KEYS.stream)
    await read_new(server, KEYS, 1)
    batches = await recover_all(server)
    assert [one.attempts for batch in batches for one in batch.suspects] == [1001]


async def test_b6_large_bodies_are_moved_in_bounded_pieces(server: Server) -> None:
    """100 entries of 2 MB, each in a script of its own, or with few others."""
    await strand(server, 100, value=b"x" * 2_000_000)
    batches = await recover_all(server)
    assert sum(batch.moved for batch in batches) == 100
    assert max(batch.moved for batch in batches) == 1
    verdicts = {verdict for batch in batches for _, verdict in batch.stays}
    assert verdicts == {EntryVerdict.NEXT_BATCH}


async def test_a_stream_that_takes_no_more_entries_gives_dead_letters(server: Server) -> None:
    ids = await strand(server, 3)
    await server.execute("XADD", KEYS.stream, str(EntryId.MAX), "f", "v", key=KEYS.stream)
    await recover_all(server)
    assert await pending(server) == {}
    letters = list((await bodies(server, KEYS.dead_letter)).values())
    assert [letter[:4] for letter in letters] == [[b"n", b"%d" % n, b"f", b"v"] for n in (1, 2, 3)]
    reported = await recorded(server, LedgerKind.DEAD_LETTERED)
    assert [entry.entry_id for entry in reported] == ids
    assert (await ledger(server))[-1].details["reason"] == "StreamExhausted"
    assert (await totals(server))["dead_lettered"] == 3


async def test_ids_may_be_named_twice_and_in_any_order(server: Server) -> None:
    """A body that lies elsewhere is not gone."""
    ids = await strand(server, 20)
    named = [(one, timedelta()) for one in (*reversed(ids), ids[3])]
    batch = await recover_entries(server, a_context(), an_order(), named)
    assert (batch.moved, batch.gone) == (20, 0)
    assert len(await bodies(server, KEYS.stream)) == 40


async def test_a_damaged_total_or_co_failed_does_not_stop_recovery(server: Server) -> None:
    await strand(server, 2)
    damaged = ("total:requeued", "many", f"crowd:{DEAD}", "yesterday")
    await server.execute("HSET", KEYS.state, *damaged, key=KEYS.state)
    await settle_one(server)
    await recover_all(server)
    assert await pending(server) == {}
