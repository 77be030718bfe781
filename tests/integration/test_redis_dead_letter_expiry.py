"""Dead letters and ledger events expire by age alone, and the ledger records the expiry."""

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerKind
from pelops.redis_core.server import Server
from pelops.redis_streams.group.maintenance import expire_dead_letters
from tests.integration.redis_adapter import (
    provision,
    writes_so_far,
)
from tests.integration.retaining import (
    DAY,
    KEYS,
    OWNER,
    events,
    fill_letters,
    fill_with,
    first_and_length,
    letter_pairs,
)


async def letters(server: Server, now_ms: int) -> None:
    """150 dead letters of ten days ago, and 3 of today."""
    await fill_letters(server, 150, ms=now_ms - 10 * 86_400_000)
    await fill_letters(server, 3, ms=now_ms)


async def test_dead_letters_expire_by_age_and_that_is_reported(server: Server) -> None:
    await provision(server, KEYS)
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    await letters(server, now_ms)
    gone = 0
    while (outcome := await expire_dead_letters(server, KEYS, OWNER, kept=7 * DAY)).may_continue:
        gone += outcome.letters
        last = outcome.last_id
    assert gone == 150
    assert await first_and_length(server, KEYS.dead_letter) == (f"{now_ms}-1", 3)
    reported = await events(server, LedgerKind.DEAD_LETTERS_EXPIRED)
    assert sum(int(event.details["count"]) for event in reported) == 150
    assert reported[-1].details["last_id"] == f"{now_ms}-0" == str(last)
    assert (await expire_dead_letters(server, KEYS, OWNER, kept=7 * DAY)).last_id is None


async def test_dead_letters_are_kept_however_many_there_are(
    server: Server, empty_redis: StandaloneServers
) -> None:
    """A6."""
    await provision(server, KEYS)
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    await letters(server, now_ms)
    before = writes_so_far(empty_redis)
    outcome = await expire_dead_letters(server, KEYS, OWNER, kept=14 * DAY)
    assert (outcome.letters, outcome.records, outcome.may_continue) == (0, 0, False)
    assert writes_so_far(empty_redis) == before
    assert (await first_and_length(server, KEYS.dead_letter))[1] == 153


async def test_when_all_dead_letters_expire_the_last_of_them_is_named(server: Server) -> None:
    await provision(server, KEYS)
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    await fill_letters(server, 5, ms=now_ms - 10 * 86_400_000)
    outcome = await expire_dead_letters(server, KEYS, OWNER, kept=DAY)
    assert (outcome.letters, outcome.last_id) == (5, EntryId(now_ms - 10 * 86_400_000, 5))


async def test_the_ledger_is_kept_for_a_week(server: Server) -> None:
    """C5."""
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    for days in (8, 6):
        ms = now_ms - days * 86_400_000
        await fill_with(server, KEYS.ledger, ["kind", "bookmark"], 5, ms=ms)
    await provision(server, KEYS)
    outcome = await expire_dead_letters(server, KEYS, OWNER, kept=DAY)
    assert (outcome.records, outcome.letters) == (5, 0)
    assert await first_and_length(server, KEYS.ledger) == (f"{now_ms - 6 * 86_400_000}-1", 6)


async def test_discarded_letters_expire_by_age_after_the_dead_letters(server: Server) -> None:
    await provision(server, KEYS)
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    old_ms = now_ms - 10 * 86_400_000
    await fill_letters(server, 5, ms=old_ms)
    for ms in (old_ms, now_ms):
        await fill_with(server, KEYS.discarded, letter_pairs(KEYS), 4, ms=ms)
    await server.execute("HSET", KEYS.state, "owned:discarded", "1", key=KEYS.state)
    found = []
    while (outcome := await expire_dead_letters(server, KEYS, OWNER, kept=7 * DAY)).may_continue:
        found.append((outcome.letters, outcome.discarded))
    assert found == [(5, 0), (0, 4)]
    assert await first_and_length(server, KEYS.discarded) == (f"{now_ms}-1", 4)
    assert len(await events(server, LedgerKind.DEAD_LETTERS_EXPIRED)) == 1


async def test_foreign_entries_among_discarded_dead_letters_are_kept(server: Server) -> None:
    await provision(server, KEYS)
    await server.execute("HSET", KEYS.state, "owned:discarded", "1", key=KEYS.state)
    await fill_with(server, KEYS.discarded, ["f", "v"], 4, ms=1)
    assert not (await expire_dead_letters(server, KEYS, OWNER, kept=DAY)).may_continue
    assert await first_and_length(server, KEYS.discarded) == ("1-1", 4)
