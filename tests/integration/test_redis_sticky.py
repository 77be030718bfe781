"""Conditions of a group that went back, and of entries trimmed too soon, on real servers."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import LossCause, StickyCondition
from pelops.domain.stream_observation import StreamObservation
from pelops.errors import NotOurs
from pelops.policy.group.losses import (
    DroppedEntries,
    Holders,
    assess_loss,
    find_dropped,
    find_new_loss,
    find_vanished,
)
from pelops.policy.group.position import LastSeen, PositionChange, choose_newest, decide_went_back
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import (
    ObservationRequest,
    observe_group,
    observe_groups,
)
from pelops.redis_streams.group.lifecycle import provision_group, release_group
from pelops.redis_streams.group.maintenance import (
    clear_sticky,
    delay_recovery,
    record_dropped,
    record_loss,
    remember_position,
)
from pelops.redis_streams.recovery.consumers import remove_consumer
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.declaration import WORKER_SCRIPTS
from tests.integration.position_cases import (
    KEYS,
    OWNER,
    acknowledge,
    add_all,
    create_anew,
    with_pending_3_and_5,
)
from tests.integration.recovering import a_context
from tests.integration.redis_adapter import (
    an_owner,
    deliver,
    kinds_in_ledger,
    provision,
)

HOUR, MILLISECOND = timedelta(hours=1), timedelta(milliseconds=1)


async def test_a_group_that_went_back_is_reported_and_held_once(server: Server) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute("XGROUP", "SETID", KEYS.stream, KEYS.group, "2-0")
    change = decide_went_back(before, await observe_group(server, KEYS))
    assert change is not None
    until = await delay_recovery(server, KEYS, OWNER, change, hold=HOUR)
    # Another replica observes later: the group has moved on, and the delay stays as it was.
    await deliver(server, KEYS, 1)
    later = decide_went_back(before, await observe_group(server, KEYS))
    assert later is not None
    assert later.after == EntryId(3)
    assert await delay_recovery(server, KEYS, OWNER, later, hold=2 * HOUR) == until
    seen = await observe_group(server, KEYS)
    assert seen.state.back is not None
    assert (seen.state.back.before, seen.state.back.after) == (EntryId(6), EntryId(2))
    assert seen.state.back.delay_until == until
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.POSITION_CHANGED) == 1


async def look_after(server: Server, moment: datetime) -> StreamObservation:
    """Observe the group at least 1 ms after its position last went back, after `moment`."""
    seen = await observe_group(server, KEYS)
    while seen.state.back is None or seen.server_time - seen.state.back.since < MILLISECOND:
        seen = await observe_group(server, KEYS)
    assert seen.server_time > moment
    return seen


async def test_a_position_that_goes_back_again_delays_recovery_again(server: Server) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    for position in (4, 2):
        await server.execute("XGROUP", "SETID", KEYS.stream, KEYS.group, f"{position}-0")
        seen = await observe_group(server, KEYS)
        change = decide_went_back(before, seen)
        assert change is not None
        await delay_recovery(server, KEYS, OWNER, change, hold=HOUR)
        before = LastSeen.of(await look_after(server, seen.server_time))
    back = (await observe_group(server, KEYS)).state.back
    assert back is not None
    assert (back.before, back.after) == (EntryId(4), EntryId(2))


async def test_a_restored_snapshot_is_detected_from_an_earlier_observation(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await with_pending_3_and_5(server)
    empty_redis.cli("SAVE")
    await deliver(server, KEYS, 4)
    await remember_position(server, KEYS, OWNER)
    before = LastSeen.of(await observe_group(server, KEYS))
    empty_redis.master().kill()
    empty_redis.master().start()
    seen = await observe_group(server, KEYS)
    # The position in the group's state went back too: only an earlier observation shows it.
    assert seen.state.seen is not None
    assert seen.state.seen.last_delivered_id == EntryId(6)
    change = decide_went_back(before, seen)
    assert change is not None
    assert (change.before, change.after) == (EntryId(10), EntryId(6))


async def test_an_existing_delay_is_kept_without_a_time_of_observation(
    server: Server,
) -> None:
    await provision(server, KEYS)
    change = PositionChange(before=EntryId(6), after=EntryId(2), seen=None, message="")
    until = await delay_recovery(server, KEYS, OWNER, change, hold=HOUR)
    assert await delay_recovery(server, KEYS, OWNER, change, hold=2 * HOUR) == until


async def test_a_group_recreated_by_the_operator_did_not_go_back(server: Server) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    assert decide_went_back(before, await observe_group(server, KEYS)) is None
    await create_anew(server)
    assert decide_went_back(before, await observe_group(server, KEYS)) is None


async def test_an_acknowledged_sticky_is_gone_and_the_rest_stays(server: Server) -> None:
    await with_pending_3_and_5(server)
    change = PositionChange(before=EntryId(6), after=EntryId(2), seen=None, message="")
    await delay_recovery(server, KEYS, OWNER, change, hold=HOUR)
    with pytest.raises(NotOurs):
        await clear_sticky(server, KEYS, an_owner("other"), [StickyCondition.POSITION_WENT_BACK])
    assert await clear_sticky(
        server, KEYS, OWNER, [StickyCondition.POSITION_WENT_BACK, StickyCondition.DATA_LOSS]
    )
    assert not await clear_sticky(server, KEYS, OWNER, [StickyCondition.POSITION_WENT_BACK])
    assert not await clear_sticky(server, KEYS, OWNER, [])
    seen = await observe_group(server, KEYS)
    assert seen.state.back is None
    assert seen.state.seen is not None
    assert seen.ownership is not None


async def read_and_owe(server: Server) -> None:
    """Ten entries, of which three were delivered."""
    await provision(server, KEYS)
    await add_all(server, range(1, 11))
    await deliver(server, KEYS, 3)
    await acknowledge(server, 1, 2, 3)


async def bounds(server: Server) -> tuple[int, int | None] | None:
    loss = assess_loss(await observe_group(server, KEYS))
    return None if loss is None else (loss.at_least, loss.at_most)


@pytest.mark.parametrize(
    ("commands", "found"),
    [
        ([("XTRIM", KEYS.stream, "MINID", "4")], None),  # only what was delivered
        ([("XTRIM", KEYS.stream, "MINID", "7")], (3, 3)),
        ([("XTRIM", KEYS.stream, "MAXLEN", "0")], (7, 7)),
        # C1: what users delete does not count, and a loss among deletions has an upper bound.
        ([("XDEL", KEYS.stream, "4-0", "6-0", "9-0")], None),
        ([("XDEL", KEYS.stream, "4-0", "6-0", "9-0", "1-0", "2-0", "3-0")], (0, 2)),
        ([("XDEL", KEYS.stream, "8-0"), ("XTRIM", KEYS.stream, "MINID", "7")], (0, 3)),
        # Deleting what was delivered leaves the count exact.
        ([("XDEL", KEYS.stream, "1-0", "2-0"), ("XTRIM", KEYS.stream, "MINID", "6")], (2, 2)),
    ],
)
async def test_what_is_removed_before_delivery_is_lost_and_counted(
    server: Server, commands: list[tuple[str, ...]], found: tuple[int, int] | None
) -> None:
    await read_and_owe(server)
    for command in commands:
        await server.execute(*command)
    assert await bounds(server) == found


async def test_a_loss_is_seen_though_the_group_never_read(server: Server) -> None:
    await provision(server, KEYS)
    await add_all(server, range(1, 11))
    await server.execute("XTRIM", KEYS.stream, "MINID", "7")
    seen = await observe_group(server, KEYS)
    assert seen.group is not None
    assert await bounds(server) in ((6, 6), (6, None))


async def test_an_unknown_count_of_entries_read_claims_no_loss(server: Server) -> None:
    await add_all(server, range(1, 11))
    await server.execute("XTRIM", KEYS.stream, "MINID", "7")
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "2-5")
    await provision(server, KEYS)
    seen = await observe_group(server, KEYS)
    assert seen.group is not None
    assert seen.group.entries_read is None
    assert assess_loss(seen) is None


async def test_a_gap_is_recorded_once_until_it_grows(server: Server) -> None:
    await read_and_owe(server)
    await server.execute("XTRIM", KEYS.stream, "MINID", "7")
    seen = await observe_group(server, KEYS)
    loss = assess_loss(seen)
    assert loss is not None
    assert await record_loss(server, KEYS, OWNER, loss, first_id=seen.first_id)
    assert not await record_loss(server, KEYS, OWNER, loss, first_id=seen.first_id)
    sticky = (await observe_group(server, KEYS)).state.loss
    assert sticky is not None
    assert (sticky.at_least, sticky.at_most, sticky.position) == (3, 3, EntryId(3))
    # An acknowledged gap is still there, and stays acknowledged until it grows.
    assert await clear_sticky(server, KEYS, OWNER, [StickyCondition.DATA_LOSS])
    assert not await record_loss(server, KEYS, OWNER, loss, first_id=seen.first_id)
    acknowledged = await observe_group(server, KEYS)
    assert acknowledged.state.loss is None
    assert find_new_loss(acknowledged) is None
    await server.execute("XTRIM", KEYS.stream, "MINID", "9")
    seen = await observe_group(server, KEYS)
    grown = find_new_loss(seen)
    assert grown is not None
    assert await record_loss(server, KEYS, OWNER, grown, first_id=seen.first_id)
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.DATA_LOSS) == 2


@pytest.mark.parametrize("field", ["back:since_ms", "back:hold_until_ms", "loss:seen_ms"])
async def test_damaged_sticky_are_written_again(server: Server, field: str) -> None:
    await provision(server, KEYS)
    for damage in ("nan", "9" * 30, "-1", "x"):
        await server.execute("HSET", KEYS.state, field, damage)
        change = PositionChange(before=EntryId(6), after=EntryId(2), seen=None, message="")
        await delay_recovery(server, KEYS, OWNER, change, hold=HOUR)
        assert (await observe_group(server, KEYS)).state.back is not None


async def test_a_deleted_stream_is_recorded_as_a_loss_once(
    server: Server,
) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute("DEL", KEYS.stream)
    loss = find_vanished(before, await observe_group(server, KEYS))
    assert loss is not None
    assert (loss.cause, loss.undelivered, loss.pending) == (LossCause.STREAM_GONE, 4, 2)
    await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, existed=True, loss=loss)
    sticky = (await observe_group(server, KEYS)).state.loss
    assert sticky is not None
    assert (sticky.cause, sticky.undelivered, sticky.pending) == (loss.cause, 4, 2)
    assert sticky.observed is not None
    assert before is not None
    assert before.at is not None
    assert timedelta() <= before.at - sticky.observed < MILLISECOND
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.DATA_LOSS) == 1
    # Another replica with an earlier observation finds the recorded loss and reports nothing.
    assert find_vanished(before, await observe_group(server, KEYS)) is None
    await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, existed=True, loss=loss)
    assert not await record_loss(server, KEYS, OWNER, loss, first_id=None)
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.DATA_LOSS) == 1


async def test_a_deleted_stream_that_was_refilled_beyond_its_count_is_a_loss(
    server: Server,
) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute("DEL", KEYS.stream)
    await add_all(server, range(11, 26))
    loss = find_vanished(before, await observe_group(server, KEYS))
    assert loss is not None
    assert (loss.cause, loss.undelivered, loss.pending) == (LossCause.STREAM_GONE, 4, 2)


async def test_a_stream_that_was_trimmed_and_refilled_is_no_deleted_one(server: Server) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute("XTRIM", KEYS.stream, "MAXLEN", "0", key=KEYS.stream)
    await add_all(server, range(11, 26))
    assert find_vanished(before, await observe_group(server, KEYS)) is None


async def test_what_the_state_remembers_is_enough_to_report_a_loss(server: Server) -> None:
    await with_pending_3_and_5(server)
    await server.execute("DEL", KEYS.stream)
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "$", "MKSTREAM")
    seen = await observe_group(server, KEYS)
    loss = find_vanished(choose_newest(None, None, seen), seen)
    assert loss is not None
    assert (loss.cause, loss.undelivered, loss.pending) == (LossCause.STREAM_GONE, 4, 2)
    assert await record_loss(server, KEYS, OWNER, loss, first_id=None)
    again = await observe_group(server, KEYS)
    assert find_vanished(choose_newest(None, None, again), again) is None
    assert await clear_sticky(server, KEYS, OWNER, [StickyCondition.DATA_LOSS])
    cleared = await observe_group(server, KEYS)
    assert cleared.state.loss is None
    assert find_vanished(choose_newest(None, None, cleared), cleared) is None


async def test_a_flushed_server_keeps_a_loss_in_its_new_state(server: Server) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute("FLUSHALL")
    loss = find_vanished(before, await observe_group(server, KEYS))
    assert loss is not None
    await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, existed=True, loss=loss)
    seen = await observe_group(server, KEYS)
    assert seen.state.loss is not None
    assert find_vanished(before, seen) is None


async def test_a_group_that_is_destroyed_loses_nothing(server: Server) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    assert find_vanished(before, await observe_group(server, KEYS)) is None


@pytest.mark.parametrize(
    "command",
    [
        ("XTRIM", KEYS.stream, "MAXLEN", "0"),
        ("XTRIM", KEYS.stream, "MINID", "8"),
        ("XDEL", KEYS.stream, "10-0", "9-0"),
        ("XACK", KEYS.stream, KEYS.group, "3-0"),
    ],
)
async def test_trimming_and_deleting_leave_the_stream_what_it_was(
    server: Server, command: tuple[str, ...]
) -> None:
    await with_pending_3_and_5(server)
    before = LastSeen.of(await observe_group(server, KEYS))
    await server.execute(*command)
    assert find_vanished(before, await observe_group(server, KEYS)) is None


async def test_a_group_that_is_adopted_is_compared_with_nothing_of_before(server: Server) -> None:
    await with_pending_3_and_5(server)
    await release_group(server, KEYS, OWNER)
    await server.execute("DEL", KEYS.stream)
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "$", "MKSTREAM")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner("another"))
    seen = await observe_group(server, KEYS)
    assert seen.state.seen is None
    assert find_vanished(choose_newest(None, None, seen), seen) is None


async def test_repeats_are_counted_up_to_the_newest_observation(server: Server) -> None:
    await with_pending_3_and_5(server)
    await acknowledge(server, 3, 5)
    await remember_position(server, KEYS, OWNER)
    await deliver(server, KEYS, 3)
    newest = LastSeen.of(await observe_group(server, KEYS))
    assert newest is not None
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    made = await provision_group(
        server, KEYS, start=EntryId.MIN, owner=OWNER, newest=newest.last_delivered_id
    )
    assert made.creation is not None
    assert (made.creation.position, made.creation.repeats) == (EntryId(6), 3)


async def look_at_consumers(server: Server) -> StreamObservation:
    look = ObservationRequest(KEYS, with_consumers=True)
    seen = (await observe_groups(server, [look]))[look]
    assert isinstance(seen, StreamObservation)
    return seen


async def find_dropped_since(server: Server, before: StreamObservation) -> DroppedEntries | None:
    now = await look_at_consumers(server)
    return find_dropped(Holders.of(before), now, has_left=lambda _: False)


async def test_pending_entries_of_a_consumer_that_was_deleted_are_recorded_once(
    server: Server,
) -> None:
    await with_pending_3_and_5(server)
    before = await look_at_consumers(server)
    await server.execute("XGROUP", "DELCONSUMER", KEYS.stream, KEYS.group, "worker")
    dropped = await find_dropped_since(server, before)
    assert dropped is not None
    assert (dropped.at_most, dropped.consumers, dropped.is_quiet) == (2, {"worker": 2}, False)
    dropped = replace(dropped, is_quiet=True)
    assert await record_dropped(server, KEYS, OWNER, dropped) == 2
    assert await record_dropped(server, KEYS, OWNER, dropped) is None, "another replica saw it too"
    sticky = (await observe_group(server, KEYS)).state.dropped
    assert sticky is not None
    assert (sticky.at_most, sticky.consumer, sticky.consumers) == (2, "worker", 1)
    assert (await kinds_in_ledger(server, KEYS)).count(LedgerKind.PENDING_DROPPED) == 1
    assert await clear_sticky(server, KEYS, OWNER, [StickyCondition.PENDING_DROPPED])
    assert (await observe_group(server, KEYS)).state.dropped is None
    assert await record_dropped(server, KEYS, OWNER, dropped) is None


async def test_a_consumer_that_was_busy_is_recorded_without_an_alarm(server: Server) -> None:
    await with_pending_3_and_5(server)
    before = await look_at_consumers(server)
    await server.execute("XGROUP", "DELCONSUMER", KEYS.stream, KEYS.group, "worker")
    dropped = await find_dropped_since(server, before)
    assert dropped is not None
    assert await record_dropped(server, KEYS, OWNER, dropped) == 2
    assert (await observe_group(server, KEYS)).state.dropped is None


async def removed_by_the_operator(server: Server) -> None:
    await acknowledge(server, 3, 5)
    assert await remove_consumer(server, a_context(), "worker")


async def removed_by_its_worker(server: Server) -> None:
    await acknowledge(server, 3, 5)
    leave = load_script("leave", Refusal, WORKER_SCRIPTS)
    call = leave.call(KEYS, {"others": ()}, group=KEYS.group, me="worker")
    assert leave.read(await server.run(call)).verdict == "removed"


async def removed_among_more_events_than_are_read(server: Server) -> None:
    for _ in range(60):
        await server.execute("XADD", KEYS.ledger, "*", "kind", "requeued", key=KEYS.ledger)
    await server.execute("XGROUP", "DELCONSUMER", KEYS.stream, KEYS.group, "worker")


@pytest.mark.parametrize(
    "remove",
    [removed_by_the_operator, removed_by_its_worker, removed_among_more_events_than_are_read],
)
async def test_a_consumer_that_may_have_owned_nothing_is_not_reported(
    server: Server, remove: Callable[[Server], Awaitable[None]]
) -> None:
    await with_pending_3_and_5(server)
    before = await look_at_consumers(server)
    await remove(server)
    dropped = await find_dropped_since(server, before)
    assert dropped is not None, "Redis shows no difference"
    assert await record_dropped(server, KEYS, OWNER, dropped) is None, "the ledgers do"
    assert LedgerKind.PENDING_DROPPED not in await kinds_in_ledger(server, KEYS)


async def test_claimed_entries_of_a_consumer_that_was_deleted_are_not_dropped(
    server: Server,
) -> None:
    await with_pending_3_and_5(server)
    before = await look_at_consumers(server)
    await server.execute("XCLAIM", KEYS.stream, KEYS.group, "other", 0, "3-0", "5-0", "JUSTID")
    await server.execute("XGROUP", "DELCONSUMER", KEYS.stream, KEYS.group, "worker")
    assert await find_dropped_since(server, before) is None


async def test_very_many_consumers_are_not_listed(server: Server) -> None:
    await provision(server, KEYS)
    for number in range(201):
        await server.execute("XGROUP", "CREATECONSUMER", KEYS.stream, KEYS.group, f"c-{number}")
    assert (await look_at_consumers(server)).consumers is None
