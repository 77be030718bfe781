"""What is offered to waiting workers stays in its place, and one of them takes it."""

import asyncio

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.domain.recovery import Action, EntryVerdict
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.suspects import offer_entries
from tests.integration.recovering import (
    DEAD,
    KEYS,
    a_context,
    a_plan,
    an_order,
    bodies,
    look,
    recorded,
    recover_all,
    server_time,
    settlement,
    strand,
)
from tests.integration.recovery_moves import SOON
from tests.integration.redis_adapter import connected, endpoint_of


async def claim_announced(server: Server, claimer: str) -> list[EntryId]:
    """Claim like a waiting worker: what the offered owner holds since before the cutoff."""
    claimed: list[EntryId] = []
    for fields in (await bodies(server, KEYS.offer_stream)).values():
        reported = dict(zip(fields[::2], fields[1::2], strict=True))
        for word in reported[b"ids"].split():
            script = (
                "local t = redis.call('TIME') "
                "local now = t[1] * 1000 + math.floor(t[2] / 1000) "
                "local e = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1] "
                "if not e or e[2] ~= ARGV[4] or now - e[3] >= tonumber(ARGV[5]) then return 0 end "
                "return #redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'JUSTID')"
            )
            args = (KEYS.group, claimer, word, reported[b"consumer"], reported[b"before"])
            if await server.execute("EVAL", script, 1, KEYS.stream, *args, key=KEYS.stream):
                claimed.append(parse_entry_id(word))
    return claimed


async def test_b8_what_is_announced_twice_is_taken_once_in_its_place(
    server: Server, empty_redis: StandaloneServers
) -> None:
    ids = await strand(server, 100)
    cutoff = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.FREE) for one in ids), cutoff=cutoff)
    await offer_entries(server, a_context(), plan, owner, reason="offered")
    ((_, reported),) = (await bodies(server, KEYS.offer_stream)).items()
    await server.execute(
        "XADD", KEYS.offer_stream, "*", *reported, key=KEYS.offer_stream
    )  # a repetition
    endpoint = endpoint_of(empty_redis)
    async with connected(endpoint) as second, connected(endpoint) as third:
        taken = await asyncio.gather(
            *(claim_announced(one, f"c{n}") for n, one in enumerate((server, second, third)))
        )
    assert sorted(one for some in taken for one in some) == ids
    assert len(await bodies(server, KEYS.stream)) == 100
    again = await offer_entries(server, a_context(), plan, owner, reason="offered")
    assert again.copied == 0
    assert {verdict for _, verdict in again.stays} == {EntryVerdict.OTHER_OWNER}


async def test_a1_an_offer_leaves_entries_that_a_restarted_owner_read_again(
    server: Server,
) -> None:
    read_again, left = await strand(server, 2)
    delivered = await server_time(server)
    while (cutoff := await server_time(server)) <= delivered:
        pass
    plan, owner = a_plan(settlement(read_again), settlement(left), cutoff=cutoff)
    await offer_entries(server, a_context(), plan, owner, reason="offered")
    history = ("XREADGROUP", "GROUP", KEYS.group, DEAD, "COUNT", 1, "STREAMS", KEYS.stream, "0")
    await server.execute(*history, key=KEYS.stream)
    assert await claim_announced(server, "c1") == [left]


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
