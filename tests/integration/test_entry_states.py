"""`pelops why` distinguishes the states of an entry by the rules that recovery applies."""

from __future__ import annotations

from datetime import timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.api.group.recovery import BackoffSpec, RecoveryStrategy
from pelops.domain.entry_id import EntryId
from pelops.domain.locks import lock_key
from pelops.domain.outcome import EntryState
from pelops.domain.records.inspection import StreamKind
from pelops.domain.records.state import RETRY_BATCH
from pelops.domain.recovery import LivenessReason, no_cutoff
from pelops.redis_core.server import Server
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.inspection.entry_history import NoSuchEntry, explain_entry, explain_match
from tests.integration.inspecting import ALIVE, dead_soon, explain, inspected, judged
from tests.integration.recovering import (
    DEAD,
    KEYS,
    a_context,
    add_many,
    bodies,
    pending,
    read_new,
    recover_all,
    server_time,
    snapshot,
    strand,
)
from tests.integration.redis_adapter import add, an_owner, provision, writes_so_far
from tests.integration.stream_scanning import (
    COUNTED,
    HOUR,
    LOCKS,
    a_run,
    add_old,
    died,
    make_idle,
    scan,
)

CRASH = {"max_retries": 3}


async def test_an_entry_that_waits_for_a_worker_is_undelivered(server: Server) -> None:
    await provision(server, KEYS)
    waits = await add(server, KEYS.stream)
    report = await explain(server, waits)
    assert report.finding.state is EntryState.UNDELIVERED
    assert report.entry_id == report.root_id == waits
    assert [event.what for event in report.events] == ["added"]


async def test_an_entry_of_a_live_worker_is_explained_with_its_timeout(
    server: Server,
) -> None:
    (held,) = await strand(server, 1)
    report = await explain(server, held, processing_timeout_seconds=60)
    assert report.finding.state is EntryState.HELD_BY_LIVE_WORKER
    assert "pod web-a is alive" in report.finding.message
    assert report.pending is not None
    assert report.finding.again_at == report.pending.delivered + timedelta(seconds=60)
    assert report.pending.consumer == DEAD


async def test_an_entry_of_a_consumer_without_a_pod_is_not_called_alive(server: Server) -> None:
    (held,) = await strand(server, 1)
    unknown = judged(no_cutoff(LivenessReason.UNKNOWN, "dead does not match any pod"))
    report = await explain(server, held, find_cutoffs=unknown)
    assert report.finding.state is EntryState.HELD_BY_UNKNOWN_CONSUMER
    doubtful = judged(no_cutoff(LivenessReason.MAYBE_ALIVE, "pod web-a may live"))
    report = await explain(server, held, find_cutoffs=doubtful)
    assert report.finding.state is EntryState.HELD_BY_UNKNOWN_CONSUMER
    assert "may live" in report.finding.message


async def test_an_entry_of_a_dead_worker_moves_with_the_next_scan(server: Server) -> None:
    (held,) = await strand(server, 1)
    report = await explain(server, held, find_cutoffs=dead_soon())
    assert report.finding.state is EntryState.HELD_BY_DEAD_WORKER
    assert "the next scan" in report.finding.message.lower()
    await scan(await a_run(server), died(await server_time(server) + HOUR))
    assert await pending(server) == {}


async def test_what_was_delivered_after_the_cutoff_is_the_live_process_own(server: Server) -> None:
    from tests.integration.inspecting import ended

    cutoff = await server_time(server) - HOUR
    (held,) = await strand(server, 1)
    report = await explain(server, held, find_cutoffs=judged(ended(cutoff)))
    assert report.finding.state is EntryState.HELD_BY_LIVE_WORKER


async def test_an_entry_idle_beyond_the_timeout_of_a_live_worker(server: Server) -> None:
    (held,) = await strand(server, 1)
    await make_idle(server, [held])
    report = await explain(server, held)
    assert report.finding.state is EntryState.IDLE_TOO_LONG
    assert "more than its limit of 300 s" in report.finding.message


async def test_an_entry_of_a_crashed_worker_waits_for_its_backoff(server: Server) -> None:
    (held,) = await strand(server, 1)
    backoff = BackoffSpec(initial_seconds=60)
    report = await explain(server, held, find_cutoffs=dead_soon(), backoff=backoff)
    assert report.finding.state is EntryState.WAITING_FOR_BACKOFF
    assert report.pending is not None
    assert report.finding.again_at == report.pending.delivered + timedelta(seconds=60)
    # The scan leaves it for the same reason.
    await scan(await a_run(server, backoff=backoff), died(await server_time(server) + HOUR))
    assert set(await pending(server)) == {held}


