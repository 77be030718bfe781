"""Recovery on real servers: what moves, what stays and why, and what a refusal leaves untouched."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from local_cluster.redis_servers import ServerOptions, StandaloneServers, start_standalone
from pelops.domain.access import Feature, Role, acl_rules
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.domain.recovery import Action, Verdict
from pelops.errors import (
    ChunkChanged,
    NoSuchGroup,
    NotOurs,
    PelopsError,
    PermissionDenied,
    PositionAhead,
    RedisUnavailable,
    WouldDuplicate,
    WrongType,
)
from pelops.redis_streams.consumers import list_consumers, remove_consumer
from pelops.redis_streams.recovery import hand_over, recover_entries, settle_suspects
from pelops.redis_streams.server import Server
from tests.integration.recovering import (
    DEAD,
    KEYS,
    REASONS,
    a_plan,
    add_many,
    an_act,
    an_order,
    bodies,
    ledger,
    look,
    pending,
    read_new,
    recorded,
    recover_all,
    server_time,
    settlement,
    snapshot,
    strand,
    totals,
)
from tests.integration.redis_door import (
    any_redis,  # noqa: F401 - a fixture
    connected,
    endpoint_of,
    provision,
)

SOON: Final = timedelta(minutes=1)
GRANTED: Final = acl_rules(
    KEYS, Role.OPERATOR, {Feature.RECOVERY, Feature.CLEANUP, Feature.DELETE_POLICY}
)
USED: Final = (  # by the scripts that move
    *("+time", "+type", "+xinfo|stream", "+xinfo|groups", "+xpending", "+xrange"),
    *("+xadd", "+xack", "+hget", "+hset", "+hdel"),
)

Move = Callable[[Server], Awaitable[object]]


@pytest.fixture
async def server(empty_redis: StandaloneServers) -> AsyncIterator[Server]:
    async with connected(endpoint_of(empty_redis)) as connection:
        yield connection


async def settle_one(server: Server, action: Action = Action.RETRY, written: str = "") -> None:
    """Settle the first entry that the dead consumer holds."""
    reply = await server.execute(
        "XPENDING", KEYS.stream, KEYS.group, "-", "+", 1, DEAD, key=KEYS.stream
    )
    first = parse_entry_id(reply[0][0]) if reply else EntryId(1)
    cut = await server_time(server) + SOON
    plan, owner = a_plan(settlement(first, action), cut=cut, written=written)
    await settle_suspects(server, an_act(), plan, owner, reasons=REASONS)


MOVES: Final[dict[str, Move]] = {
    "recover_owner": recover_all,
    "recover_entries": lambda server: recover_entries(
        server, an_act(), an_order(), [(EntryId(1), timedelta())]
    ),
    "settle_suspects": settle_one,
}
moves = pytest.mark.parametrize("move", list(MOVES.values()), ids=list(MOVES))


async def refuses(server: Server, move: Move, error: type[PelopsError], why: str) -> None:
    """The move is refused, and leaves everything as it was: it did not happen."""
    before = await snapshot(server)
    with pytest.raises(error, match=why):
        await move(server)
    assert await snapshot(server) == before


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
    told = await recorded(server, LedgerKind.REQUEUED)
    assert [entry.entry_id for entry in told] == ids
    assert [entry.new_id for entry in told] == copies
    assert (await totals(server))["requeued"] == 250
    assert batches[0].first_moved == ids[0]


async def test_the_second_time_there_is_nothing_to_do(server: Server) -> None:
    """A repeat after an answer that was lost changes nothing."""
    await strand(server, 5)
    await recover_all(server)
    before = await snapshot(server)
    assert [batch.moved for batch in await recover_all(server)] == [0]
    assert await snapshot(server) == before


async def test_a_copy_of_a_copy_keeps_the_first_id(server: Server) -> None:
    (first,) = await strand(server, 1)
    for _ in range(3):
        await recover_all(server, order=an_order(is_charged=False))
        await read_new(server, KEYS, 1)
    (copy,) = await pending(server)
    fields = (await bodies(server, KEYS.stream))[copy]
    assert fields[4:] == [b"_original_id", str(first).encode(), b"_retry_count", b"0"]


async def test_a1_what_a_restarted_worker_read_again_stays_with_it(server: Server) -> None:
    """Rule A1: same owner, same name; only the cut tells."""
    ids = await strand(server, 4)
    await asyncio.sleep(0.005)  # the cut must lie between two different milliseconds
    cut = await server_time(server)
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(ids[0]), str(ids[2]))
    await server.execute(*claim, key=KEYS.stream)
    (batch,) = await recover_all(server, cut=cut)
    assert batch.moved == 2
    assert batch.stays == ((ids[0], Verdict.TOO_YOUNG), (ids[2], Verdict.TOO_YOUNG))
    assert set(await pending(server)) == {ids[0], ids[2]}


async def test_a_cut_is_exact_to_the_millisecond(server: Server) -> None:
    """What was delivered at the cut itself stays; also where the clock goes on in a script."""
    ids = await strand(server, 300)
    now = await server_time(server)
    delivered = now - timedelta(hours=1)
    for number, entry_id in enumerate(ids):
        moment = int(delivered.timestamp() * 1000) + number % 2
        claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(entry_id), "TIME", moment)
        await server.execute(*claim, key=KEYS.stream)
    batches = await recover_all(server, cut=delivered + timedelta(milliseconds=1))
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
                recover_all(one, an_act(actor=f"r{n}"))
                for n, one in enumerate((server, second, third))
            )
        )
    assert sum(batch.moved for batches in racers for batch in batches) == 10_000
    assert await server.execute("XLEN", KEYS.stream, key=KEYS.stream) == 20_000
    assert await pending(server) == {}
    told = await recorded(server, LedgerKind.REQUEUED)
    assert len({entry.entry_id for entry in told}) == len(told) == 10_000
    assert len({entry.new_id for entry in told}) == 10_000
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
    batches = await recover_all(server, an_act(batch=50))
    assert sum(batch.moved for batch in batches) == 1_000
    assert len({one.entry_id for batch in batches for one in batch.suspects}) == 1_000
    assert len(batches) <= 45


# -- odd entries


async def test_b3_an_entry_that_cannot_be_copied_does_not_stop_the_others(server: Server) -> None:
    await provision(server, KEYS)
    wide = [b"f", b"v"] * 3_901
    for pairs in ([b"n", b"1"], wide, [b"f", b"v"] * 4_500, [b"n", b"2"], wide[2:]):
        await server.execute("XADD", KEYS.stream, "*", *pairs, key=KEYS.stream)
    ids = await read_new(server, KEYS, 10)
    batches = await recover_all(server)
    assert sum(batch.moved for batch in batches) == 3
    stays = {one: verdict for batch in batches for one, verdict in batch.stays}
    assert stays[ids[1]] == stays[ids[2]] == Verdict.TOO_WIDE
    assert set(await pending(server)) == {ids[1], ids[2]}


@pytest.mark.parametrize("count", [b"banana", b"", b"nan", b"-5", b"0x10", b"1e400", b"1234567"])
async def test_b3_a_users_own_field_under_our_name_stays_as_it_is(
    server: Server, count: bytes
) -> None:
    await provision(server, KEYS)
    pairs = [b"_original_id", b"1-1", b"_retry_count", count]
    await server.execute("XADD", KEYS.stream, "*", *pairs, key=KEYS.stream)
    (entry_id,) = await read_new(server, KEYS, 1)
    await recover_all(server)
    ours = [b"_original_id", str(entry_id).encode(), b"_retry_count", b"1"]
    assert list((await bodies(server, KEYS.stream)).values())[-1] == [*pairs, *ours]


async def test_b6_large_bodies_are_moved_in_bounded_pieces(server: Server) -> None:
    """100 entries of 2 MB, each in a script of its own, or with few others."""
    await strand(server, 100, value=b"x" * 2_000_000)
    batches = await recover_all(server)
    assert sum(batch.moved for batch in batches) == 100
    assert max(batch.moved for batch in batches) == 1
    verdicts = {verdict for batch in batches for _, verdict in batch.stays}
    assert verdicts == {Verdict.NEXT_BATCH}


async def test_a_stream_that_takes_no_more_entries_gives_dead_letters(server: Server) -> None:
    ids = await strand(server, 3)
    await server.execute("XADD", KEYS.stream, str(EntryId.MAX), "f", "v", key=KEYS.stream)
    await recover_all(server)
    assert await pending(server) == {}
    letters = list((await bodies(server, KEYS.dead_letter)).values())
    assert [letter[:4] for letter in letters] == [[b"n", b"%d" % n, b"f", b"v"] for n in (1, 2, 3)]
    told = await recorded(server, LedgerKind.DEAD_LETTERED)
    assert [entry.entry_id for entry in told] == ids
    assert (await ledger(server))[-1].details["reason"] == "StreamExhausted"
    assert (await totals(server))["dead_lettered"] == 3


async def test_an_entry_whose_body_is_gone_is_recorded_and_acknowledged(server: Server) -> None:
    ids = await strand(server, 3)
    await server.execute("XDEL", KEYS.stream, str(ids[1]), key=KEYS.stream)
    (batch,) = await recover_all(server)
    assert (batch.moved, batch.gone) == (2, 1)
    assert await pending(server) == {}
    (letter,) = (await bodies(server, KEYS.dead_letter)).values()
    assert letter[:2] == [b"_original_id", str(ids[1]).encode()]
    assert b"PayloadGone" in letter
    (told,) = await recorded(server, LedgerKind.PAYLOAD_GONE)
    assert told.entry_id == ids[1]
    assert (await totals(server))["payload_gone"] == 1


async def test_a_dead_letter_of_the_wrong_kind_of_count_is_told_whole(server: Server) -> None:
    """The server's own count of deliveries may be anything."""
    (entry_id,) = await strand(server, 1)
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(entry_id), "RETRYCOUNT", 10**15)
    await server.execute(*claim, key=KEYS.stream)
    await recover_all(server)
    (told,) = await recorded(server, LedgerKind.REQUEUED)
    assert told.deliveries == 10**15


