"""Entries of workers that died or stalled are delivered again, once, and none prematurely."""

from __future__ import annotations

import pytest

from local_cluster.redis_servers import RedisServers
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import SCAN_AT
from tests.api_objects import delete_object
from tests.e2e.declaring import Object, await_absence, await_observed, patch
from tests.e2e.recovering import LONG_BEFORE_MS, Group, paused, retries
from tests.e2e.test_conflicts import OLDER, YOUNGER, await_next_second
from tests.operators import Operators, Resources, count_exporting, sleeping_template

pytestmark = pytest.mark.usefixtures("node")

# Only the death of a pod calls a scan that moves something within the test's time.
BY_DEATH_ALONE: Object = {"scanPeriodSeconds": 3600, "processingTimeoutSeconds": 3600}


def test_what_a_deleted_pod_held_is_requeued_once_and_not_charged(
    group: Group, operator: Operators
) -> None:
    gone, alive = group.declare(2, recovery=BY_DEATH_ALONE)
    lost, kept = group.give(gone.consumer, 3, sku="A"), group.give(alive.consumer, 2)
    group.delete_pod(gone)
    group.await_moved(lost)

    assert group.owners() == dict.fromkeys(kept, alive.consumer)
    copies = group.copies()
    assert copies.keys() == set(lost)
    added = {"_original_id": lost[0], "_retry_count": "0"}
    assert copies[lost[0]] == {"n": "0", "sku": "A", **added}
    assert retries(copies, lost) == {"0"}
    assert group.recorded(LedgerKind.REQUEUED) == lost
    group.until(lambda: gone.consumer not in group.consumers(), "its consumer to go")
    (removed,) = group.ledger(LedgerKind.CONSUMER_REMOVED)
    assert removed.details["consumer"] == gone.consumer
    note = group.await_event("Requeued")["note"]
    assert "3 entries" in note and gone.name in note
    group.await_reported(requeued=3, deadLettered=0)
    assert group.measured(operator, "pelops_requeued_total") == 3
    assert group.resources.condition(group.name, "RecoveryHealthy")["reason"] == "Scanning"


def test_entries_of_a_crashed_container_are_requeued_unless_read_again(
    group: Group, operator: Operators
) -> None:
    (pod,) = group.declare(1, recovery=BY_DEATH_ALONE)
    old = group.give(pod.consumer, 3)
    group.await_idle(old, LONG_BEFORE_MS)
    with paused(operator):
        pod.crash()
        group.await_restart(pod)
        group.redis.xreadgroup(group.keys.group, pod.consumer, {group.stream: "0"}, 1)
        new = group.give(pod.consumer, 1)
    group.await_moved(old[1:])
    assert group.owners() == dict.fromkeys([old[0], *new], pod.consumer)
    assert retries(group.copies(), old[1:]) == {"1"}
    assert group.recorded(LedgerKind.REQUEUED) == old[1:]


def test_a_sidecar_that_restarts_is_no_death_of_the_worker_beside_it(group: Group) -> None:
    template = sleeping_template()
    (worker,) = template["spec"]["containers"]
    template["spec"]["containers"].append({**worker, "name": "sidecar"})
    more: Object = {"template": template, "containerName": "worker"}
    (pod,) = group.declare(1, recovery=BY_DEATH_ALONE, **more)
    kept = group.give(pod.consumer, 2)
    (beside,) = group.until(lambda: group.pods("sidecar"), "the sidecar")
    group.await_idle(kept, LONG_BEFORE_MS)
    crashed_ms = group.now_ms()
    beside.crash()
    group.await_restart(beside, "sidecar")
    group.await_scan_since(crashed_ms)
    assert group.owners() == dict.fromkeys(kept, pod.consumer)
    pod.crash()
    group.await_moved(kept)


