"""What audits record beside a group, and what the ledger keeps for them."""

from datetime import UTC, datetime, timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import audit_index_key
from pelops.domain.records.audit import MOST_AUDITS, MOST_GROUPS
from pelops.errors import InvalidSpec, PermissionDenied, WrongType
from pelops.redis_core.server import Server
from pelops.redis_streams.access import UserRole, acl_rules
from pelops.redis_streams.audit.records import (
    acknowledge_audit,
    forget_audit,
    forget_groups,
    read_audits,
    read_groups,
    record_audit,
    record_groups,
)
from pelops.redis_streams.group.lifecycle import destroy_group
from pelops.redis_streams.group.maintenance import expire_dead_letters
from tests.audits import a_summary, a_window
from tests.integration.redis_adapter import (
    connected,
    endpoint_of,
    provision,
    writes_so_far,
)
from tests.integration.retaining import DAY, KEYS, OWNER, fill_with, first_and_length

NAME = "shop/nightly"


async def recorded(server: Server, name: str = NAME) -> tuple[int, int, int]:
    """Number of the window that is there, entries lost in all, and acknowledged."""
    record = (await read_audits(server, [KEYS], name))[KEYS]
    assert record is not None and not isinstance(record, Exception)
    return record.summary.window.number, record.lost, record.acknowledged


async def test_entries_of_earlier_windows_that_are_lost_by_now_count_once(server: Server) -> None:
    assert await record_audit(server, KEYS, NAME, a_summary(lost=1)) == 1
    later = a_summary(a_window(1), lost=2, lost_earlier=3)
    for _ in range(2):
        assert await record_audit(server, KEYS, NAME, later) == 6
    assert await recorded(server) == (1, 6, 0)


async def test_a_summary_is_read_as_it_was_recorded(server: Server) -> None:
    summary = a_summary(lost=2)
    assert await record_audit(server, KEYS, NAME, summary) == 2
    record = (await read_audits(server, [KEYS], NAME))[KEYS]
    assert record is not None and not isinstance(record, Exception)
    assert (record.summary, record.lost, record.acknowledged) == (summary, 2, 0)
    assert (await read_audits(server, [KEYS], "shop/other"))[KEYS] is None


