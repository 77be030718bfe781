"""Copies are given to one group alone, and only where they will be delivered."""

from pelops.domain.records.ledger import LedgerKind
from pelops.errors import PositionAhead, WouldDuplicate
from pelops.redis_core.server import Server
from tests.integration.recovering import (
    KEYS,
    a_context,
    an_order,
    bodies,
    look,
    read_new,
    recorded,
    recover_all,
    strand,
)
from tests.integration.recovery_moves import refuses, settle_one


async def test_b5_a_group_that_appears_after_the_look_is_given_no_copy(server: Server) -> None:
    await strand(server, 2)
    await look(server)
    await server.execute("XGROUP", "CREATE", KEYS.stream, "other", "$", key=KEYS.stream)
    for move in (recover_all, settle_one):
        await refuses(server, move, WouldDuplicate, "2 consumer groups")


async def test_b5_copies_on_the_retry_stream_are_seen_by_no_other_group(server: Server) -> None:
    ids = await strand(server, 5)
    await server.execute("XGROUP", "CREATE", KEYS.stream, "other", "$", key=KEYS.stream)
    make = ("XGROUP", "CREATE", KEYS.retry, KEYS.group, "0", "MKSTREAM")
    await server.execute(*make, key=KEYS.retry)
    context = a_context(target=KEYS.retry, allows_others=True)
    await recover_all(server, context)
    assert len(await bodies(server, KEYS.stream)) == 5
    copies = await read_new(server, KEYS, 10, stream=KEYS.retry)
    assert len(copies) == 5
    back = a_context(source=KEYS.retry, target=KEYS.retry, allows_others=True)
    await recover_all(server, back, an_order(counts_attempt=False))
    again = await read_new(server, KEYS, 10, stream=KEYS.retry)
    reported = await recorded(server, LedgerKind.REQUEUED)
    assert [entry.root_id for entry in reported] == ids * 2
    assert [entry.new_id for entry in reported] == [*copies, *again]


async def test_a_group_ahead_of_its_stream_is_given_no_copy(server: Server) -> None:
    """Rule A5: it would never be delivered."""
    await strand(server, 2)
    ahead = ("XGROUP", "SETID", KEYS.stream, KEYS.group, "9999999999999-0")
    await server.execute(*ahead, key=KEYS.stream)
    for move in (recover_all, settle_one):
        await refuses(server, move, PositionAhead, "9999999999999-0")