async def test_suspects_in_the_retry_batch_and_those_that_wait_for_their_turn(
    server: Server,
) -> None:
    await provision(server, KEYS)
    began = int((await server_time(server) - 10 * HOUR).timestamp() * 1000)
    for number in range(1, 5):
        marks = ("_original_id", f"1-{number}", "_retry_count", 1)
        add_one = ("XADD", KEYS.stream, f"{began + number}-0", "f", "v", *marks)
        await server.execute(*add_one, key=KEYS.stream)
    ids = await read_new(server, KEYS, 4)
    await make_idle(server, ids)
    await scan(await a_run(server), died(await server_time(server) + HOUR))
    waiting = sorted(await pending(server))
    (chunk,) = await server.execute("HMGET", KEYS.state, RETRY_BATCH, key=KEYS.state)
    released = [EntryId(*map(int, word.split(b"-"))) for word in chunk.split()]
    assert waiting and released
    report = await explain(server, waiting[0], find_cutoffs=dead_soon())
    assert report.finding.state is EntryState.WAITING_FOR_RETRY_BATCH
    report = await explain(server, released[0], find_cutoffs=dead_soon())
    assert report.finding.state is EntryState.IN_RETRY_BATCH
    assert [event.what for event in report.events if event.source == "ledger"]
    await read_new(server, KEYS, 10, consumer="web-b")
    report = await explain(server, released[0])
    assert report.finding.state is EntryState.IN_RETRY_BATCH
    assert "web-b retries it now" in report.finding.message


async def test_an_entry_whose_lock_exists_is_locked(server: Server) -> None:
    (held,) = await strand(server, 1)
    lock = lock_key(LOCKS.key_template, KEYS, held)
    await server.execute("SET", lock, "held", key=lock)
    report = await explain(server, held, find_cutoffs=dead_soon(), locks=LOCKS)
    assert report.finding.state is EntryState.LOCKED
    assert lock in report.finding.message
    await server.execute("DEL", lock, key=lock)
    report = await explain(server, held, find_cutoffs=dead_soon(), locks=LOCKS)
    assert report.finding.state is EntryState.HELD_BY_DEAD_WORKER


async def test_a_copy_in_the_retry_stream_is_followed_by_the_ledger(server: Server) -> None:
    owner = an_owner()
    await provision_group(server, KEYS, start=EntryId.MIN, owner=owner, with_retry=True)
    await add_many(server, KEYS, 1)
    (held,) = await read_new(server, KEYS, 1)
    await recover_all(server, a_context(target=KEYS.retry, allows_others=True))
    strategy = RecoveryStrategy.RETRY_STREAM
    report = await explain(server, held, strategy=strategy)
    assert report.finding.state is EntryState.IN_RETRY_STREAM
    assert report.root_id == held
    await read_new(server, KEYS, 1, consumer="web-b", stream=KEYS.retry)
    report = await explain(server, held, strategy=strategy)
    assert report.finding.state is EntryState.HELD_BY_LIVE_WORKER
    assert report.place is StreamKind.RETRY_STREAM


async def test_a_dead_letter_is_found_by_every_id_of_its_chain(server: Server) -> None:
    (root,) = await strand(server, 1)
    await recover_all(server)
    (copy,) = await read_new(server, KEYS, 1)
    await make_idle(server, [copy])
    await scan(await a_run(server, max_retries=0), died(await server_time(server) + HOUR))
    (letter,) = await bodies(server, KEYS.dead_letter)
    for asked in (root, copy, letter):
        report = await explain(server, asked)
        assert report.finding.state is EntryState.DEAD_LETTER, asked
        assert (report.root_id, report.entry_id) == (root, letter)
        happened = [event.what for event in report.events if event.source == "ledger"]
        assert happened == [f"requeued as {copy}", f"dead-lettered as {letter}"]
    assert "MaxRetriesExceeded" in report.finding.message


async def test_an_acknowledged_entry_is_explained_as_uncertain(
    server: Server,
) -> None:
    (done,) = await strand(server, 1)
    await server.execute("XACK", KEYS.stream, KEYS.group, str(done), key=KEYS.stream)
    report = await explain(server, done)
    assert report.finding.state is EntryState.ACKNOWLEDGED
    assert not report.finding.is_certain
    await server.execute("XDEL", KEYS.stream, str(done), key=KEYS.stream)
    report = await explain(server, done)
    assert report.finding.state is EntryState.INDETERMINATE


async def test_ids_that_never_existed_are_certain(server: Server) -> None:
    ids = await strand(server, 2)
    after = EntryId(ids[1].ms + 1_000_000, 0)
    beside = EntryId(ids[0].ms, ids[0].seq + 77)
    for never in (after, beside, EntryId(1, 1)):
        report = await explain(server, never)
        assert report.finding.state is EntryState.NEVER_EXISTED, never
        assert report.finding.is_certain
    # Once the oldest entries were trimmed, an older ID may have been among them.
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", "=", 1, key=KEYS.stream)
    report = await explain(server, EntryId(1, 1))
    assert report.finding.state is EntryState.INDETERMINATE
    assert (await explain(server, after)).finding.state is EntryState.NEVER_EXISTED


