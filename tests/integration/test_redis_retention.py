"""What is trimmed, and what never is, on real servers of each version."""

from datetime import timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.api.group.recovery import RetentionSpec
from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerKind
from pelops.errors import NotOurs, WrongType
from pelops.policy.group.retention import RetentionPlan, needs_retry_trim, plan_retention
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import (
    TRIM_BATCH,
    Trimmed,
    expire_dead_letters,
    trim_retry_stream,
    trim_stream,
)
from tests.integration.redis_adapter import (
    an_owner,
    deliver,
    provision,
    writes_so_far,
)
from tests.integration.retaining import DAY, KEYS, OWNER, events, fill, first_and_length

KEEP_NOTHING = RetentionPlan(max_length=1, max_age=None, message="")


@pytest.fixture
async def server(server: Server) -> Server:
    """With the group."""
    await provision(server, KEYS)
    return server


async def deliver_all(server: Server) -> None:
    """Have everything delivered and acknowledged."""
    script = (
        "local got = redis.call('XREADGROUP', 'GROUP', ARGV[1], 'w', 'STREAMS', KEYS[1], '>')"
        " for _, e in ipairs(got[1][2]) do redis.call('XACK', KEYS[1], ARGV[1], e[1]) end"
    )
    await server.execute("EVAL", script, 1, KEYS.stream, KEYS.group, key=KEYS.stream)


async def fill_delivered(server: Server, count: int) -> None:
    """Entries 1-0 and so on, all of them acknowledged."""
    await fill(server, KEYS.stream, count)
    await deliver_all(server)


async def trim(server: Server, plan: RetentionPlan = KEEP_NOTHING) -> Trimmed:
    return await trim_stream(server, KEYS, OWNER, plan)


async def test_a_stream_is_trimmed_to_about_its_length_and_that_is_reported(server: Server) -> None:
    await fill_delivered(server, 1000)
    outcome = await trim(server, RetentionPlan(max_length=250, max_age=None, message=""))
    assert (outcome.removed, outcome.first_id) == (700, EntryId(701))  # whole nodes of 100
    assert await first_and_length(server) == ("701-0", 300)
    (event,) = await events(server, LedgerKind.TRIMMED)
    assert event.details == {
        "stream": KEYS.stream,
        "count": "700",
        "below": "1000-0",
        "first_id_after": "701-0",
    }
    assert (await observe_group(server, KEYS)).state.totals.trimmed == 700