async def test_ids_that_are_named_twice_are_moved_once(server: Server) -> None:
    (entry_id,) = await strand(server, 1)
    twice = [(entry_id, timedelta())] * 2
    batch = await recover_entries(server, an_act(), an_order(), twice)
    assert batch.moved == 1
    assert len(await bodies(server, KEYS.stream)) == 2


async def test_a_lock_keeps_its_entry(server: Server) -> None:
    ids = await strand(server, 3)
    locks = [f"lock:{{{KEYS.tag}}}:{one}" for one in ids]
    await server.execute("SET", locks[1], "held", key=locks[1])
    every = [(one, timedelta()) for one in ids]
    batch = await recover_entries(server, an_act(), an_order(), every, locks=locks)
    assert batch.moved == 2
    assert batch.stays == ((ids[1], Verdict.LOCKED),)


async def test_a_damaged_total_or_crowd_does_not_stop_recovery(server: Server) -> None:
    await strand(server, 2)
    damaged = ("total:requeued", "many", f"crowd:{DEAD}", "yesterday")
    await server.execute("HSET", KEYS.state, *damaged, key=KEYS.state)
    await settle_one(server)
    await recover_all(server)
    assert await pending(server) == {}


# -- other groups


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
    act = an_act(target=KEYS.retry, allows_others=True)
    await recover_all(server, act)
    assert len(await bodies(server, KEYS.stream)) == 5
    copies = await read_new(server, KEYS, 10, stream=KEYS.retry)
    assert len(copies) == 5
    back = an_act(source=KEYS.retry, target=KEYS.retry, allows_others=True)
    await recover_all(server, back, an_order(is_charged=False))
    again = await read_new(server, KEYS, 10, stream=KEYS.retry)
    told = await recorded(server, LedgerKind.REQUEUED)
    assert [entry.root_id for entry in told] == ids * 2
    assert [entry.new_id for entry in told] == [*copies, *again]


