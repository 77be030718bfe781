"""Dead letters go back to their group, each once, with their own pairs and no other."""

import pytest

from local_cluster.redis_servers import ClusterServers, StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.dead_letter import LetterAction, SkipReason
from pelops.domain.records.ledger import LedgerKind
from pelops.errors import (
    AnotherRedriveRuns,
    CrossSlot,
    DeadLetterStreamInUse,
    NoSuchGroup,
    NotOurs,
    OutOfMemory,
    PositionAhead,
    RedriveNotStarted,
    StreamInUse,
    WouldDuplicate,
    WrongType,
)
from pelops.redis_core.server import Server
from pelops.redis_streams.redrive.moves import (
    Stop,
    check_redrive,
    finish_redrive,
    move_letters,
    read_letters,
    start_redrive,
)
from tests.integration.redis_adapter import connected, endpoint_of, provision
from tests.integration.redriving import (
    KEYS,
    a_redrive,
    add_letter,
    entries_of,
    letter_of,
    move_all,
    state_of,
)
from tests.integration.retaining import events

REDRIVE = a_redrive()


@pytest.fixture
async def server(server: Server) -> Server:
    """With the group."""
    await provision(server, KEYS)
    return server


async def test_a_letter_goes_back_with_its_own_pairs_and_its_root(server: Server) -> None:
    own: list[str | bytes] = ["order", "4711", "order", b"\xff\x00", "_retry_count", "of the user"]
    letter = await add_letter(server, KEYS, own, "5-0", error="PaymentTimeout")
    result = await move_all(server, REDRIVE)
    ((copy, flat),) = await entries_of(server, KEYS.stream)
    expected = [part.encode() if isinstance(part, str) else part for part in own]
    marks = [b"_redrive", b"after-fix/11d0-a", b"_returned", b"1"]
    assert flat == [*expected, *marks, b"_original_id", b"5-0", b"_retry_count", b"0"]
    assert (result.moved, result.stop, result.progress.is_at_end) == (1, Stop.DONE, True)
    assert await entries_of(server, KEYS.dead_letter) == []
    (event,) = await events(server, LedgerKind.REDRIVEN)
    assert event.details == {
        "stream": KEYS.dead_letter,
        "target": KEYS.stream,
        "redrive": "after-fix/11d0-a",
        "requested_by": "jane",
        "actor": "replica-1",
    }
    (moved,) = event.entries
    assert (moved.entry_id, str(moved.new_id), str(moved.root_id)) == (letter, copy, "5-0")
    assert (moved.retry_count, moved.deliveries) == (0, 0)


async def test_an_entry_that_returns_keeps_one_pair_of_marks_and_is_counted(server: Server) -> None:
    before = ["f", "v", "_redrive", "an-older.one/uid-7", "_returned", "2"]
    letter_id = await add_letter(server, KEYS, before)
    page = await read_letters(server, REDRIVE, after=EntryId.MIN, until=letter_id)
    (letter,) = page.letters
    assert (letter.redrive, letter.returned) == ("an-older.one/uid-7", 2)
    assert letter.pairs == ((b"f", b"v"),)
    await move_all(server, REDRIVE)
    ((_, flat),) = await entries_of(server, KEYS.stream)
    assert flat[:6] == [b"f", b"v", b"_redrive", b"after-fix/11d0-a", b"_returned", b"3"]
    assert len(flat) == 10


@pytest.mark.parametrize(
    "forged",
    [
        ["_redrive", "no slash", "_returned", "2"],
        ["_redrive", "a/b", "_returned", "-1"],
        ["_redrive", "a/b", "_returned", "1234567"],
        ["_returned", "1", "_redrive", "a/b"],
        ["_redrive", f"{'a' * 318}/b", "_returned", "1"],
    ],
)
async def test_pairs_that_are_no_marks_stay_the_users(server: Server, forged: list[str]) -> None:
    letter_id = await add_letter(server, KEYS, forged)
    page = await read_letters(server, REDRIVE, after=EntryId.MIN, until=letter_id)
    assert len(page.letters[0].pairs) == 2
    await move_all(server, REDRIVE)
    ((_, flat),) = await entries_of(server, KEYS.stream)
    assert [part.decode() for part in flat[:4]] == forged
    assert flat[4:8] == [b"_redrive", b"after-fix/11d0-a", b"_returned", b"1"]


