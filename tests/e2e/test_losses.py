"""A stream that disappears, or loses its end, before the group has finished it is reported."""

from __future__ import annotations

import shutil

import pytest

from pelops.domain.records.ledger import LedgerKind
from tests.e2e.declaring import Object
from tests.e2e.recovering import Group
from tests.operators import Resources
from tests.redis_fixtures import RunRedis

ALARM = "PendingEntriesDropped"
CALM: Object = {"scanPeriodSeconds": 1, "processingTimeoutSeconds": 3600}


def _await_numbers(group: Group, **numbers: object) -> None:
    def is_reported() -> bool:
        reported = group.reported("group")
        return all(reported.get(name) == number for name, number in numbers.items())

    group.until(is_reported, f"the status to tell {numbers}")


def _await_loss(group: Group, *words: str) -> None:
    loss = group.resources.await_condition(group.name, "DataLoss", reason="DataLoss")
    for word in words:
        assert word in loss["message"]
    assert group.await_event("DataLoss")["type"] == "Warning"
    group.resources.await_condition(group.name, reason="Ready")


def _await_made_anew(group: Group) -> None:
    group.await_event("GroupRecreated")
    group.until(group.position, "the group")


def _has_loss(group: Group) -> bool:
    return bool(group.resources.condition(group.name, "DataLoss"))


def test_a_deleted_stream_with_a_backlog_is_data_loss_until_acknowledged(
    group: Group,
) -> None:
    group.declare(recovery=CALM)
    group.give("jane", 11)
    group.add(177)
    _await_numbers(group, pending=11, lag=177)
    group.redis.delete(group.stream)
    _await_loss(group, "177 undelivered, 11 pending", group.stream)
    (event,) = group.ledger(LedgerKind.DATA_LOSS)
    assert (event.details["cause"], event.details["undelivered"]) == ("stream-gone", "177")
    # The new stream has no gap; the old one's is reported until a user acknowledges it.
    group.acknowledge(group.give("jane", 3))
    _await_numbers(group, pending=0, lag=0)
    assert _has_loss(group)
    group.resources.plane.kubectl(
        *("annotate", "--overwrite", "scg", "-n", group.resources.namespace, group.name),
        "pelops.dev/acknowledge=DataLoss",
    )
    group.until(lambda: not _has_loss(group), "no DataLoss")
    assert len(group.ledger(LedgerKind.DATA_LOSS)) == 1


def test_a_flushed_server_is_reported_as_data_loss(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    group = Group(resources, run_redis(), stream)
    group.declare(recovery=CALM)
    group.give("jane", 2)
    group.add(40)
    _await_numbers(group, pending=2, lag=40)
    group.redis.flushall()
    group.add(1)  # a producer that continues at once
    _await_loss(group, "40 undelivered, 2 pending")


def test_a_stream_recreated_by_a_worker_is_reported_as_data_loss(group: Group) -> None:
    group.declare(recovery=CALM)
    group.add(40)
    _await_numbers(group, lag=40)
    with group.redis.pipeline(transaction=True) as together:
        together.delete(group.stream)
        together.xgroup_create(group.stream, group.keys.group, "$", mkstream=True)
        together.execute()
    _await_loss(group, "40 undelivered, 0 pending")


def test_a_server_that_comes_back_with_an_older_state_is_a_loss(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    group = Group(resources, servers, stream)
    group.declare(recovery=CALM)
    group.acknowledge(group.give("jane", 3))
    _await_numbers(group, pending=0, lag=0)
    server = servers.servers[0]
    server.cli("SAVE")
    backup = server.directory / "backup"
    shutil.copy(server.directory / "dump.rdb", backup)
    group.add(600)
    _await_numbers(group, lag=600)
    server.kill()
    shutil.copy(backup, server.directory / "dump.rdb")
    server.start()
    _await_loss(group, "lost its newest entries", "600 undelivered")


def test_a_stream_that_is_deleted_when_all_is_done_is_no_loss(group: Group) -> None:
    group.declare(recovery=CALM)
    done = group.give("jane", 20)
    group.acknowledge(done)
    _await_numbers(group, pending=0, lag=0, lastDeliveredId=done[-1])
    group.redis.xtrim(group.stream, maxlen=0, approximate=False)
    group.redis.delete(group.stream)
    _await_made_anew(group)
    group.acknowledge(group.give("jane", 2))
    _await_numbers(group, pending=0, lag=0)
    assert not _has_loss(group)
    assert group.ledger(LedgerKind.DATA_LOSS) == []


def test_a_group_that_was_destroyed_reports_how_many_repeat_at_least(group: Group) -> None:
    group.declare(recovery=CALM)
    group.give("jane", 5)
    _await_numbers(group, pending=5)
    group.redis.xgroup_destroy(group.stream, group.keys.group)
    _await_made_anew(group)
    assert "at least 5" in group.await_event("GroupRecreated")["note"]
    assert not _has_loss(group)


def _await_quiet(group: Group, consumer: str) -> None:
    """Wait until a consumer has done nothing for longer than the operator asks for."""

    def is_quiet() -> bool:
        found = group.redis.xinfo_consumers(group.stream, group.keys.group)
        return any(one["name"] == consumer and one["idle"] > 12_000 for one in found)

    group.until(is_quiet, f"{consumer} to be quiet")


@pytest.mark.full
def test_pending_entries_that_go_with_a_deleted_consumer_are_reported_until_acknowledged(
    group: Group,
) -> None:
    group.declare(recovery=CALM)
    group.give("jane", 11)
    group.acknowledge(group.give("mary", 3))
    _await_quiet(group, "jane")
    dropped = group.redis.xgroup_delconsumer(group.stream, group.keys.group, "jane")
    assert dropped == 11
    alarm = group.resources.await_condition(group.name, ALARM, reason=ALARM)
    assert "Consumer jane was deleted with up to 11 pending entries" in alarm["message"]
    assert group.resources.condition(group.name)["status"] == "True"
    assert group.await_event(ALARM)["type"] == "Warning"
    assert not _has_loss(group)
    # Nothing else that happens to consumers is reported: mary had nothing to do.
    group.redis.xgroup_delconsumer(group.stream, group.keys.group, "mary")
    group.resources.plane.kubectl(
        *("annotate", "--overwrite", "scg", "-n", group.resources.namespace, group.name),
        f"pelops.dev/acknowledge={ALARM}",
    )
    group.until(lambda: not group.resources.condition(group.name, ALARM), "no alarm")
    assert len(group.ledger(LedgerKind.PENDING_DROPPED)) == 1


def test_a_busy_consumer_that_is_deleted_is_an_event_and_no_alarm(group: Group) -> None:
    group.declare(recovery=CALM)
    group.give("jane", 5)
    _await_numbers(group, pending=5)
    group.redis.xgroup_delconsumer(group.stream, group.keys.group, "jane")
    reported = group.await_event(ALARM)
    assert reported["type"] == "Warning" and "up to 5 pending entries" in reported["note"]
    assert not group.resources.condition(group.name, ALARM)
    assert not _has_loss(group)
