"""Delivery counts as large as a server can hold: XCLAIM RETRYCOUNT and XNACK FATAL set them."""

from typing import Final

import pytest

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.ledger import ENTRY_WORDS, MOST_DELIVERIES
from pelops.redis_core.server import Server
from pelops.redis_streams.inspection.group_view import read_pending
from pelops.redis_streams.recovery.consumers import list_lowest_owners, list_pending_of
from tests.integration.recovering import DEAD, KEYS, bodies, server_time
from tests.integration.stream_scanning import (
    COUNTED,
    HOUR,
    a_run,
    add_old,
    died,
    make_idle,
    moved,
    scan,
)

LARGEST: Final = 2**63 - 1


async def count(server: Server, entry_id: EntryId, number: int = LARGEST) -> None:
    """Have the entry be delivered so often, an hour ago."""
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(entry_id), "IDLE", 3_600_000)
    await server.execute(*claim, "RETRYCOUNT", number, "JUSTID", key=KEYS.stream)


async def read_history(server: Server, entry_id: EntryId) -> None:
    """One more delivery: a count of 2^63 - 1 wraps, and the server answers a negative one."""
    before = f"{entry_id.ms}-{entry_id.seq - 1}"
    read = ("XREADGROUP", "GROUP", KEYS.group, DEAD, "COUNT", 1, "STREAMS", KEYS.stream, before)
    await server.execute(*read, key=KEYS.stream)


async def strand_with_a_huge_count(
    server: Server, *pairs: str | int, wraps: bool
) -> tuple[list[EntryId], EntryId]:
    """20 idle entries of a consumer, and the one among them whose count is huge."""
    ids = await add_old(server, 20, *pairs)
    await make_idle(server, ids)
    await count(server, ids[7])
    if wraps:
        await read_history(server, ids[7])
        claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(ids[7]), "IDLE", 3_600_000)
        await server.execute(*claim, "JUSTID", key=KEYS.stream)
    return ids, ids[7]


async def deliveries(server: Server, kind: str) -> dict[EntryId, int]:
    """What acts of this kind wrote to the ledger about entries."""
    place = ENTRY_WORDS.index("deliveries")
    return {
        parse_entry_id(name): int(words.split()[place])
        for pairs in (await bodies(server, KEYS.ledger)).values()
        if pairs[1] == kind.encode()
        for name, words in zip(pairs[::2], pairs[1::2], strict=True)
        if b"-" in name
    }


wrapping = pytest.mark.parametrize("wraps", [False, True])


@wrapping
async def test_idle_entries_are_requeued_whatever_their_delivery_count(
    server: Server, *, wraps: bool
) -> None:
    ids, huge = await strand_with_a_huge_count(server, wraps=wraps)
    await scan(await a_run(server))
    assert await moved(server) == ids
    assert (await deliveries(server, "requeued"))[huge] == MOST_DELIVERIES


@wrapping
async def test_entries_of_a_dead_pod_are_requeued_whatever_their_delivery_count(
    server: Server, *, wraps: bool
) -> None:
    ids, huge = await strand_with_a_huge_count(server, wraps=wraps)
    await scan(await a_run(server), died(await server_time(server) + HOUR))
    assert await moved(server) == ids
    assert (await deliveries(server, "requeued"))[huge] == MOST_DELIVERIES


@wrapping
async def test_a_suspect_becomes_a_dead_letter_whatever_its_count(
    server: Server, *, wraps: bool
) -> None:
    ids = await add_old(server, 1, *COUNTED)
    await make_idle(server, ids)
    await count(server, ids[0])
    if wraps:
        await read_history(server, ids[0])
    await scan(await a_run(server, max_retries=1), died(await server_time(server) + HOUR))
    assert await deliveries(server, "dead-lettered") == {ids[0]: MOST_DELIVERIES}
    (letter,) = (await bodies(server, KEYS.dead_letter)).values()
    assert letter[letter.index(b"_delivery_count") + 1] == b"%d" % MOST_DELIVERIES


@wrapping
async def test_what_is_offered_is_recorded_whatever_its_count(
    server: Server, *, wraps: bool
) -> None:
    ids, huge = await strand_with_a_huge_count(server, wraps=wraps)
    run = await a_run(server, strategy="Release")
    await scan(run, died(await server_time(server) + HOUR))
    assert set(await deliveries(server, "released")) == set(ids)
    assert (await deliveries(server, "released"))[huge] == MOST_DELIVERIES


@wrapping
async def test_lists_of_pending_entries_show_the_largest_delivery_count(
    server: Server, *, wraps: bool
) -> None:
    ids, huge = await strand_with_a_huge_count(server, wraps=wraps)
    asked = ("XPENDING", KEYS.stream, KEYS.group, str(huge), str(huge), 1)
    (line,) = await server.execute(*asked, key=KEYS.stream)
    assert read_pending(line, await server_time(server)).deliveries == MOST_DELIVERIES
    assert await list_lowest_owners(server, KEYS.stream, KEYS.group, count=50) == [DEAD]
    pages = [page async for page in list_pending_of(server, KEYS.stream, KEYS.group, DEAD)]
    assert [one for page in pages for one, _ in page] == ids