async def test_letters_added_after_the_start_stay(server: Server) -> None:
    for _ in range(3):
        await add_letter(server, KEYS)
    await start_redrive(server, REDRIVE)
    late = await add_letter(server, KEYS)
    progress = await start_redrive(server, REDRIVE)
    result = await move_letters(server, REDRIVE, [late], after=EntryId.MIN, through=EntryId.MAX)
    assert (result.moved, result.skipped) == (0, {})
    assert result.progress.is_at_end
    assert progress.until < late
    assert len(await entries_of(server, KEYS.dead_letter)) == 4


async def test_the_bound_of_the_status_stays_when_redis_lost_its_record(server: Server) -> None:
    first = await add_letter(server, KEYS)
    await start_redrive(server, REDRIVE)
    await server.execute("HDEL", KEYS.state, *(await state_of(server)), key=KEYS.state)
    await add_letter(server, KEYS)
    progress = await start_redrive(server, REDRIVE, known_until=first)
    assert progress.until == first
    assert (await move_all(server, REDRIVE)).moved == 1


async def test_a_group_has_one_running_redrive(server: Server) -> None:
    await add_letter(server, KEYS)
    other = a_redrive(uid="22", name="the-second")
    await start_redrive(server, REDRIVE)
    with pytest.raises(AnotherRedriveRuns, match="after-fix") as raised:
        await start_redrive(server, other)
    assert raised.value.redrive == "after-fix/11d0-a"
    with pytest.raises(AnotherRedriveRuns):
        await move_letters(server, other, [], after=EntryId.MIN, through=EntryId.MIN)
    await finish_redrive(server, other, forget=True)
    with pytest.raises(AnotherRedriveRuns):
        await start_redrive(server, other)
    await finish_redrive(server, REDRIVE, forget=False)
    assert (await move_all(server, other)).moved == 1
    with pytest.raises(AnotherRedriveRuns):
        await move_letters(server, REDRIVE, [], after=EntryId.MIN, through=EntryId.MIN)


async def test_an_abandoned_redrive_is_replaced_by_another(server: Server) -> None:
    await start_redrive(server, REDRIVE)
    ms = int((await server.execute("TIME"))[0]) * 1000 - 301_000
    fields = ("redrive:running", f"11d0-a {ms} after-fix")
    await server.execute("HSET", KEYS.state, *fields, key=KEYS.state)
    other = a_redrive(uid="22", name="the-second")
    await start_redrive(server, other)
    with pytest.raises(AnotherRedriveRuns):
        await start_redrive(server, REDRIVE)


async def test_nothing_is_left_of_a_redrive_that_is_forgotten(server: Server) -> None:
    await add_letter(server, KEYS)
    await move_all(server, REDRIVE, rate=100, limit=5)
    assert await state_of(server)
    await finish_redrive(server, REDRIVE, forget=True)
    assert await state_of(server) == {}
    await finish_redrive(server, REDRIVE, forget=True)
    with pytest.raises(RedriveNotStarted):
        await move_letters(server, REDRIVE, [], after=EntryId.MIN, through=EntryId.MIN)


async def test_a_page_that_the_cursor_has_not_reached_is_refused(server: Server) -> None:
    ids = [await add_letter(server, KEYS) for _ in range(3)]
    await start_redrive(server, REDRIVE)
    result = await move_letters(server, REDRIVE, ids[2:], after=ids[1], through=ids[2])
    assert (result.stop, result.moved, result.progress.cursor) == (Stop.BEHIND, 0, EntryId.MIN)
    result = await move_letters(server, REDRIVE, ids[:1], after=EntryId.MIN, through=ids[1])
    assert (result.moved, result.progress.cursor) == (1, ids[1])
    # Another replica with an older cursor: the entry outside its selection stays.
    result = await move_letters(server, REDRIVE, ids, after=EntryId.MIN, through=ids[2])
    assert (result.moved, result.progress.moved) == (1, 2)
    assert [one for one, _ in await entries_of(server, KEYS.dead_letter)] == [str(ids[1])]