def test_entries_idle_beyond_the_processing_timeout_are_requeued_without_a_heartbeat(
    group: Group,
) -> None:
    # So long that heartbeats come in time even on a stalled machine; most of it has passed when the
    # test begins.
    limit_s, soon_s = 20, 2
    (pod,) = group.declare(1, recovery={"processingTimeoutSeconds": limit_s})
    beating = group.give(pod.consumer, 1)
    stuck = [*group.give(pod.consumer, 2), *group.give("laptop", 2)]
    group.age([*beating, *stuck], (limit_s - soon_s) * 1000)

    def beat_until_moved() -> bool:
        group.redis.xclaim(*(group.stream, group.keys.group, pod.consumer, 0, beating), justid=True)
        return not group.pending().keys() & set(stuck)

    group.until(beat_until_moved, "the stuck entries to move")
    assert group.owners() == {beating[0]: pod.consumer}
    assert retries(group.copies(), stuck) == {"1"}
    idle = [one.idle for act in group.ledger(LedgerKind.REQUEUED) for one in act.entries]
    assert min(idle).total_seconds() >= limit_s
    # It may come back any time, and nothing shows whether it is alive.
    assert group.consumers() == {pod.consumer, "laptop"}


@pytest.mark.full
def test_unmatched_consumers_are_named_and_have_a_timeout_of_their_own(
    group: Group,
) -> None:
    limit: Object = {"processingTimeoutSeconds": 3600}
    (pod,) = group.declare(1, recovery=limit)
    kept, stuck = group.give(pod.consumer, 1), group.give("laptop", 1)
    named = group.resources.await_condition(
        group.name, "UnmatchedConsumers", reason="UnmatchedConsumers"
    )
    assert "laptop" in named["message"] and pod.name not in named["message"]
    assert "unmatchedConsumerTimeoutSeconds" in named["message"]
    assert group.resources.condition(group.name)["status"] == "True"
    group.await_scans()
    assert group.owners() == {kept[0]: pod.consumer, stuck[0]: "laptop"}

    group.apply(replicas=1, recovery={**limit, "unmatchedConsumerTimeoutSeconds": 1})
    group.await_moved(stuck)
    assert group.owners() == {kept[0]: pod.consumer}
    group.until(
        lambda: not group.resources.condition(group.name, "UnmatchedConsumers"), "nobody unmatched"
    )


def test_an_unmatched_consumer_among_thousands_is_named(group: Group) -> None:
    group.declare(recovery={"processingTimeoutSeconds": 3600})
    with group.redis.pipeline(transaction=False) as together:
        for number in range(2_001):
            together.xgroup_createconsumer(group.stream, group.keys.group, f"c-{number}")
        together.execute()
    group.give("laptop", 1)
    named = group.resources.await_condition(
        group.name, "UnmatchedConsumers", reason="UnmatchedConsumers"
    )
    assert "at least 1, such as laptop" in named["message"]


def test_a_suspended_resource_recovers_entries_only_after_it_resumes(
    group: Group,
) -> None:
    (pod,) = group.declare(1, recovery=BY_DEATH_ALONE)
    lost = group.give(pod.consumer, 2)
    patch(group.resources, "scg", group.name, {"spec": {"suspend": True}})
    await_observed(group.resources)
    scanned_at = group.redis.hget(group.keys.state, SCAN_AT)
    group.delete_pod(pod)
    group.await_pods_other_than(pod)
    group.until(lambda: group.reported("group").get("pending") == 2, "the status to count them")
    assert group.owners() == dict.fromkeys(lost, pod.consumer)
    assert group.redis.hget(group.keys.state, SCAN_AT) == scanned_at
    assert pod.consumer in group.consumers()

    patch(group.resources, "scg", group.name, {"spec": {"suspend": False}})
    group.await_moved(lost)


WRITES = {"xadd", "xack", "xclaim", "xautoclaim", "xdel", "xtrim", "xgroup", "xsetid"}