async def test_a_repeated_trim_removes_nothing_and_says_only_that_it_tried(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await fill_delivered(server, 1000)
    plan = RetentionPlan(max_length=250, max_age=None, message="")
    await trim(server, plan)
    before = writes_so_far(empty_redis)
    assert (await trim(server, plan)).removed == 0
    assert writes_so_far(empty_redis) == before + 1


async def test_a_trim_that_another_group_stops_is_not_planned_again_at_once(
    server: Server,
) -> None:
    await fill_delivered(server, 1000)
    await server.execute("XGROUP", "CREATE", KEYS.stream, "replay", "0")
    spec = RetentionSpec(max_length=100)
    plan = plan_retention(spec, await observe_group(server, KEYS))
    assert plan is not None
    await trim(server, plan)
    assert plan_retention(spec, await observe_group(server, KEYS)) is None


async def test_what_was_not_delivered_or_is_pending_stays(server: Server) -> None:
    """A7."""
    await fill(server, KEYS.stream, 1000)
    await deliver(server, KEYS, 450)
    assert (await trim(server)).removed == 0  # the first is pending
    ids = [f"{number}-0" for number in range(1, 301)]
    await server.execute("XACK", KEYS.stream, KEYS.group, *ids, key=KEYS.stream)
    outcome = await trim(server)
    assert (outcome.need, outcome.removed) == (EntryId(301), 300)
    assert await first_and_length(server) == ("301-0", 700)


async def test_the_slowest_of_several_groups_decides(server: Server) -> None:
    await fill_delivered(server, 1000)
    await server.execute("XGROUP", "CREATE", KEYS.stream, "slow", "650-0")
    outcome = await trim(server)
    assert (outcome.need, outcome.first_id) == (EntryId(650), EntryId(601))


async def test_a_stream_without_a_group_is_left_alone(server: Server) -> None:
    await fill(server, KEYS.stream, 1000)
    await server.execute("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    assert (await trim(server)).removed == 0
    await server.execute("DEL", KEYS.stream)
    assert (await trim(server)).removed == 0


async def test_a_call_removes_no_more_than_its_batch(server: Server) -> None:
    await fill_delivered(server, 2 * TRIM_BATCH + 500)
    removed = []
    while (outcome := await trim(server)).may_continue:
        removed.append(outcome.removed)
    assert removed == [TRIM_BATCH, TRIM_BATCH, 400]  # the last node holds what the group read last


async def test_old_entries_go_by_age(server: Server) -> None:
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    hour_ms = 3600 * 1000
    await fill(server, KEYS.stream, 200, ms=now_ms - 2 * hour_ms)
    await fill(server, KEYS.stream, 200, ms=now_ms - hour_ms // 2)
    await deliver_all(server)
    plan = RetentionPlan(max_length=None, max_age=timedelta(hours=1), message="")
    assert (await trim(server, plan)).first_id == EntryId(now_ms - hour_ms // 2, 1)
    assert (await first_and_length(server))[1] == 200


async def test_of_two_limits_one_suffices(server: Server) -> None:
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    await provision(server, KEYS)
    await fill(server, KEYS.stream, 200, ms=now_ms - 60_000)
    await fill(server, KEYS.stream, 400, ms=now_ms)
    await deliver_all(server)
    young = RetentionPlan(max_length=10_000, max_age=timedelta(seconds=30), message="")
    assert (await trim(server, young)).removed == 200
    short = RetentionPlan(max_length=100, max_age=DAY, message="")
    assert (await trim(server, short)).removed == 300


async def test_a_plan_without_limits_removes_nothing(server: Server) -> None:
    await fill_delivered(server, 1000)
    nothing = RetentionPlan(max_length=None, max_age=None, message="")
    assert (await trim(server, nothing)).removed == 0


async def test_a_stream_of_very_many_groups_is_looked_at_now_and_then(server: Server) -> None:
    await fill_delivered(server, 1000)
    for number in range(1000):
        await server.execute("XGROUP", "CREATE", KEYS.stream, f"g{number}", "$", key=KEYS.stream)
    await server.execute("XGROUP", "CREATE", KEYS.stream, "slow", "500-0")
    outcome = await trim(server)
    assert (outcome.removed, outcome.first_id) == (400, EntryId(401))
    await server.execute("XGROUP", "SETID", KEYS.stream, "slow", "$")
    assert await trim(server) == Trimmed()  # recently
    await server.execute("HSET", KEYS.state, "trim:at_ms", "1")
    assert (await trim(server)).removed == 500


async def test_only_who_acts_on_the_group_trims(server: Server) -> None:
    for attempt in (
        trim_stream(server, KEYS, an_owner("other"), KEEP_NOTHING),
        expire_dead_letters(server, KEYS, an_owner("other"), kept=DAY),
    ):
        with pytest.raises(NotOurs):
            await attempt


async def test_a_key_of_another_type_stops_trimming(server: Server) -> None:
    await fill_delivered(server, 1000)
    await server.execute("DEL", KEYS.ledger)
    await server.execute("SET", KEYS.ledger, "x")
    for attempt in (trim(server), expire_dead_letters(server, KEYS, OWNER, kept=DAY)):
        with pytest.raises(WrongType):
            await attempt
    assert (await first_and_length(server))[1] == 1000


async def test_acknowledged_entries_are_trimmed_from_the_retry_stream(server: Server) -> None:
    await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, with_retry=True)
    await fill(server, KEYS.retry, 250)
    retry = KEYS.retry
    await server.execute(
        *("XREADGROUP", "GROUP", KEYS.group, "w", "COUNT", 240, "STREAMS", retry, ">"), key=retry
    )
    acknowledged = [f"{number}-0" for number in range(1, 241) if number != 230]
    await server.execute("XACK", retry, KEYS.group, *acknowledged, key=retry)
    assert needs_retry_trim(await observe_group(server, KEYS, with_retry=True))
    removed = 0
    while (outcome := await trim_retry_stream(server, KEYS, OWNER)).may_continue:
        removed += outcome.removed
    assert removed == 229
    assert await first_and_length(server, retry) == ("230-0", 21)
    assert not needs_retry_trim(await observe_group(server, KEYS, with_retry=True))


async def test_a_trimmed_stream_gives_no_reason_to_trim_again(server: Server) -> None:
    spec = RetentionSpec(max_length=250)
    await provision(server, KEYS)
    await fill(server, KEYS.stream, 1000)
    assert plan_retention(spec, await observe_group(server, KEYS)) is None  # nothing was read
    await deliver_all(server)
    plan = plan_retention(spec, await observe_group(server, KEYS))
    assert plan is not None
    await trim(server, plan)
    assert plan_retention(spec, await observe_group(server, KEYS)) is None