async def test_the_limit_holds_over_all_calls(server: Server) -> None:
    for _ in range(120):
        await add_letter(server, KEYS)
    result = await move_all(server, REDRIVE, limit=70)
    assert (result.moved, result.stop) == (70, Stop.LIMIT)
    assert not result.progress.is_at_end
    again = await move_all(server, REDRIVE, limit=70)
    assert (again.moved, again.stop, again.progress.moved) == (0, Stop.LIMIT, 70)
    assert (await move_all(server, REDRIVE)).progress.moved == 120


async def test_the_rate_is_shared_and_counted_by_redis_time(server: Server) -> None:
    for _ in range(400):
        await add_letter(server, KEYS)
    result = await move_all(server, REDRIVE, rate=50)
    assert result.stop is Stop.RATE
    assert 5 <= result.moved < 400
    assert result.wait.total_seconds() > 0
    # However long the redrive was idle, it moves at most one second's worth at once.
    bucket = f"redrive:{REDRIVE.uid}:bucket"
    await server.execute("HSET", KEYS.state, bucket, "0 1760000000000", key=KEYS.state)
    more = await move_all(server, REDRIVE, rate=50)
    assert 50 <= more.moved < 300


async def test_the_backlog_bounds_what_is_moved(server: Server) -> None:
    for _ in range(20):
        await add_letter(server, KEYS)
    for _ in range(4):
        await server.execute("XADD", KEYS.stream, "*", "f", "v", key=KEYS.stream)
    group = ("GROUP", KEYS.group, "w", "COUNT", 3, "STREAMS", KEYS.stream, ">")
    read = await server.execute("XREADGROUP", *group, key=KEYS.stream)
    result = await move_all(server, REDRIVE, max_backlog=10)
    assert (result.moved, result.stop) == (6, Stop.BACKLOG)
    ids = [entry_id for entry_id, _ in read[0][1]]
    await server.execute("XACK", KEYS.stream, KEYS.group, *ids, key=KEYS.stream)
    result = await move_all(server, REDRIVE, max_backlog=10)
    assert (result.moved, result.stop) == (3, Stop.BACKLOG)
    assert (await move_all(server, REDRIVE, max_backlog=100)).moved == 11


async def test_what_cannot_be_moved_is_skipped_with_its_reason(server: Server) -> None:
    tiny = a_redrive(max_entry_bytes=2000)
    vanished = await add_letter(server, KEYS)
    gone = await add_letter(server, KEYS, (), reason="PayloadGone")
    large = await add_letter(server, KEYS, ("f", "v" * 2000))
    damaged = await add_letter(server, KEYS, root="no ID")
    future = await add_letter(server, KEYS, root="99999999999999-0")
    wide = await add_letter(server, KEYS, ["", ""] * 3899)
    foreign = await add_letter(server, KEYS, group="another")
    plain = await server.execute("XADD", KEYS.dead_letter, "*", "f", "v", key=KEYS.dead_letter)
    good = await add_letter(server, KEYS, ["", ""] * 3)
    await start_redrive(server, tiny)
    await server.execute("XDEL", KEYS.dead_letter, str(vanished), key=KEYS.dead_letter)
    ids = [vanished, gone, large, damaged, future, wide, foreign]
    last = EntryId(*map(int, plain.decode().split("-")))
    result = await move_letters(server, tiny, [*ids, last, good], after=EntryId.MIN, through=good)
    assert result.skipped == {
        SkipReason.VANISHED: 1,
        SkipReason.NO_BODY: 1,
        SkipReason.TOO_LARGE: 1,
        SkipReason.DAMAGED: 2,
        SkipReason.TOO_WIDE: 1,
        SkipReason.FOREIGN: 2,
    }
    assert (result.moved, result.stop, result.progress.skipped) == (1, Stop.DONE, result.skipped)
    left = {one for one, _ in await entries_of(server, KEYS.dead_letter)}
    assert left == {str(one) for one in [*ids[1:], last]}
    again = await move_letters(server, tiny, [*ids, good], after=EntryId.MIN, through=good)
    assert (again.moved, again.skipped, again.progress.skipped) == (0, {}, result.skipped)


