"""Suspects are copied with what is known of them, offered, or made dead letters."""

import pytest

from pelops.domain.records.ledger import LedgerKind
from pelops.domain.recovery import Action, EntryVerdict
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.suspects import offer_entries, settle_suspects
from tests.integration.recovering import (
    DEAD,
    KEYS,
    LETTER,
    a_context,
    a_plan,
    an_order,
    bodies,
    look,
    pending,
    read_new,
    recorded,
    recover_all,
    server_time,
    settlement,
    strand,
)
from tests.integration.recovery_moves import SOON, settle_one


async def test_a_suspect_is_copied_with_its_charges_and_becomes_the_chunk(server: Server) -> None:
    ids = await strand(server, 2)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(settlement(ids[0]), settlement(ids[1], Action.FREE), cutoff=cutoff)
    done = await settle_suspects(server, a_context(), plan, owner, **LETTER)
    copies = [one for one in await bodies(server, KEYS.stream) if one not in ids]
    assert done.retry_batch == str(copies[0])
    observation = await look(server)
    assert observation.retry_batch.under_way == {copies[0]}
    await read_new(server, KEYS, 2)
    batches = await recover_all(server)
    suspects = [one for batch in batches for one in batch.suspects]
    assert [(one.entry_id, one.attempts, one.isolated_failures) for one in suspects] == [
        (copy, 2, 1) for copy in copies
    ]


async def test_an_uncharged_copy_inherits_what_is_known_of_its_failures(server: Server) -> None:
    """Else an entry that keeps failing in isolation between planned ends is never dead-lettered."""
    await strand(server, 1)
    await settle_one(server)
    await read_new(server, KEYS, 1)
    await recover_all(server, order=an_order(counts_attempt=False))
    await read_new(server, KEYS, 1)
    (batch,) = await recover_all(server)
    assert [(one.attempts, one.isolated_failures) for one in batch.suspects] == [(2, 1)]


async def test_a_dead_letter_holds_the_entry_and_what_is_known_of_it(server: Server) -> None:
    (entry_id,) = await strand(server, 1)
    await settle_one(server, Action.DEAD)
    assert await pending(server) == {}
    (letter,) = (await bodies(server, KEYS.dead_letter)).values()
    reported = dict(zip(letter[::2], letter[1::2], strict=True))
    assert reported[b"n"] == b"1"
    assert reported[b"_original_id"] == str(entry_id).encode()
    assert reported[b"_consumer"] == DEAD.encode()
    assert reported[b"_reason"] == b"MaxRetriesExceeded"
    assert reported[b"_retry_count"] == b"2"


@pytest.mark.full
async def test_more_suspects_than_a_script_takes_are_settled_in_pieces(server: Server) -> None:
    ids = await strand(server, 4_500)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.FREE) for one in ids), cutoff=cutoff)
    done = await settle_suspects(server, a_context(batch=1_000), plan, owner, **LETTER)
    assert done.copied == 4_500
    assert await pending(server) == {}


@pytest.mark.full
async def test_more_entries_than_a_script_takes_are_offered_in_pieces(server: Server) -> None:
    ids = await strand(server, 4_500)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one) for one in ids), cutoff=cutoff)
    done = await offer_entries(server, a_context(), plan, owner, reason="offered")
    assert done.copied == 4_500
    assert (await look(server)).retry_batch.under_way == set(ids)
    assert len(await recorded(server, LedgerKind.RELEASED)) == 4_500


async def test_what_was_offered_is_known_until_it_is_delivered_again(server: Server) -> None:
    (entry_id,) = await strand(server, 1)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(settlement(entry_id), cutoff=cutoff)
    await offer_entries(server, a_context(), plan, owner, reason="offered")
    (batch,) = await recover_all(server, order=an_order(recovers=False))
    assert [one.was_offered for one in batch.suspects] == [True]
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(entry_id), "IDLE", 60_000)
    await server.execute(*claim, key=KEYS.stream)
    (batch,) = await recover_all(server, order=an_order(recovers=False))
    assert [one.was_offered for one in batch.suspects] == [False]


async def test_a_delivery_is_offered_once_and_reported_once(server: Server) -> None:
    ids = await strand(server, 3)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.FREE) for one in ids), cutoff=cutoff)
    first = await offer_entries(server, a_context(), plan, owner, reason="offered")
    again = await offer_entries(server, a_context(), plan, owner, reason="offered")
    assert (first.copied, again.copied) == (3, 0)
    assert {verdict for _, verdict in again.stays} == {EntryVerdict.OFFERED}
    assert len(await recorded(server, LedgerKind.RELEASED)) == 3
