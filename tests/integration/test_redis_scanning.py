"""What a scan asks of a group: whether it is due, what it begins and what it ends with."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from pelops.domain.entry_id import parse_entry_id
from pelops.domain.recovery import ScanObservation
from pelops.errors import NoSuchGroup, NotOurs, WrongType
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import (
    NotDue,
    count_dangling,
    finish_scan,
    open_scan,
    read_fields,
)
from pelops.redis_streams.recovery.suspects import settle_suspects
from tests.integration.recovering import (
    DEAD,
    KEYS,
    LETTER,
    a_context,
    a_plan,
    add_many,
    look,
    server_time,
    settlement,
    snapshot,
    strand,
)
from tests.integration.redis_adapter import connected, endpoint_of, provision
from tests.redis_fixtures import RunRedis

MINUTE = timedelta(minutes=1)


async def begin(server: Server, due: timedelta = MINUTE) -> ScanObservation | NotDue:
    return await open_scan(server, KEYS, uid="uid-1", due=due, with_retry=False)


async def write_state(server: Server, **fields: str | int) -> None:
    words = [word for name, value in fields.items() for word in (name.replace("_", ":", 1), value)]
    await server.execute("HSET", KEYS.state, *words, key=KEYS.state)


# -- the beginning


async def test_a_scan_that_another_replica_began_recently_is_not_due(server: Server) -> None:
    await provision(server, KEYS)
    first = await begin(server)
    assert isinstance(first, ScanObservation)
    second = await begin(server)
    assert isinstance(second, NotDue)
    assert second.scanned_at == first.now
    assert isinstance(await begin(server, due=timedelta()), ScanObservation)


async def test_of_many_replicas_one_begins_the_scan(server: Server) -> None:
    await provision(server, KEYS)
    begun = await asyncio.gather(*(begin(server) for _ in range(20)))
    assert sum(isinstance(one, ScanObservation) for one in begun) == 1


async def test_b6_a_future_or_damaged_scan_time_is_ignored(server: Server) -> None:
    """Else a clock that went back would stop every replica."""
    await provision(server, KEYS)
    later = int((await server_time(server) + MINUTE).timestamp() * 1000)
    for damaged in (later, "yesterday", ""):
        await write_state(server, sweep_at_ms=damaged)
        assert isinstance(await begin(server), ScanObservation)


async def test_an_observation_reports_what_the_group_holds(server: Server) -> None:
    """C2 among it: what claimers could hide."""
    ids = await strand(server, 5)
    await server.execute("XDEL", KEYS.stream, str(ids[0]), key=KEYS.stream)
    seen = (await look(server)).stream
    assert (seen.groups, seen.pending, seen.consumers) == (1, 5, 1)
    assert (seen.first_id, seen.lowest_pending) == (ids[1], ids[0])
    assert seen.last_delivered_id == seen.last_generated_id == ids[-1]
    assert await count_dangling(server, seen, KEYS.group) == 1


@pytest.mark.parametrize("name", ["stream", "dead_letter", "ledger", "state"])
async def test_a_scan_of_a_key_of_another_type_is_refused(server: Server, name: str) -> None:
    await provision(server, KEYS)
    key = getattr(KEYS, name)
    await server.execute("DEL", key, key=key)
    await server.execute("SET", key, "text", key=key)
    with pytest.raises(WrongType) as reported:
        await look(server)
    assert reported.value.key == key


async def test_a_scan_of_anothers_group_or_of_none_changes_nothing(server: Server) -> None:
    await provision(server, KEYS)
    before = await snapshot(server)
    with pytest.raises(NotOurs):
        await look(server, uid="uid-2")
    with pytest.raises(NoSuchGroup):
        await look(server, with_retry=True)
    assert await snapshot(server) == before


async def test_another_master_is_noticed_and_the_first_was_there_all_the_time(
    run_redis: RunRedis,
) -> None:
    """Rule A2: what was delivered under another master proves less."""
    servers = run_redis("7.0")
    async with connected(endpoint_of(servers)) as server:
        await provision(server, KEYS)
        assert (await look(server)).master_since is None
        assert (await look(server)).master_since is None
        kept = await server.execute("HGETALL", KEYS.state, key=KEYS.state)
    servers.restart()
    async with connected(endpoint_of(servers)) as server:
        await provision(server, KEYS)
        await server.execute("HSET", KEYS.state, *kept, key=KEYS.state)
        seen = await look(server)
        assert seen.master_since == seen.now
        assert (await look(server)).master_since == seen.now


async def test_a_copy_is_under_way_until_it_is_acknowledged_or_gone(server: Server) -> None:
    ids = await strand(server, 3)
    await add_many(server, KEYS, 2)
    waiting = [parse_entry_id(one) for one, _ in await _range(server)][3:]
    await write_state(server, chunk=" ".join(map(str, [*ids, *waiting])))
    assert (await look(server)).retry_batch.under_way == {*ids, *waiting}
    await server.execute("XACK", KEYS.stream, KEYS.group, str(ids[0]), key=KEYS.stream)
    await server.execute("XDEL", KEYS.stream, str(waiting[0]), key=KEYS.stream)
    observation = await look(server)
    assert observation.retry_batch.under_way == {*ids[1:], waiting[1]}
    assert observation.retry_batch.members == {*ids, *waiting}


async def test_damaged_words_in_the_chunk_stop_no_scan(server: Server) -> None:
    (entry_id,) = await strand(server, 1)
    damaged = f"banana 1 {entry_id} {'9' * 30}-1 1-2-3 ".encode() + b"\xff"
    await server.execute("HSET", KEYS.state, "chunk", damaged, key=KEYS.state)
    retry_batch = (await look(server)).retry_batch
    assert retry_batch.under_way == retry_batch.members == {entry_id}
    cutoff = await server_time(server) + MINUTE
    plan, owner = a_plan(settlement(entry_id), cutoff=cutoff, written=retry_batch.written)
    done = await settle_suspects(server, a_context(), plan, owner, **LETTER)
    assert done.copied == 1


async def _range(server: Server) -> list[list[bytes]]:
    found: list[list[bytes]] = await server.execute(
        "XRANGE", KEYS.stream, "-", "+", key=KEYS.stream
    )
    return found


# -- the end


async def test_the_end_of_a_scan_writes_the_report_and_what_was_learnt(server: Server) -> None:
    await provision(server, KEYS)
    reported: dict[str, Any] = {
        "uid": "uid-1",
        "target": KEYS.stream,
        "report": '{"unmovable": 1}',
        "cursor": "7-0",
    }
    assert await finish_scan(server, KEYS, **reported, new_records={"pod:a": "{}"}) == "0"
    observation = await look(server)
    assert (observation.report, observation.cursor) == ('{"unmovable": 1}', "7-0")
    assert await read_fields(server, KEYS, ["pod:a", "pod:b"]) == ["{}", None]
    with pytest.raises(NotOurs):
        await finish_scan(server, KEYS, **(reported | {"uid": "uid-2"}))


async def test_tries_of_entries_that_are_done_are_forgotten(server: Server) -> None:
    ids = await strand(server, 3)
    await add_many(server, KEYS, 1)
    waiting = parse_entry_id((await _range(server))[-1][0])
    await server.execute("XACK", KEYS.stream, KEYS.group, str(ids[0]), key=KEYS.stream)
    names = [f"try:{one}" for one in (*ids, waiting, "banana", "9" * 30 + "-1")]
    for name in names:
        await server.execute("HSET", KEYS.state, name, "1 0 0", key=KEYS.state)
    tries_cursor = "0"
    while True:
        tries_cursor = await finish_scan(
            server, KEYS, uid="uid-1", target=KEYS.stream, report="", tries_cursor=tries_cursor
        )
        if tries_cursor == "0":
            break
    kept = await read_fields(server, KEYS, names)
    assert kept == [None, "1 0 0", "1 0 0", "1 0 0", None, None]


async def test_what_was_learnt_about_consumers_that_are_gone_is_forgotten(server: Server) -> None:
    """A worker that leaves by itself removes its consumer, and may not write the state."""
    await strand(server, 1)
    await server.execute(
        "XGROUP", "CREATECONSUMER", KEYS.stream, KEYS.group, "a:b", key=KEYS.stream
    )
    new_records = {
        f"{kind}{name}": "1" for kind in ("pod:", "crowd:") for name in (DEAD, "a:b", "gone")
    }
    new_records |= {"other": "1", "total:requeued": "3"}
    finish = partial(finish_scan, server, KEYS, uid="uid-1", target=KEYS.stream)
    await finish(new_records=new_records)
    assert await finish(tries_cursor="0") == "0"
    kept = await read_fields(server, KEYS, list(new_records))
    left = {name for name, value in zip(new_records, kept, strict=True) if value is None}
    assert left == {"pod:gone", "crowd:gone"}