async def test_an_old_window_that_is_repeated_hides_no_newer_one(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await record_audit(server, KEYS, NAME, a_summary(a_window(3), lost=1))
    before = writes_so_far(empty_redis)
    assert await record_audit(server, KEYS, NAME, a_summary(a_window(2), lost=5)) is None
    assert (await recorded(server), writes_so_far(empty_redis)) == ((3, 1, 0), before)


async def test_a_window_in_the_future_does_not_block_later_records(
    server: Server,
) -> None:
    ahead = a_window(7, at=datetime.now(UTC) + DAY)
    await record_audit(server, KEYS, NAME, a_summary(ahead))
    now = a_window(8, at=datetime.now(UTC) - timedelta(hours=2))
    assert await record_audit(server, KEYS, NAME, a_summary(now)) == 0
    assert (await recorded(server))[0] == 8


async def test_more_audits_than_a_group_has_room_for_are_refused(server: Server) -> None:
    for number in range(MOST_AUDITS):
        await record_audit(server, KEYS, f"a/{number}", a_summary())
    with pytest.raises(InvalidSpec, match=f"{MOST_AUDITS} audits"):
        await record_audit(server, KEYS, "a/one-more", a_summary())
    await record_audit(server, KEYS, "a/0", a_summary(a_window(1)))


async def test_a_key_of_another_type_is_named_and_left(server: Server) -> None:
    await server.execute("SET", KEYS.audit, "precious", key=KEYS.audit, writes=True)
    with pytest.raises(WrongType, match=KEYS.audit):
        await record_audit(server, KEYS, NAME, a_summary())
    assert isinstance((await read_audits(server, [KEYS], NAME))[KEYS], WrongType)


async def test_what_is_no_summary_is_an_error_of_that_group_alone(server: Server) -> None:
    await server.execute("HSET", KEYS.audit, NAME, "{}", key=KEYS.audit, writes=True)
    assert isinstance((await read_audits(server, [KEYS], NAME))[KEYS], InvalidSpec)


async def test_a_missing_permission_to_record_is_named(
    server: Server, empty_redis: StandaloneServers
) -> None:
    rules = ("-@all", "+eval", "+evalsha", "+type", "+time", "+hmget", "~*")
    empty_redis.acl_setuser("auditor", "on", ">secret", *rules)
    endpoint = endpoint_of(empty_redis, username="auditor", password="secret")
    async with connected(endpoint) as poor:
        with pytest.raises(PermissionDenied, match="hset"):
            await record_audit(poor, KEYS, NAME, a_summary())
    assert (await read_audits(server, [KEYS], NAME))[KEYS] is None


async def test_an_auditor_records_under_the_least_rights_and_changes_nothing_else(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server, KEYS)
    empty_redis.acl_setuser("auditor", "on", ">secret", *acl_rules(KEYS, UserRole.AUDITOR))
    endpoint = endpoint_of(empty_redis, username="auditor", password="secret")
    async with connected(endpoint) as auditor:
        await record_audit(auditor, KEYS, NAME, a_summary(), archived=EntryId(7))
        assert await auditor.execute("XRANGE", KEYS.ledger, "-", "+", key=KEYS.ledger)
        for key in (KEYS.stream, KEYS.ledger, KEYS.state):
            with pytest.raises(PermissionDenied):
                await auditor.execute("HSET", key, "f", "v", key=key)
    assert (await recorded(server))[0] == 0


async def test_the_operator_reads_and_acknowledges_under_its_least_rights(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server, KEYS)
    await record_audit(server, KEYS, NAME, a_summary(lost=1))
    empty_redis.acl_setuser("poor", "on", ">secret", *acl_rules(KEYS, UserRole.OPERATOR))
    endpoint = endpoint_of(empty_redis, username="poor", password="secret")
    async with connected(endpoint) as operator:
        assert await recorded(operator) == (0, 1, 0)
        await acknowledge_audit(operator, KEYS, NAME, 1)
        assert await recorded(operator) == (0, 1, 1)
        assert await forget_audit(operator, KEYS, NAME)
        await expire_dead_letters(operator, KEYS, OWNER, kept=DAY)


async def test_the_groups_that_a_pattern_found_are_remembered(server: Server) -> None:
    assert await read_groups(server, NAME) == ()
    await record_groups(server, NAME, [("b", "g"), ("a", "ü:g"), ("b", "g")])
    assert await read_groups(server, NAME) == (("a", "ü:g"), ("b", "g"))
    with pytest.raises(InvalidSpec, match="narrow it"):
        await record_groups(server, NAME, [(str(n), "g") for n in range(MOST_GROUPS + 1)])
    await forget_groups(server, NAME)
    await forget_groups(server, NAME)
    assert await read_groups(server, NAME) == ()
    key = audit_index_key(NAME)
    await server.execute("HSET", key, "groups", "[1]", key=key, writes=True)
    with pytest.raises(InvalidSpec, match="delete it"):
        await read_groups(server, NAME)


async def test_a_destroyed_group_takes_what_audits_recorded_with_it(server: Server) -> None:
    await provision(server, KEYS)
    await record_audit(server, KEYS, NAME, a_summary())
    await destroy_group(server, KEYS, OWNER)
    assert await server.execute("EXISTS", KEYS.audit, key=KEYS.audit) == 0


@pytest.mark.parametrize(
    ("archived_days", "left"),
    [
        ((), 3),  # no audit: a week
        ((6,), 3),  # all of the week before is archived
        ((10,), 8),  # waits for an audit that is behind
        ((6, 10), 8),  # and for the slowest of several
        ((15,), 3),  # one last seen two weeks ago is not waited for
    ],
)
async def test_the_ledger_waits_for_audits_that_have_not_archived_it(
    server: Server, archived_days: tuple[int, ...], left: int
) -> None:
    now_ms = int((await server.execute("TIME"))[0]) * 1000
    for count, days in ((5, 12), (5, 8), (2, 2)):
        ms = now_ms - days * 86_400_000
        await fill_with(server, KEYS.ledger, ["kind", "bookmark"], count, ms=ms)
    await provision(server, KEYS)
    for number, days in enumerate(archived_days):
        position = EntryId(now_ms - days * 86_400_000)
        await record_audit(server, KEYS, f"a/{number}", a_summary(), archived=position)
    while (await expire_dead_letters(server, KEYS, OWNER, kept=DAY)).may_continue:
        pass
    assert (await first_and_length(server, KEYS.ledger))[1] == left
