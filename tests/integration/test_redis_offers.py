"""An offer is reported once, and counts as a recovery only when a worker claims the entry."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.controller.recovery.findings import Findings
from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerKind
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery import suspects
from tests.integration.recovering import (
    DEAD,
    KEYS,
    bodies,
    ledger,
    look,
    pending,
    recorded,
    server_time,
    strand,
    totals,
)
from tests.integration.recovery_moves import SOON
from tests.integration.redis_adapter import connected, endpoint_of
from tests.integration.stream_scanning import a_run, died, scan


@pytest.fixture
async def server(empty_redis: StandaloneServers) -> AsyncIterator[Server]:
    async with connected(endpoint_of(empty_redis)) as connection:
        create = ("XGROUP", "CREATE", KEYS.offer_stream, KEYS.group, 0, "MKSTREAM")
        await connection.execute(*create, key=KEYS.offer_stream)
        yield connection


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offers may be repeated by the very next look, every time."""
    monkeypatch.setattr(suspects, "FIRST_PAUSE", timedelta())
    monkeypatch.setattr(suspects, "LONGEST_PAUSE", timedelta())


async def scan_once(server: Server, **recovery: Any) -> Findings:
    """A scan that finds the dead consumer's process ended."""
    run = await a_run(server, **{"strategy": "Release", **recovery})
    return await scan(run, died(await server_time(server) + SOON))


async def claim(server: Server, *ids: EntryId, worker: str = "other") -> None:
    claim = ("XCLAIM", KEYS.stream, KEYS.group, worker, 0)
    await server.execute(*claim, *map(str, ids), "JUSTID", key=KEYS.stream)


async def read_offers(server: Server) -> int:
    """Have a worker read what is on offer, and die; how many it was given."""
    read = ("XREADGROUP", "GROUP", KEYS.group, "died", "STREAMS", KEYS.offer_stream, ">")
    answer = await server.execute(*read, key=KEYS.offer_stream)
    return sum(len(found) for _, found in answer or ())


@pytest.mark.usefixtures("at_once")
async def test_unclaimed_entries_are_offered_once_and_never_count_as_released(
    server: Server,
) -> None:
    ids = await strand(server, 25)
    first = await scan_once(server)
    assert first.offered == 25
    for _ in range(5):
        again = await scan_once(server)
        assert again.offered == 0 and again.list_events() == []
        assert again.offers is not None and again.offers.untaken == 25
        assert again.report().offered == 25
    assert len(await recorded(server, LedgerKind.RELEASED)) == 25
    assert len(await ledger(server)) == 2  # the group's beginning, and the offer
    assert len(await bodies(server, KEYS.offer_stream)) == 1
    assert (await totals(server))["released"] == 0
    assert set(await pending(server)) == set(ids)


async def test_what_is_taken_is_counted_once_however_it_was_taken(server: Server) -> None:
    claimed, done, read_anew, left = await strand(server, 4)
    await scan_once(server)
    await claim(server, claimed)
    await server.execute("XACK", KEYS.stream, KEYS.group, str(done), key=KEYS.stream)
    offered_at = await server_time(server)
    while await server_time(server) <= offered_at:
        pass
    again = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(read_anew))
    await server.execute(*again, key=KEYS.stream)
    counted = await scan_once(server)
    assert counted.offers is not None
    assert (sum(counted.offers.taken.values()), counted.offers.untaken) == (3, 1)
    assert counted.offers.taken_at is not None
    assert (await totals(server))["released"] == 3
    once_more = await scan_once(server)
    assert once_more.offers is not None and not once_more.offers.taken
    await claim(server, left)
    await scan_once(server)
    assert (await totals(server))["released"] >= 4
    state = await server.execute("HKEYS", KEYS.state, key=KEYS.state)
    assert b"offer:1" not in state


@pytest.mark.usefixtures("at_once")
async def test_an_offer_that_was_read_and_lost_is_repeated_without_a_word(server: Server) -> None:
    await strand(server, 3)
    await scan_once(server)
    assert await read_offers(server) == 1
    repeated = await scan_once(server)
    assert repeated.offers is not None and repeated.offers.repeated == 1
    assert repeated.list_events() == []
    assert await read_offers(server) == 1
    assert len(await recorded(server, LedgerKind.RELEASED)) == 3


async def test_the_pause_before_a_repetition_doubles_up_to_a_bound(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "FIRST_PAUSE", timedelta())
    monkeypatch.setattr(suspects, "LONGEST_PAUSE", timedelta(seconds=20))
    await strand(server, 1)
    await scan_once(server)
    monkeypatch.setattr(suspects, "FIRST_PAUSE", timedelta(seconds=8))
    pauses = []
    for number in (1, 2, 3, 4):
        found = await scan_once(server)
        assert found.offers is not None
        assert (found.offers.repeated, found.offers.due is not None) == (1, True)
        assert found.offers.due is not None
        pauses.append(round((found.offers.due - found.offers.now).total_seconds()))
        name = f"offer:{number + 1}"
        reported = (await server.execute("HGET", KEYS.state, name, key=KEYS.state)).split(b" ")
        reported[1] = b"0"  # its time has come
        await server.execute("HSET", KEYS.state, name, b" ".join(reported), key=KEYS.state)
    assert pauses == [16, 20, 20, 20]


async def test_two_replicas_offer_an_entry_once(server: Server) -> None:
    await strand(server, 5)
    cutoff = await server_time(server) + SOON
    runs = [await a_run(server, strategy="Release") for _ in range(2)]
    found = [await scan(run, died(cutoff)) for run in runs]
    assert [one.offered for one in found] == [5, 0]
    assert len(await recorded(server, LedgerKind.RELEASED)) == 5


async def test_more_offers_than_one_call_looks_at_are_all_counted(server: Server) -> None:
    ids = await strand(server, 950)
    await scan_once(server)
    assert (await look(server)).offers == 10
    await claim(server, *ids[:330], *ids[900:])
    found = await scan_once(server)
    assert found.offers is not None
    assert (sum(found.offers.taken.values()), found.offers.untaken) == (380, 570)
    await claim(server, *ids[330:900])
    await scan_once(server)
    assert (await totals(server))["released"] == 950


async def test_offers_are_withdrawn_and_not_counted_when_the_strategy_changes(
    server: Server,
) -> None:
    ids = await strand(server, 3)
    await scan_once(server)
    await claim(server, ids[0])
    await scan_once(server, strategy="Requeue")
    await scan_once(server, strategy="Requeue")
    reported = await totals(server)
    assert (reported["released"], reported["requeued"]) == (1, 2)
    assert (await look(server)).offers == 0


@pytest.mark.usefixtures("at_once")
async def test_an_unclaimed_offer_does_not_make_the_state_grow(
    server: Server,
) -> None:
    await strand(server, 1)
    await scan_once(server)
    sizes = []
    for _ in range(6):
        found = await strand(server, 2)
        await scan_once(server)
        await claim(server, *found)
        await scan_once(server)
        sizes.append((await look(server)).offers)
    assert max(sizes[2:]) <= 2


async def test_an_entry_deleted_while_offered_does_not_count_as_released(server: Server) -> None:
    gone, _ = await strand(server, 2)
    await scan_once(server)
    await server.execute("XDEL", KEYS.stream, str(gone), key=KEYS.stream)
    await scan_once(server)
    found = await scan_once(server)
    assert found.offers is not None and found.offers.untaken == 1
    reported = await totals(server)
    assert (reported["released"], reported["payload_gone"]) == (0, 1)
    state = await server.execute("HKEYS", KEYS.state, key=KEYS.state)
    assert f"gone:{gone}".encode() not in state