async def test_the_widest_letter_that_moves_can_become_a_letter_again(server: Server) -> None:
    await add_letter(server, KEYS, ["", ""] * 3898)
    assert (await move_all(server, REDRIVE)).moved == 1
    ((_, flat),) = await entries_of(server, KEYS.stream)
    assert len(flat) == 2 * 3898 + 8


async def test_a_page_of_letters_is_bounded_in_bytes(server: Server) -> None:
    ids = [await add_letter(server, KEYS, ("f", "v" * 400_000)) for _ in range(8)]
    page = await read_letters(server, REDRIVE, after=EntryId.MIN, until=ids[-1])
    assert 1 <= len(page.letters) < 8
    assert page.through == page.letters[-1].entry_id
    assert (await move_all(server, REDRIVE)).moved == 8


async def test_letters_can_go_to_the_retry_stream_beside_other_groups(server: Server) -> None:
    for key in (KEYS.stream, KEYS.retry):
        await server.execute("XGROUP", "CREATE", key, "theirs", "0", "MKSTREAM", key=key)
    await server.execute("XGROUP", "CREATE", KEYS.retry, KEYS.group, "0", key=KEYS.retry)
    await add_letter(server, KEYS)
    with pytest.raises(WouldDuplicate, match="2 consumer groups"):
        await move_all(server, REDRIVE)
    with pytest.raises(WouldDuplicate):
        await check_redrive(server, REDRIVE)
    to_retry = a_redrive(to_retry_stream=True)
    await check_redrive(server, to_retry)
    assert (await move_all(server, to_retry)).moved == 1
    assert len(await entries_of(server, KEYS.retry)) == 1


async def test_a_discarded_letter_is_kept_whole_and_restored(server: Server) -> None:
    own = ["f", "v", "_redrive", "a/b", "_returned", "2"]
    letter = [part.encode() for part in letter_of(KEYS, own) if isinstance(part, str)]
    first = await add_letter(server, KEYS, own)
    empty = await add_letter(server, KEYS, (), reason="PayloadGone")
    discard = a_redrive(action=LetterAction.DISCARD)
    assert (await move_all(server, discard)).moved == 2
    await finish_redrive(server, discard, forget=True)
    found = await entries_of(server, KEYS.discarded)
    assert next(flat for _, flat in found) == letter
    assert await entries_of(server, KEYS.dead_letter) == []
    (event,) = await events(server, LedgerKind.DISCARDED)
    assert [one.entry_id for one in event.entries] == [first, empty]
    assert [str(one.new_id) for one in event.entries] == [one for one, _ in found]
    restore = a_redrive(action=LetterAction.RESTORE, uid="22", name="back")
    assert (await move_all(server, restore)).moved == 2
    back = await entries_of(server, KEYS.dead_letter)
    assert next(flat for _, flat in back) == letter
    assert await entries_of(server, KEYS.discarded) == []
    (event,) = await events(server, LedgerKind.RESTORED)
    assert (event.details["stream"], event.details["target"]) == (KEYS.discarded, KEYS.dead_letter)
    assert [str(one.new_id) for one in event.entries] == [one for one, _ in back]


async def test_dead_letters_are_not_discarded_into_a_foreign_stream(server: Server) -> None:
    await add_letter(server, KEYS)
    await server.execute("XADD", KEYS.discarded, "*", "f", "v", key=KEYS.discarded)
    with pytest.raises(StreamInUse, match="did not write"):
        await move_all(server, a_redrive(action=LetterAction.DISCARD))
    assert len(await entries_of(server, KEYS.discarded)) == 1
    assert len(await entries_of(server, KEYS.dead_letter)) == 1