async def test_a_group_ahead_of_its_stream_is_given_no_copy(server: Server) -> None:
    """Rule A5: it would never be delivered."""
    await strand(server, 2)
    ahead = ("XGROUP", "SETID", KEYS.stream, KEYS.group, "9999999999999-0")
    await server.execute(*ahead, key=KEYS.stream)
    for move in (recover_all, settle_one):
        await refuses(server, move, PositionAhead, "9999999999999-0")


# -- refusals


@moves
async def test_another_owner_of_the_group_stops_everything(server: Server, move: Move) -> None:
    await strand(server, 2)
    await server.execute("HSET", KEYS.state, "owner:uid", "uid-2", key=KEYS.state)
    await refuses(server, move, NotOurs, "another resource")


@moves
@pytest.mark.parametrize("name", ["dead_letter", "ledger"])
async def test_b3_a_key_of_another_type_stops_everything(
    server: Server, move: Move, name: str
) -> None:
    await strand(server, 2)
    key = getattr(KEYS, name)
    await server.execute("DEL", key, key=key)
    await server.execute("SET", key, "text", key=key)
    with pytest.raises(WrongType) as told:
        await move(server)
    assert (told.value.key, told.value.found) == (key, "string")
    assert len(await pending(server)) == 2
    assert len(await bodies(server, KEYS.stream)) == 2


