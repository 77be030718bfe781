"""A group that was lost or went back, and entries that it lost: nothing goes unsaid."""

from __future__ import annotations

import shutil

import pytest

from local_cluster.nodes import Node
from local_cluster.redis_servers import SentinelServers
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import SEEN_DELIVERED, SEEN_LOWEST
from tests.e2e.declaring import Object
from tests.e2e.recovering import Group, measured
from tests.operators import Operators, Resources
from tests.redis_fixtures import RunRedis

CALM: Object = {"scanPeriodSeconds": 1, "processingTimeoutSeconds": 3600}


def _await_remembered(group: Group, delivered: str, lowest: str) -> None:
    def is_remembered() -> bool:
        seen = group.redis.hmget(group.keys.state, SEEN_DELIVERED, SEEN_LOWEST)
        return bool(seen == [delivered, lowest])

    group.until(is_remembered, f"{delivered} and {lowest} to be remembered")


def _acknowledge_alarm(group: Group, alarm: str) -> None:
    group.resources.plane.kubectl(
        *("annotate", "--overwrite", "scg", "-n", group.resources.namespace, group.name),
        f"pelops.dev/acknowledge={alarm}",
    )
    group.until(lambda: not group.resources.condition(group.name, alarm), f"no {alarm}")


def test_a_destroyed_group_is_recreated_before_its_lowest_pending_entry(
    group: Group,
) -> None:
    group.declare(recovery=CALM)
    first, second, third = group.give("jane", 3)
    group.acknowledge([first])
    _await_remembered(group, third, second)
    (new,) = group.add(1)
    group.redis.xgroup_destroy(group.stream, group.keys.group)
    group.until(group.position, "the group")
    assert [one for one, _ in group.read("jane", 10)] == [second, third, new]
    made = group.ledger(LedgerKind.GROUP_CREATED)[-1].details
    # The greatest ID before the second entry: the first one's only if both came in one millisecond.
    before = str(parse_entry_id(second).before())
    assert (made["why"], made["position"], made["repeats"]) == ("continues", before, "2")
    reported = group.await_event("GroupRecreated")
    assert reported["type"] == "Warning" and before in reported["note"]
    assert not group.resources.condition(group.name, "PositionWentBack")