async def test_refusals_come_before_anything_is_written(server: Server) -> None:
    await add_letter(server, KEYS)
    await start_redrive(server, REDRIVE)
    before = await state_of(server)
    refused = {
        NotOurs: ("HSET", KEYS.state, "owner:uid", "uid-2"),
        DeadLetterStreamInUse: ("XGROUP", "CREATE", KEYS.dead_letter, "theirs", "0"),
        NoSuchGroup: ("XGROUP", "DESTROY", KEYS.stream, KEYS.group),
        WrongType: ("SET", KEYS.ledger, "of somebody"),
    }
    undone = {
        NotOurs: ("HSET", KEYS.state, "owner:uid", "uid-1"),
        DeadLetterStreamInUse: ("XGROUP", "DESTROY", KEYS.dead_letter, "theirs"),
        NoSuchGroup: ("XGROUP", "CREATE", KEYS.stream, KEYS.group, "0"),
        WrongType: ("DEL", KEYS.ledger),
    }
    for error, command in refused.items():
        await server.execute(*command, key=KEYS.stream)
        with pytest.raises(error):
            await move_all(server, REDRIVE)
        with pytest.raises(error):
            await check_redrive(server, REDRIVE)
        assert len(await entries_of(server, KEYS.dead_letter)) == 1
        assert await entries_of(server, KEYS.stream) == []
        await server.execute(*undone[error], key=KEYS.stream)
    after = await state_of(server)
    assert {name: value for name, value in after.items() if name != "redrive:running"} == {
        name: value for name, value in before.items() if name != "redrive:running"
    }
    assert (await move_all(server, REDRIVE)).moved == 1


async def test_letters_of_an_unregistered_stream_stay(server: Server) -> None:
    await add_letter(server, KEYS)
    await server.execute("HSET", KEYS.dead_letter_owner, "group", "other", key=KEYS.stream)
    with pytest.raises(DeadLetterStreamInUse, match="not registered"):
        await move_all(server, REDRIVE)
    assert len(await entries_of(server, KEYS.dead_letter)) == 1


async def test_a_position_ahead_refuses_and_nothing_is_lost(server: Server) -> None:
    await add_letter(server, KEYS)
    setid = ("XGROUP", "SETID", KEYS.stream, KEYS.group, "9999999999999-0")
    await server.execute(*setid, key=KEYS.stream)
    with pytest.raises(PositionAhead):
        await move_all(server, REDRIVE)
    assert len(await entries_of(server, KEYS.dead_letter)) == 1


async def test_a_stream_at_its_last_id_stops_the_redrive(
    server: Server,
) -> None:
    ids = [await add_letter(server, KEYS) for _ in range(5)]
    almost = f"{2**64 - 1}-{2**64 - 3}"
    await server.execute("XADD", KEYS.stream, almost, "f", "v", key=KEYS.stream)
    result = await move_all(server, REDRIVE)
    assert (result.moved, result.stop, result.progress.cursor) == (2, Stop.EXHAUSTED, ids[1])
    result = await move_all(server, REDRIVE)
    assert (result.moved, result.stop) == (0, Stop.EXHAUSTED)
    left = [one for one, _ in await entries_of(server, KEYS.dead_letter)]
    assert left == [str(one) for one in ids[2:]]


async def test_a_dry_server_moves_nothing(server: Server) -> None:
    await add_letter(server, KEYS)
    await check_redrive(server, REDRIVE)
    assert await state_of(server) == {}
    assert len(await entries_of(server, KEYS.dead_letter)) == 1


async def test_a_server_out_of_memory_moves_nothing_and_goes_on_afterwards(
    server: Server, empty_redis: StandaloneServers
) -> None:
    for _ in range(3):
        await add_letter(server, KEYS)
    await start_redrive(server, REDRIVE)
    empty_redis.cli("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(OutOfMemory):
            await move_letters(server, REDRIVE, [], after=EntryId.MIN, through=EntryId.MAX)
        with pytest.raises(OutOfMemory):
            await start_redrive(server, REDRIVE)
    finally:
        empty_redis.cli("CONFIG", "SET", "maxmemory", "0")
    assert len(await entries_of(server, KEYS.dead_letter)) == 3
    assert (await move_all(server, REDRIVE)).moved == 3


async def test_letters_move_on_a_cluster_within_their_slot(empty_cluster: ClusterServers) -> None:
    async with connected(endpoint_of(empty_cluster)) as server:
        await provision(server, KEYS)
        await add_letter(server, KEYS)
        assert (await move_all(server, REDRIVE, max_backlog=10)).moved == 1
        elsewhere = derive_keys(KEYS.stream, KEYS.group, dead_letter="given-up")
        with pytest.raises(CrossSlot):
            await check_redrive(server, a_redrive(elsewhere))