async def test_a_dangling_pending_entry_is_explained(server: Server) -> None:
    (held,) = await strand(server, 1)
    await server.execute("XDEL", KEYS.stream, str(held), key=KEYS.stream)
    assert (await explain(server, held)).finding.state is EntryState.BODY_GONE


async def test_a_position_set_beyond_an_entry_is_no_acknowledgement(server: Server) -> None:
    await provision(server, KEYS)
    skipped = await add(server, KEYS.stream)
    words = ("kind", "position-changed", "from", "0-0", "to", str(skipped), "why", "by hand")
    await server.execute("XADD", KEYS.ledger, "*", *words, key=KEYS.ledger)
    await server.execute("XGROUP", "SETID", KEYS.stream, KEYS.group, "$", key=KEYS.stream)
    assert (await explain(server, skipped)).finding.state is EntryState.NOT_DELIVERED


async def test_recovery_that_is_disabled_or_blocked_is_said(server: Server) -> None:
    (held,) = await strand(server, 1)
    report = await explain(
        server, held, find_cutoffs=dead_soon(), strategy=RecoveryStrategy.DISABLED
    )
    assert "recovery.strategy is Disabled" in report.finding.message
    words = ('{"reason": "RequeueWouldDuplicate", "message": "2 groups read this stream."}',)
    await server.execute("HSET", KEYS.state, "sweep:report", *words, key=KEYS.state)
    report = await explain(server, held, find_cutoffs=dead_soon())
    assert "blocked: RequeueWouldDuplicate" in report.finding.message


# -- search by a field


async def test_the_newest_entry_with_a_value_is_found_and_others_are_named(
    server: Server,
) -> None:
    await provision(server, KEYS)
    for number in (1, 2, 1):
        words = ("XADD", KEYS.stream, "*", "order_id", number, "body", "x" * 100)
        await server.execute(*words, key=KEYS.stream)
    first, _, last = await bodies(server, KEYS.stream)
    report = await explain_match(inspected(server), "order_id", "1")
    assert report.entry_id == last and report.others == (first,)
    assert report.finding.state is EntryState.UNDELIVERED
    covered = report.coverage[0]
    assert (covered.searched, covered.is_whole) == (3, True)
    assert report.entry is not None and report.entry.pairs == ()
    with pytest.raises(NoSuchEntry, match="searched all 3 entries"):
        await explain_match(inspected(server), "order_id", "3")


async def test_a_search_finds_dead_letters_and_stops_where_it_says(server: Server) -> None:
    await provision(server, KEYS)
    words = ("XADD", KEYS.stream, "*", "order_id", "old")
    await server.execute(*words, key=KEYS.stream)
    await add_many(server, KEYS, 1_100)
    with pytest.raises(NoSuchEntry, match=r"the newest 1,0\d\d entries .* --deep"):
        await explain_match(inspected(server), "order_id", "old")
    report = await explain_match(inspected(server), "order_id", "old", deep=True)
    assert report.finding.state is EntryState.UNDELIVERED


# -- harmless


async def test_an_explanation_writes_nothing(
    server: Server, empty_redis: StandaloneServers
) -> None:
    ids = await add_old(server, 3, *COUNTED)
    await make_idle(server, ids)
    before, writes = await snapshot(server), writes_so_far(empty_redis)
    for one in ids:
        await explain(server, one, find_cutoffs=dead_soon(), locks=LOCKS)
    await explain_match(inspected(server), "f", "v")
    assert await snapshot(server) == before
    assert writes_so_far(empty_redis) == writes


async def test_a_large_entry_is_named_and_not_read(server: Server) -> None:
    await provision(server, KEYS)
    large = b"x" * (20 * 1024 * 1024)
    added = await server.execute("XADD", KEYS.stream, "*", "f", large, key=KEYS.stream)
    held = EntryId(*map(int, added.split(b"-")))
    claim = ("XCLAIM", KEYS.stream, KEYS.group, DEAD, 0, str(held), "FORCE", "JUSTID")
    await server.execute(*claim, key=KEYS.stream)
    report = await explain(server, held, find_cutoffs=judged(ALIVE))
    assert report.finding.state is EntryState.HELD_BY_LIVE_WORKER
    assert report.entry is not None and report.entry.bytes is None


async def test_forged_marks_and_letters_name_no_other_root(server: Server) -> None:
    await provision(server, KEYS)
    forged = ("_original_id", "99999999999999-0", "_retry_count", "1")
    entry = await server.execute("XADD", KEYS.stream, "*", "f", "v", *forged, key=KEYS.stream)
    entry_id = EntryId(*map(int, entry.split(b"-")))
    report = await explain(server, entry_id)
    assert report.root_id == entry_id
    assert report.finding.state is EntryState.UNDELIVERED
    strange = await server.execute("XADD", KEYS.dead_letter, "*", "a", "b", key=KEYS.dead_letter)
    letter = EntryId(*map(int, strange.split(b"-")))
    report = await explain_entry(inspected(server), letter, is_letter=True)
    assert report.finding.state is EntryState.DEAD_LETTER
    assert report.entry is not None and report.entry.letter is None