@moves
async def test_without_the_group_or_the_stream_nothing_happens(server: Server, move: Move) -> None:
    await strand(server, 2)
    destroy = ("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    await server.execute(*destroy, key=KEYS.stream)
    if move is not settle_one:
        with pytest.raises(NoSuchGroup):
            await move(server)
        await server.execute("DEL", KEYS.stream, key=KEYS.stream)
        with pytest.raises(NoSuchGroup):
            await move(server)


@pytest.mark.parametrize("word", USED)
async def test_b4_a_missing_permission_is_named_and_stops_everything(
    empty_redis: StandaloneServers, server: Server, word: str
) -> None:
    await strand(server, 3)
    rules = [rule for rule in GRANTED if rule != word]
    empty_redis.acl_setuser("pelops", "reset", "on", ">sesame", *rules, "+hincrby")
    before = await snapshot(server)
    denied: list[str | None] = []
    async with connected(endpoint_of(empty_redis, username="pelops", password="sesame")) as user:
        for move in (recover_all, MOVES["recover_entries"]):
            try:
                await move(user)
            except PermissionDenied as error:
                denied.append(error.command)
    assert denied
    assert set(denied) <= {word[1:], word[1:].partition("|")[0]}
    assert await snapshot(server) == before


@pytest.mark.parametrize("word", ["+xadd", "+xack", "+hset", "+hdel"])
async def test_b4_settling_is_refused_before_it_writes(
    empty_redis: StandaloneServers, server: Server, word: str
) -> None:
    await strand(server, 3)
    rules = [rule for rule in GRANTED if rule != word]
    empty_redis.acl_setuser("pelops", "reset", "on", ">sesame", *rules, "+hincrby")
    before = await snapshot(server)
    async with connected(endpoint_of(empty_redis, username="pelops", password="sesame")) as user:
        with pytest.raises(PermissionDenied):
            await settle_one(user)
    assert await snapshot(server) == before


async def test_a_chunk_that_another_replica_released_stops_the_rest(server: Server) -> None:
    await strand(server, 3)
    await settle_one(server)
    await refuses(server, settle_one, ChunkChanged, "another replica")
    written = (await look(server)).chunk.written
    await settle_one(server, written=written)
    assert len(await pending(server)) == 1


async def test_lost_scripts_are_sent_again(server: Server) -> None:
    await strand(server, 3)
    await recover_all(server)
    await server.execute("SCRIPT", "FLUSH", "SYNC")
    await read_new(server, KEYS, 3)
    batches = await recover_all(server, order=an_order(is_charged=False))
    assert sum(batch.moved for batch in batches) == 3


async def test_a_server_out_of_memory_moves_nothing(
    empty_redis: StandaloneServers, server: Server
) -> None:
    await strand(server, 3)
    empty_redis.cli("CONFIG", "SET", "maxmemory", "1mb")
    try:
        for move in (recover_all, settle_one):
            await refuses(server, move, RedisUnavailable, "OOM")
    finally:
        empty_redis.cli("CONFIG", "SET", "maxmemory", "0")
    await recover_all(server)
    assert await pending(server) == {}


async def test_a_server_without_enough_replicas_moves_nothing(
    empty_redis: StandaloneServers, server: Server
) -> None:
    await strand(server, 3)
    empty_redis.cli("CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        await refuses(server, recover_all, RedisUnavailable, "NOREPLICAS")
    finally:
        empty_redis.cli("CONFIG", "SET", "min-replicas-to-write", "0")


async def test_a_replica_moves_nothing(empty_redis: StandaloneServers, server: Server) -> None:
    await strand(server, 3)
    before = await snapshot(server)
    empty_redis.cli("CONFIG", "SET", "replica-serve-stale-data", "yes")
    empty_redis.cli("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(RedisUnavailable, match="READONLY"):
            await recover_all(server)
    finally:
        empty_redis.cli("REPLICAOF", "NO", "ONE")
    assert await snapshot(server) == before


# -- suspects


async def test_a_suspect_is_copied_with_its_charges_and_becomes_the_chunk(server: Server) -> None:
    ids = await strand(server, 2)
    cut = await server_time(server) + SOON
    plan, owner = a_plan(settlement(ids[0]), settlement(ids[1], Action.FREE), cut=cut)
    done = await settle_suspects(server, an_act(), plan, owner, reasons=REASONS)
    copies = [one for one in await bodies(server, KEYS.stream) if one not in ids]
    assert done.chunk == str(copies[0])
    sight = await look(server)
    assert sight.chunk.under_way == {copies[0]}
    await read_new(server, KEYS, 2)
    batches = await recover_all(server)
    suspects = [one for batch in batches for one in batch.suspects]
    assert [(one.entry_id, one.charges, one.alone_failures) for one in suspects] == [
        (copy, 2, 1) for copy in copies
    ]


async def test_an_uncharged_copy_inherits_what_is_known_of_its_failures(server: Server) -> None:
    """Else what fails alone again and again between planned ends would never be given up."""
    await strand(server, 1)
    await settle_one(server)
    await read_new(server, KEYS, 1)
    await recover_all(server, order=an_order(is_charged=False))
    await read_new(server, KEYS, 1)
    (batch,) = await recover_all(server)
    assert [(one.charges, one.alone_failures) for one in batch.suspects] == [(2, 1)]


async def test_a_dead_letter_holds_the_entry_and_what_is_known_of_it(server: Server) -> None:
    (entry_id,) = await strand(server, 1)
    await settle_one(server, Action.DEAD)
    assert await pending(server) == {}
    (letter,) = (await bodies(server, KEYS.dead_letter)).values()
    told = dict(zip(letter[::2], letter[1::2], strict=True))
    assert told[b"n"] == b"1"
    assert told[b"_original_id"] == str(entry_id).encode()
    assert told[b"_consumer"] == DEAD.encode()
    assert told[b"_reason"] == b"MaxRetriesExceeded"
    assert told[b"_retry_count"] == b"2"


async def test_more_suspects_than_a_script_takes_are_settled_in_pieces(server: Server) -> None:
    ids = await strand(server, 4_500)
    cut = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.FREE) for one in ids), cut=cut)
    done = await settle_suspects(server, an_act(batch=1_000), plan, owner, reasons=REASONS)
    assert done.copied == 4_500
    assert await pending(server) == {}


