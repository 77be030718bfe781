"""Recovery on a cluster: any stream's keys lie together, and a moving slot refuses without harm."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from local_cluster.redis_servers import ClusterServers
from pelops.domain.locks import lock_key
from pelops.domain.naming import derive_keys
from pelops.domain.recovery import Action, EntryVerdict
from pelops.errors import SlotMigrating
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import remove_consumer
from pelops.redis_streams.recovery.scan_calls import finish_scan
from pelops.redis_streams.recovery.stuck_entries import recover_entries
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
    snapshot,
    strand,
)
from tests.integration.redis_adapter import connected, endpoint_of

LOCK = "lock:{$tag}:$id"
ODD_NAMES = ["{t1}:orders", "a}b", "{}x", "a{b}{c}", "{{a}", "{", "}", "é{ü}", " {a b} ", "a:b%c"]


@pytest.fixture
async def server(empty_cluster: ClusterServers) -> AsyncIterator[Server]:
    async with connected(endpoint_of(empty_cluster)) as connection:
        yield connection


@pytest.mark.full
@pytest.mark.parametrize("stream", ODD_NAMES)
async def test_b7_entries_of_any_stream_are_recovered(server: Server, stream: str) -> None:
    keys = derive_keys(stream, "g:1")
    ids = await strand(server, 4, keys)
    context = a_context(keys)
    cutoff = await server_time(server, keys) + timedelta(minutes=1)
    locks = [lock_key(LOCK, keys, one) for one in ids[:2]]
    await server.execute("SET", locks[0], "held", key=locks[0])
    every = [(one, timedelta()) for one in ids[:2]]
    batch = await recover_entries(server, context, an_order(), every, locks=locks)
    assert (batch.moved, batch.stays) == (1, [(ids[0], EntryVerdict.LOCKED)])
    plan, owner = a_plan(settlement(ids[2], Action.DEAD), cutoff=cutoff)
    assert (await settle_suspects(server, context, plan, owner, **LETTER)).dead == 1
    plan, owner = a_plan(settlement(ids[3], Action.FREE), cutoff=cutoff)
    assert (await offer_entries(server, context, plan, owner, reason="offered")).copied == 1
    await recover_all(server, context)
    assert await pending(server, keys) == {}
    assert (await look(server, keys)).stream.pending == 0
    assert await remove_consumer(server, context, DEAD)
    assert await finish_scan(server, keys, uid="uid-1", target=stream, report="") == "0"
    assert len(await recorded(server, "requeued", keys)) == 3


async def test_a_dry_run_decides_on_a_cluster_too_and_moves_nothing(server: Server) -> None:
    await strand(server, 250)
    before = await snapshot(server)
    batches = await recover_all(server.dry)
    assert [one.moved for one in batches] == [100, 100, 50]
    assert await snapshot(server) == before
    assert sum(one.moved for one in await recover_all(server)) == 250


async def test_b7_a_slot_that_is_being_migrated_refuses_and_nothing_happens(
    server: Server, empty_cluster: ClusterServers
) -> None:
    """Keys that are absent may be on either side: TRYAGAIN, until the move ends."""
    ids = await strand(server, 3)
    cutoff = await server_time(server) + timedelta(minutes=1)
    plan, owner = a_plan(settlement(ids[0]), cutoff=cutoff)
    before = await snapshot(server)
    locks = [lock_key(LOCK, KEYS, one) for one in ids]
    every = [(one, timedelta()) for one in ids]
    with migrating(empty_cluster):
        for attempt in (
            recover_entries(server, a_context(), an_order(), every, locks=locks),
            offer_entries(server, a_context(), plan, owner, reason="offered"),
        ):
            with pytest.raises(SlotMigrating, match="being migrated"):
                await attempt
        assert await snapshot(server) == before
    assert await snapshot(server) == before
    assert sum(batch.moved for batch in await recover_all(server)) == 3
    assert len(await bodies(server, KEYS.stream)) == 6
    assert len(await read_new(server, KEYS, 10)) == 3


async def test_b7_recovery_continues_while_a_slot_with_all_keys_migrates(
    server: Server, empty_cluster: ClusterServers
) -> None:
    """Provisioning makes every key that recovery names, so none is absent."""
    await strand(server, 3)
    with migrating(empty_cluster):
        assert sum(batch.moved for batch in await recover_all(server)) == 3
    assert len(await bodies(server, KEYS.stream)) == 6
    assert await pending(server, KEYS) == {}


@contextmanager
def migrating(cluster: ClusterServers) -> Iterator[None]:
    """The slot of the keys is on its way to another master, and no key has moved yet."""
    serving = cluster.owner_of(KEYS.slot).port
    to = next(master for master in cluster.masters() if master.port != serving)
    cluster.begin_migration(KEYS.slot, to)
    try:
        yield
    finally:
        cluster.finish_migration(KEYS.slot, to)
