"""What a scan has done before Redis refuses the rest is counted and reported as usual."""

from __future__ import annotations

from local_cluster.nodes import Node
from tests.e2e.declaring import Object
from tests.e2e.recovering import Group
from tests.operators import Operators, Resources
from tests.redis_fixtures import RunRedis

BY_DEATH_ALONE: Object = {"scanPeriodSeconds": 3600, "processingTimeoutSeconds": 3600}
ENTRIES = 200
BODY = "x" * 20_000
ROOM = 1_000_000  # bytes: for some of the copies


def test_entries_requeued_before_redis_ran_out_of_memory_are_counted(
    resources: Resources, operator: Operators, node: Node, run_redis: RunRedis, stream: str
) -> None:
    group = Group(resources, run_redis(), stream)
    (pod,) = group.declare(1, recovery={**BY_DEATH_ALONE, "tuning": {"batchSize": 10}})
    lost = group.give(pod.consumer, ENTRIES, body=BODY)
    group.redis.config_set("maxmemory", group.redis.info("memory")["used_memory"] + ROOM)
    group.delete_pod(pod)

    def counted() -> float:
        return group.measured(operator, "pelops_requeued_total")

    def copies() -> int:
        # To read them would take the memory that they need.
        return int(group.redis.xlen(stream)) - ENTRIES

    moved = group.until(lambda: copies() == counted() and counted(), "all copies to be counted")
    assert moved < ENTRIES, "memory sufficed, and nothing was refused"
    reported = resources.await_events(group.name, "Requeued")
    assert all(pod.consumer in one["note"] for one in reported)

    group.redis.config_set("maxmemory", 0)
    group.await_moved(lost)
    assert group.copies().keys() == set(lost)
    group.until(lambda: counted() == ENTRIES, "the rest to be counted")