# -- release


async def claim_announced(server: Server, claimer: str) -> list[EntryId]:
    """What a waiting worker does: claim what the announced owner still holds."""
    claimed: list[EntryId] = []
    for fields in (await bodies(server, KEYS.handover)).values():
        told = dict(zip(fields[::2], fields[1::2], strict=True))
        for word in told[b"ids"].split():
            script = (
                "local e = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1] "
                "if not e or e[2] ~= ARGV[4] then return 0 end "
                "return #redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'JUSTID')"
            )
            args = (KEYS.group, claimer, word, told[b"consumer"])
            if await server.execute("EVAL", script, 1, KEYS.stream, *args, key=KEYS.stream):
                claimed.append(parse_entry_id(word))
    return claimed


async def test_b8_what_is_announced_twice_is_taken_once_in_its_place(
    server: Server, empty_redis: StandaloneServers
) -> None:
    ids = await strand(server, 100)
    cut = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one, Action.FREE) for one in ids), cut=cut)
    for _ in range(2):
        done = await hand_over(server, an_act(), plan, owner, reason="offered")
        assert done.copied == 100
    endpoint = endpoint_of(empty_redis)
    async with connected(endpoint) as second, connected(endpoint) as third:
        taken = await asyncio.gather(
            *(claim_announced(one, f"c{n}") for n, one in enumerate((server, second, third)))
        )
    assert sorted(one for some in taken for one in some) == ids
    assert len(await bodies(server, KEYS.stream)) == 100
    again = await hand_over(server, an_act(), plan, owner, reason="offered")
    assert again.copied == 0
    assert {verdict for _, verdict in again.stays} == {Verdict.OTHER_OWNER}