def test_with_recovery_disabled_stuck_entries_are_counted_and_not_moved(
    group: Group, operator: Operators
) -> None:
    (pod,) = group.declare(1, recovery={"strategy": "Disabled"})
    group.until(lambda: group.reported("recovery").get("stuck") == 0, "nothing stuck")
    lost = group.give(pod.consumer, 2)
    with group.redis.monitor() as monitor:
        group.delete_pod(pod)
        group.await_pods_other_than(pod)
        group.until(lambda: group.reported("recovery").get("stuck") == 2, "stuck entries")
        group.redis.echo("the end")
        heard = []
        for line in monitor.listen():
            heard.append(line["command"])
            if "the end" in line["command"]:
                break
    words = [one.split(" ") for one in heard]
    of_stream = {one[0].lower() for one in words if group.stream in one[1:3]}
    assert "xpending" in of_stream
    assert not of_stream & WRITES
    assert group.owners() == dict.fromkeys(lost, pod.consumer)
    assert pod.consumer in group.consumers()
    labels = f'{{name="{group.name}",namespace="{group.resources.namespace}"}}'
    stuck = f"pelops_stuck_entries{labels} 2.0"
    group.until(lambda: count_exporting(operator, stuck) == 1, stuck)

    patch(group.resources, "scg", group.name, {"spec": {"recovery": {"strategy": "Requeue"}}})
    group.await_moved(lost)


def test_recovery_delivers_nothing_to_itself_and_moves_no_position(group: Group) -> None:
    gone, alive = group.declare(2, recovery=BY_DEATH_ALONE)
    lost, kept = group.give(gone.consumer, 3), group.give(alive.consumer, 1)
    position, undelivered = group.position(), group.add(2)
    group.delete_pod(gone)
    group.await_moved(lost)
    group.until(lambda: gone.consumer not in group.consumers(), "its consumer to go")
    assert group.position() == position == kept[0]
    assert group.consumers() == {alive.consumer}
    assert group.pending()[kept[0]].deliveries == 1
    # What was there first is delivered first, then the copies in the order of what they are of.
    read = group.read(alive.consumer, 10)
    assert [one for one, _ in read[:2]] == undelivered
    assert [fields["_original_id"] for _, fields in read[2:]] == lost


def test_a_resource_deleted_during_a_scan_leaves_no_keys_behind(
    group: Group,
) -> None:
    slow: Object = {**BY_DEATH_ALONE, "tuning": {"batchSize": 1}}
    (pod,) = group.declare(1, recovery=slow, deletionPolicy="Delete")
    many = 15_000
    group.give(pod.consumer, many)
    group.delete_pod(pod)
    group.until(lambda: group.redis.xlen(group.stream) > many, "the first copies")
    delete_object(group.resources.plane, group.resources.namespace, "scg", group.name)
    await_absence(group.resources, "scg", group.name)
    keys = group.keys
    assert group.redis.xinfo_groups(group.stream) == []
    assert group.redis.exists(keys.state, keys.ledger, keys.started, keys.retry) == 0
    moved = len(group.copies())
    assert 0 < moved < many, "the deletion came too late to mean anything"


def test_of_two_resources_on_one_group_only_the_one_that_acts_recovers(
    resources: Resources, operator: Operators, redis_86: RedisServers, stream: str
) -> None:
    older = Group(resources, redis_86, stream, group=OLDER, name=OLDER)
    younger = Group(resources, redis_86, stream, group=OLDER, name=YOUNGER)
    older.declare(recovery={"processingTimeoutSeconds": 3600})
    await_next_second(resources, OLDER)
    eager: Object = {"processingTimeoutSeconds": 1, "tuning": {"fieldPrefix": "eager_"}}
    younger.apply(recovery=eager)
    resources.await_condition(YOUNGER, reason="Conflict")
    stuck = older.give("laptop", 2)
    older.await_idle(stuck, 1_500)
    older.await_scans()
    assert older.owners() == dict.fromkeys(stuck, "laptop")

    older.apply(recovery={"processingTimeoutSeconds": 1})
    older.await_moved(stuck)
    assert older.copies().keys() == set(stuck)
    older.await_reported(requeued=2)
    assert older.measured(operator, "pelops_requeued_total") == 2
    assert younger.measured(operator, "pelops_requeued_total") == 0
