"""What fails again and again becomes a dead letter, and nothing else does."""

from __future__ import annotations

import sys

from local_cluster.nodes import Node
from pelops.domain.records.ledger import LedgerKind
from tests.e2e.declaring import NAME, Object
from tests.e2e.recovering import Group
from tests.operators import Operators, sleeping_template

# Reads four at a time, counts what it has done, and crashes on poison. It acknowledges each entry.
WORKER = """
import os, redis
env = os.environ
server = redis.Redis.from_url(env["PELOPS_REDIS_URL"], decode_responses=True)
stream, group, consumer = env["PELOPS_STREAM"], env["PELOPS_GROUP"], env["PELOPS_CONSUMER"]
while True:
    for _, entries in server.xreadgroup(group, consumer, {stream: ">"}, 4, block=500):
        for entry_id, fields in entries:
            if fields["kind"] == "poison":
                os._exit(3)
            with server.pipeline() as both:
                both.hincrby(stream + ":done", fields["n"])
                both.xack(stream, group, entry_id)
                both.execute()
"""


def test_only_the_entry_that_crashes_its_workers_is_dead_lettered(
    group: Group, operator: Operators, node: Node
) -> None:
    template = sleeping_template()
    template["spec"]["containers"][0]["command"] = [sys.executable, "-c", WORKER]
    recovery = {"processingTimeoutSeconds": 1, "maxRetries": 1}
    group.apply(replicas=3, template=template, recovery=recovery)
    group.until(group.pods, "a worker")
    kinds = ["poison" if number == 6 else "good" for number in range(24)]
    ids = [
        group.redis.xadd(group.stream, {"n": str(number), "kind": kind})
        for number, kind in enumerate(kinds)
    ]

    group.until(group.letters, "the dead letter")
    group.until(lambda: group.redis.hlen(f"{group.stream}:done") == 23, "the others to be done")
    group.until(lambda: not group.pending(), "all to be acknowledged")
    (letter,) = group.letters()
    assert (
        letter.items()
        >= {
            "n": "6",
            "kind": "poison",
            "_original_id": ids[6],
            "_stream": group.stream,
            "_group": NAME,
            "_reason": "MaxRetriesExceeded",
            "_delivery_count": "1",
        }.items()
    )
    assert letter["_consumer"].startswith(f"{NAME}-workers-") and letter["_error"]
    assert int(letter["_delivered_ms"]) <= int(letter["_dead_lettered_ms"]) <= group.now_ms()
    assert len(group.recorded(LedgerKind.DEAD_LETTERED)) == 1
    # Only poison crashes here, and each crash is one failure of it: at first perhaps in company.
    failures = int(letter["_retry_count"])
    assert 2 <= failures <= 5
    group.until(lambda: _crashes(group) >= failures, "the last crash to be told")
    assert _crashes(group) == failures
    assert group.await_event("DeadLettered")["type"] == "Warning"
    group.await_reported(deadLettered=1)
    mark = {"reason": "MaxRetriesExceeded"}
    assert group.measured(operator, "pelops_dead_lettered_total", **mark) == 1


def _crashes(group: Group) -> int:
    pods = [pod["status"] for pod in group.manifests()]
    return sum(one["restartCount"] for pod in pods for one in pod["containerStatuses"])


def test_without_retries_co_failed_entries_are_retried_one_by_one(
    group: Group,
) -> None:
    # Only what follows of itself may move the crowd: the next regular scan is an hour away.
    rare: Object = {"scanPeriodSeconds": 3600, "processingTimeoutSeconds": 1, "maxRetries": 0}
    group.declare(recovery={**rare, "processingTimeoutSeconds": 3600})
    (alone,) = group.give("alone", 1)
    co_failed = group.give("crowd", 3)
    group.await_idle(co_failed, 1_000)
    group.apply(recovery=rare)
    for _ in co_failed:
        group.until(lambda: group.redis.xinfo_groups(group.stream)[0]["lag"] == 1, "its turn")
        ((copy, fields),) = group.read("patient", 10)
        assert fields["_original_id"] in co_failed
        group.acknowledge([copy])
    group.until(lambda: not group.pending(), "nothing to be pending")
    assert [one["_original_id"] for one in group.letters()] == [alone]
    assert group.copies().keys() == set(co_failed)


def test_what_failed_waits_longer_each_time(group: Group) -> None:
    backoff = {"initialSeconds": 2, "factor": 2, "maxSeconds": 300}
    group.declare(recovery={"processingTimeoutSeconds": 1, "backoff": backoff})
    group.give("laptop", 1)
    for failure, least_s in ((1, 2.0), (2, 4.0)):
        group.until(lambda n=failure: len(_waits(group)) == n, "the copy")  # type: ignore[misc]
        assert _waits(group)[-1] >= least_s
        ((_, fields),) = group.read("laptop", 1)
        assert fields["_retry_count"] == str(failure)


def _waits(group: Group) -> list[float]:
    acts = group.ledger(LedgerKind.REQUEUED)
    return [one.idle.total_seconds() for act in acts for one in act.entries]
