"""Recovery on real servers moves each entry once, whole, and only those before the cutoff."""

import asyncio
from datetime import timedelta
from pathlib import Path

from local_cluster.redis_servers import ServerOptions, StandaloneServers, start_standalone
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.recovery import EntryVerdict
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import list_consumers, remove_consumer
from tests.integration.recovering import (
    DEAD,
    KEYS,
    a_context,
    add_many,
    an_order,
    bodies,
    ledger,
    pending,
    read_new,
    recorded,
    recover_all,
    server_time,
    strand,
    targets,
    totals,
)
from tests.integration.redis_adapter import connected, endpoint_of

# -- moving


async def test_what_a_dead_consumer_held_is_copied_to_the_end_and_acknowledged(
    server: Server,
) -> None:
    ids = await strand(server, 250)
    before = await bodies(server, KEYS.stream)
    batches = await recover_all(server)
    assert sum(batch.moved for batch in batches) == 250
    assert await pending(server) == {}
    after = await bodies(server, KEYS.stream)
    copies = sorted(after.keys() - before.keys())
    for entry_id, copy in zip(ids, copies, strict=True):
        marks = [b"_original_id", str(entry_id).encode(), b"_retry_count", b"1"]
        assert after[copy] == [*before[entry_id], *marks]
    reported = await recorded(server, LedgerKind.REQUEUED)
    assert [entry.entry_id for entry in reported] == ids
    assert [entry.new_id for entry in reported] == copies
    assert await targets(server, LedgerKind.REQUEUED) == {KEYS.stream}
    assert (await totals(server))["requeued"] == 250
    assert batches[0].first == ids[0]


async def test_a_copy_of_a_copy_keeps_the_first_id(server: Server) -> None:
    (first,) = await strand(server, 1)
    for _ in range(3):
        await recover_all(server, order=an_order(counts_attempt=False))
        await read_new(server, KEYS, 1)
    (copy,) = await pending(server)
    fields = (await bodies(server, KEYS.stream))[copy]
    assert fields[4:] == [b"_original_id", str(first).encode(), b"_retry_count", b"0"]


async def test_a1_what_a_restarted_worker_read_again_stays_with_it(server: Server) -> None:
    """Rule A1: same owner, same name; only the cutoff distinguishes them."""
    ids = await strand(server, 4)
    await asyncio.sleep(0.005)  # the cutoff must lie between two different milliseconds
    cutoff = await server_time(server)
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(ids[0]), str(ids[2]))
    await server.execute(*claim, key=KEYS.stream)
    (batch,) = await recover_all(server, cutoff=cutoff)
    assert batch.moved == 2
    assert batch.stays == [(ids[0], EntryVerdict.TOO_YOUNG), (ids[2], EntryVerdict.TOO_YOUNG)]
    assert set(await pending(server)) == {ids[0], ids[2]}


async def test_a_cut_is_exact_to_the_millisecond(server: Server) -> None:
    """An entry delivered at the cutoff itself stays, also when the clock advances in a script."""
    ids = await strand(server, 300)
    now = await server_time(server)
    delivered = now - timedelta(hours=1)
    for number, entry_id in enumerate(ids):
        moment = int(delivered.timestamp() * 1000) + number % 2
        claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(entry_id), "TIME", moment)
        await server.execute(*claim, key=KEYS.stream)
    batches = await recover_all(server, cutoff=delivered + timedelta(milliseconds=1))
    assert sum(batch.moved for batch in batches) == 150
    assert set(await pending(server)) == set(ids[1::2])


async def test_invariant_3_three_replicas_that_race_move_each_entry_once(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await strand(server, 10_000)
    endpoint = endpoint_of(empty_redis)
    async with connected(endpoint) as second, connected(endpoint) as third:
        racers = await asyncio.gather(
            *(
                recover_all(one, a_context(actor=f"r{n}"))
                for n, one in enumerate((server, second, third))
            )
        )
    assert sum(batch.moved for batches in racers for batch in batches) == 10_000
    assert await server.execute("XLEN", KEYS.stream, key=KEYS.stream) == 20_000
    assert await pending(server) == {}
    reported = await recorded(server, LedgerKind.REQUEUED)
    assert len({entry.entry_id for entry in reported}) == len(reported) == 10_000
    assert len({entry.new_id for entry in reported}) == 10_000
    assert (await totals(server))["requeued"] == 10_000


async def test_many_suspects_in_front_are_looked_at_once(
    server: Server, empty_redis: StandaloneServers
) -> None:
    """Else the costs would grow with the square of what stays."""
    await strand(server, 1_000)
    await recover_all(server)  # from now on they are suspects
    await read_new(server, KEYS, 1_000)
    await add_many(server, KEYS, 1_000)
    await read_new(server, KEYS, 1_000)
    batches = await recover_all(server, a_context(batch=50))
    assert sum(batch.moved for batch in batches) == 1_000
    assert len({one.entry_id for batch in batches for one in batch.suspects}) == 1_000
    assert len(batches) <= 45


# -- consumers


async def test_invariant_5_a_consumer_is_removed_only_when_it_owns_nothing(server: Server) -> None:
    await strand(server, 1)
    assert not await remove_consumer(server, a_context(), DEAD)
    await recover_all(server)
    assert await remove_consumer(server, a_context(), DEAD)
    assert await list_consumers(server, KEYS.stream, KEYS.group) == []
    assert not await remove_consumer(server, a_context(), DEAD)
    kinds = [event.kind for event in await ledger(server)]
    assert kinds.count(LedgerKind.CONSUMER_REMOVED) == 1


# -- dying in the middle


async def test_a_log_cut_anywhere_inside_the_effects_holds_all_or_nothing(tmp_path: Path) -> None:
    """Redis keeps the effects of a script together: invariant 1 outlives the server."""
    options = ServerOptions(append_only="always", config={"aof-use-rdb-preamble": "no"})
    with start_standalone("8.6", options=options) as servers:
        async with connected(endpoint_of(servers)) as server:
            await strand(server, 50)
            log = Path(_log_file(servers))
            begins = log.stat().st_size
            await recover_all(server)
        ends = log.stat().st_size
        servers.server.kill()
        whole = log.read_bytes()
        for part in (0, 1, 7, 31, 63, 92, 99, 100):
            log.write_bytes(whole[: begins + (ends - begins) * part // 100])
            servers.server.start()
            async with connected(endpoint_of(servers)) as server:
                length = len(await bodies(server, KEYS.stream))
                reported = len(await recorded(server, LedgerKind.REQUEUED))
                state = (length, len(await pending(server)), reported)
            assert state == ((100, 0, 50) if part == 100 else (50, 50, 0))
            servers.server.kill()


def _log_file(servers: StandaloneServers) -> str:
    directory = servers.cli("CONFIG", "GET", "dir").splitlines()[-1]
    name = servers.cli("CONFIG", "GET", "appenddirname").splitlines()[-1]
    (found,) = Path(directory, name).glob("*.incr.aof")
    return str(found)