async def test_more_entries_than_a_script_takes_are_offered_in_pieces(server: Server) -> None:
    ids = await strand(server, 4_500)
    cut = await server_time(server) + SOON
    plan, owner = a_plan(*(settlement(one) for one in ids), cut=cut)
    done = await hand_over(server, an_act(), plan, owner, reason="offered")
    assert done.copied == 4_500
    assert (await look(server)).chunk.under_way == set(ids)
    assert len(await recorded(server, LedgerKind.RELEASED)) == 4_500


async def test_what_was_offered_is_known_until_it_is_delivered_again(server: Server) -> None:
    (entry_id,) = await strand(server, 1)
    cut = await server_time(server) + SOON
    plan, owner = a_plan(settlement(entry_id), cut=cut)
    await hand_over(server, an_act(), plan, owner, reason="offered")
    (batch,) = await recover_all(server, order=an_order(moves=False))
    assert [one.was_offered for one in batch.suspects] == [True]
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(entry_id), "IDLE", 7)
    await server.execute(*claim, key=KEYS.stream)
    (batch,) = await recover_all(server, order=an_order(moves=False))
    assert [one.was_offered for one in batch.suspects] == [False]


# -- consumers


async def test_invariant_5_a_consumer_is_removed_only_when_it_owns_nothing(server: Server) -> None:
    await strand(server, 1)
    assert not await remove_consumer(server, an_act(), DEAD)
    await recover_all(server)
    assert await remove_consumer(server, an_act(), DEAD)
    assert await list_consumers(server, KEYS.stream, KEYS.group) == []
    assert not await remove_consumer(server, an_act(), DEAD)
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
                told = len(await recorded(server, LedgerKind.REQUEUED))
                state = (length, len(await pending(server)), told)
            assert state == ((100, 0, 50) if part == 100 else (50, 50, 0))
            servers.server.kill()


def _log_file(servers: StandaloneServers) -> str:
    directory = servers.cli("CONFIG", "GET", "dir").splitlines()[-1]
    name = servers.cli("CONFIG", "GET", "appenddirname").splitlines()[-1]
    (found,) = Path(directory, name).glob("*.incr.aof")
    return str(found)