@pytest.mark.full
def test_in_a_redis_that_was_emptied_the_group_begins_before_everything(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    group = Group(resources, run_redis(), stream)
    group.declare(recovery=CALM)
    last = group.give("jane", 3)[-1]
    group.acknowledge(group.pending())
    _await_remembered(group, last, "")
    group.redis.flushall()
    # Producers with IDs of their own go on below and above where the group was.
    earlier = "5-0"
    new = [group.redis.xadd(stream, {"n": "1"}, earlier), *group.add(1)]
    group.until(group.position, "the group")
    assert [one for one, _ in group.read("jane", 10)] == new
    assert group.ledger(LedgerKind.GROUP_CREATED)[-1].details["why"] == "new-stream"
    assert "0-0" in group.await_event("GroupRecreated")["note"]


def test_a_position_that_went_back_delays_recovery_until_acknowledged(
    resources: Resources, operator: Operators, node: Node, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis()
    group = Group(resources, servers, stream)
    (pod,) = group.declare(1, recovery=CALM)
    done = group.give(pod.consumer, 3)
    server = servers.servers[0]
    server.cli("SAVE")
    backup = server.directory / "backup"
    shutil.copy(server.directory / "dump.rdb", backup)
    group.acknowledge(done)
    later = group.give(pod.consumer, 2)
    group.acknowledge(later)
    group.until(
        lambda: group.reported("group")["lastDeliveredId"] == later[-1],
        "the later position to be told",
    )

    server.kill()
    shutil.copy(backup, server.directory / "dump.rdb")
    server.start()
    back = group.resources.await_condition(
        group.name, "PositionWentBack", reason="PositionWentBack"
    )
    assert done[-1] in back["message"] and later[-1] in back["message"]
    assert group.resources.condition(group.name)["status"] == "True"
    assert group.await_event("PositionWentBack")["type"] == "Warning"

    group.delete_pod(pod)
    group.until(
        lambda: measured(operator, "pelops_recovery_verdicts_total", verdict="held") >= len(done),
        "a scan to find them held",
    )
    assert group.owners() == dict.fromkeys(done, pod.consumer)
    assert group.position() == done[-1], "the position is never moved"
    _acknowledge_alarm(group, "PositionWentBack")
    group.await_moved(done)
    assert "pelops.dev/acknowledge" not in _annotations(group)


def test_a_failover_that_loses_nothing_raises_no_alarm_and_recovery_goes_on(
    resources: Resources, node: Node, empty_sentinel: SentinelServers, stream: str
) -> None:
    servers = empty_sentinel
    nodes = [f"{host}:{port}" for host, port in servers.sentinel_nodes]
    group = Group(resources, servers, stream)
    redis = {"sentinel": {"masterName": servers.sentinel_master, "nodes": nodes}}
    (pod,) = group.declare(1, recovery=CALM, redis=redis)
    group.await_scans(1)
    lost = group.give(pod.consumer, 3)
    group.redis.wait(2, 5_000)
    servers.failover()
    group.connect(servers.url)
    group.delete_pod(pod)
    group.await_moved(lost)
    assert group.copies().keys() == set(lost)
    assert not group.resources.condition(group.name, "PositionWentBack")


def test_entries_trimmed_before_delivery_are_counted_as_lost_until_acknowledged(
    group: Group,
) -> None:
    group.declare(recovery=CALM)
    delivered = group.give("jane", 1)
    group.acknowledge(delivered)
    group.add(5)
    group.redis.xtrim(group.stream, maxlen=2, approximate=False)
    lost = group.resources.await_condition(group.name, "DataLoss", reason="DataLoss")
    assert "at least 3, at most 3" in lost["message"] and delivered[0] in lost["message"]
    assert group.resources.condition(group.name)["status"] == "True"
    (event,) = group.ledger(LedgerKind.DATA_LOSS)
    assert (event.details["at_least"], event.details["at_most"]) == ("3", "3")
    _acknowledge_alarm(group, "DataLoss")
    # The gap is known: it is not reported again, and a new one is.
    group.read("jane", 1)
    group.add(3)
    group.redis.xtrim(group.stream, maxlen=1, approximate=False)
    group.resources.await_condition(group.name, "DataLoss", reason="DataLoss")
    assert len(group.ledger(LedgerKind.DATA_LOSS)) == 2


@pytest.mark.full
def test_entries_trimmed_between_observations_are_reported_once_as_possibly_lost(
    group: Group,
) -> None:
    group.declare(recovery=CALM)
    delivered = group.give("jane", 1)
    group.acknowledge(delivered)
    _await_remembered(group, delivered[0], "")
    with group.redis.pipeline(transaction=True) as together:
        for number in range(5):
            together.xadd(group.stream, {"number": number})
        together.xtrim(group.stream, maxlen=2, approximate=False)
        together.xreadgroup(group.keys.group, "jane", {group.stream: ">"})
        *added, _, _ = together.execute()
    event = group.await_event("PossibleDataLoss")
    assert event["type"] == "Warning" and "at most 3" in event["note"]
    assert f"after ID {delivered[0]} and before {added[3]}" in event["note"]
    (loss,) = group.ledger(LedgerKind.DATA_LOSS)
    assert (loss.details["at_least"], loss.details["at_most"]) == ("0", "3")
    group.acknowledge(added[3:])
    _await_remembered(group, added[4], "")
    group.await_event("PossibleDataLoss")
    assert len(group.ledger(LedgerKind.DATA_LOSS)) == 1
    assert not group.resources.condition(group.name, "DataLoss")


def test_what_users_delete_by_hand_is_no_loss(group: Group) -> None:
    group.declare(recovery=CALM)
    first, *_, last = group.add(4)
    group.redis.xdel(group.stream, first)
    group.deliver("jane", 2)
    group.redis.xdel(group.stream, last)
    # The operator has seen both once it reports what came afterwards.
    group.add(2)
    group.until(
        lambda: group.reported("stream")["length"] == 4, "the status to report all that is left"
    )
    assert not group.resources.condition(group.name, "DataLoss")
    assert group.ledger(LedgerKind.DATA_LOSS) == []


def _annotations(group: Group) -> Object:
    found = group.resources.get("scg", group.name) or {}
    annotations: Object = found["metadata"].get("annotations") or {}
    return annotations
