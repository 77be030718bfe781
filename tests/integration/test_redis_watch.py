"""Entries that are removed between two observations: what may be lost is recorded, once."""

import asyncio

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import CHECKPOINT_AT, WATCH, PossibleLoss
from pelops.policy.group.losses import find_new_loss
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.maintenance import record_loss, remember_position
from tests.integration.position_cases import KEYS, OWNER, acknowledge, add_all
from tests.integration.redis_adapter import connected, deliver, endpoint_of, provision

BEFORE_16 = str(EntryId(16).before())


async def work(server: Server, first: int, last: int) -> None:
    """A worker is given entries up to the last, and acknowledges those from the first on."""
    await deliver(server, KEYS, last - first + 1)
    await acknowledge(server, *range(first, last + 1))


async def remember(server: Server) -> PossibleLoss | None:
    found = await remember_position(server, KEYS, OWNER)
    return found.possible_loss if found else None


async def trim(server: Server, length: int) -> None:
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", length)


async def make_checkpoint_due(server: Server) -> None:
    await server.execute("HSET", KEYS.state, CHECKPOINT_AT, 0)


async def events(server: Server, kind: LedgerKind) -> list[dict[str, str]]:
    found = await server.execute("XRANGE", KEYS.ledger, "-", "+")
    pairs = [
        {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
        for _, flat in found
    ]
    return [one for one in pairs if one["kind"] == kind]


async def last_watched(server: Server) -> tuple[str, str]:
    """From where the last checkpoint says that all was watched, and up to where."""
    last = (await events(server, LedgerKind.CHECKPOINT))[-1]
    return last["watched_from"], last["last_delivered"]


@pytest.fixture
async def at_ten(server: Server) -> Server:
    """Ten entries, all of them acknowledged, and that is remembered."""
    await provision(server, KEYS)
    await add_all(server, range(1, 11))
    await work(server, 1, 10)
    await remember(server)
    return server


async def test_entries_that_went_before_anybody_looked_may_be_lost(at_ten: Server) -> None:
    await add_all(at_ten, range(11, 21))
    await trim(at_ten, 5)
    await work(at_ten, 16, 20)
    assert await remember(at_ten) == PossibleLoss(after=EntryId(10), before=EntryId(16), at_most=5)
    (event,) = await events(at_ten, LedgerKind.DATA_LOSS)
    assert (event["at_least"], event["at_most"]) == ("0", "5")
    assert (event["after"], event["before"], event["cause"]) == ("10-0", "16-0", "trimmed")
    assert await remember(at_ten) is None
    # No condition: nothing is certain.
    assert (await observe_group(at_ten, KEYS)).state.loss is None


async def test_a_checkpoint_says_from_where_on_the_watch_has_no_gap(at_ten: Server) -> None:
    assert await last_watched(at_ten) == ("0-0", "10-0")
    await add_all(at_ten, range(11, 21))
    await trim(at_ten, 5)
    await work(at_ten, 16, 18)
    await make_checkpoint_due(at_ten)
    await remember(at_ten)
    assert await last_watched(at_ten) == (BEFORE_16, "18-0")
    await work(at_ten, 19, 20)
    await make_checkpoint_due(at_ten)
    await remember(at_ten)
    assert await last_watched(at_ten) == (BEFORE_16, "20-0")


async def test_trimming_what_was_delivered_at_the_last_observation_is_no_loss(
    at_ten: Server,
) -> None:
    await add_all(at_ten, range(11, 21))
    await work(at_ten, 11, 15)
    await remember(at_ten)
    await trim(at_ten, 6)
    await work(at_ten, 16, 20)
    assert await remember(at_ten) is None
    await trim(at_ten, 0)
    await add_all(at_ten, range(21, 23))
    await work(at_ten, 21, 22)
    await make_checkpoint_due(at_ten)
    assert await remember(at_ten) is None
    assert await last_watched(at_ten) == ("0-0", "22-0")


async def test_a_loss_is_recorded_only_once(
    at_ten: Server,
) -> None:
    await add_all(at_ten, range(11, 21))
    await trim(at_ten, 5)
    seen = await observe_group(at_ten, KEYS)
    loss = find_new_loss(seen)
    assert loss is not None
    assert await record_loss(at_ten, KEYS, OWNER, loss, first_id=seen.first_id)
    await remember(at_ten)
    await work(at_ten, 16, 20)
    await make_checkpoint_due(at_ten)
    assert await remember(at_ten) is None
    assert len(await events(at_ten, LedgerKind.DATA_LOSS)) == 1
    assert await last_watched(at_ten) == (BEFORE_16, "20-0")


async def test_an_unknown_number_is_not_a_small_one(at_ten: Server) -> None:
    await add_all(at_ten, range(11, 41))
    await work(at_ten, 11, 15)
    await remember(at_ten)  # how many wait is not counted
    await trim(at_ten, 10)
    await work(at_ten, 31, 32)
    assert await remember(at_ten) == PossibleLoss(
        after=EntryId(15), before=EntryId(31), at_most=None
    )


async def test_what_follows_soon_is_recorded_with_the_next_checkpoint(at_ten: Server) -> None:
    for number in (20, 30, 40):
        await add_all(at_ten, range(number - 9, number + 1))
        await trim(at_ten, 2)
        await work(at_ten, number - 1, number)
        await remember(at_ten)
    assert [one["before"] for one in await events(at_ten, LedgerKind.DATA_LOSS)] == ["19-0"]
    await make_checkpoint_due(at_ten)
    # 21 to 28 and 31 to 38.
    assert await remember(at_ten) == PossibleLoss(after=EntryId(20), before=EntryId(39), at_most=16)
    await make_checkpoint_due(at_ten)
    assert await remember(at_ten) is None


async def test_of_many_replicas_one_reports_it(
    at_ten: Server, empty_redis: StandaloneServers
) -> None:
    await add_all(at_ten, range(11, 21))
    await trim(at_ten, 5)
    await work(at_ten, 16, 20)
    async with connected(endpoint_of(empty_redis)) as another:
        found = await asyncio.gather(*(remember(one) for one in (at_ten, another) * 5))
    assert len([one for one in found if one]) == 1
    assert len(await events(at_ten, LedgerKind.DATA_LOSS)) == 1


async def test_after_the_position_goes_back_the_watch_restarts(at_ten: Server) -> None:
    await at_ten.execute("XGROUP", "SETID", KEYS.stream, KEYS.group, "4-0")
    await make_checkpoint_due(at_ten)
    assert await remember(at_ten) is None
    assert await last_watched(at_ten) == ("10-0", "4-0")


async def test_the_watch_restarts_for_a_recreated_stream(at_ten: Server) -> None:
    await at_ten.execute("DEL", KEYS.stream)
    await add_all(at_ten, range(11, 41))
    await at_ten.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "20-0")
    await deliver(at_ten, KEYS, 10)
    await make_checkpoint_due(at_ten)
    await remember(at_ten)
    watched, _ = await last_watched(at_ten)
    assert watched == "30-0"


@pytest.mark.parametrize(
    "damage", ["", "x", "0-0", "- - -", "0-0 10-0 1e3 - 9 9-0 - 1 0-0 - - - - -"]
)
async def test_a_damaged_memory_begins_a_new_watch(at_ten: Server, damage: str) -> None:
    await at_ten.execute("HSET", KEYS.state, WATCH, damage)
    await add_all(at_ten, range(11, 13))
    await work(at_ten, 11, 12)
    await make_checkpoint_due(at_ten)
    assert await remember(at_ten) is None
    assert await last_watched(at_ten) == ("12-0", "12-0")
