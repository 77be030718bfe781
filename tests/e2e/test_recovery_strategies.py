"""What becomes of stuck entries when there are other groups, workers that claim, and locks."""

from __future__ import annotations

import pytest

from local_cluster.redis_servers import RedisServers
from pelops.domain.records.ledger import LedgerKind
from tests.e2e.declaring import NAME, Object
from tests.e2e.recovering import Fields, Group
from tests.e2e.worker_pods import Pod
from tests.operators import Operators, Resources

pytestmark = pytest.mark.usefixtures("node")

OTHER = "auditors"
BY_DEATH_ALONE: Object = {"scanPeriodSeconds": 3600, "processingTimeoutSeconds": 3600}
EAGER: Object = {"scanPeriodSeconds": 1, "processingTimeoutSeconds": 1}


def _add_other_group(group: Group) -> None:
    group.redis.xgroup_create(group.stream, OTHER, "$", mkstream=True)


def _read_as_other(group: Group) -> list[tuple[str, Fields]]:
    answer = group.redis.xreadgroup(OTHER, "auditor", {group.stream: ">"})
    return [entry for _, entries in answer for entry in entries]


def test_with_several_groups_nothing_is_requeued_and_the_ways_out_are_named(group: Group) -> None:
    _add_other_group(group)
    group.apply(replicas=1, recovery={"scanPeriodSeconds": 1})
    duplicates = group.resources.await_condition(
        group.name, "RecoveryHealthy", reason="RequeueWouldDuplicate"
    )
    assert duplicates["status"] == "False"
    assert "RetryStream" in duplicates["message"] and "Release" in duplicates["message"]
    group.resources.await_condition(group.name, reason="RequeueWouldDuplicate")
    (pod,) = group.until(group.pods, "the worker")
    lost = group.give(pod.consumer, 2)
    group.delete_pod(pod)
    group.await_pods_other_than(pod)
    group.await_scans()
    assert group.owners() == dict.fromkeys(lost, pod.consumer)
    assert group.redis.xlen(group.stream) == 2
    # Invariant 5: a consumer with pending entries is never deleted.
    assert pod.consumer in group.consumers()

    group.redis.xgroup_destroy(group.stream, OTHER)
    group.await_moved(lost)
    group.resources.await_condition(group.name, "RecoveryHealthy", reason="Scanning")


def test_through_the_retry_stream_entries_move_again_and_other_groups_see_nothing(
    group: Group,
) -> None:
    _add_other_group(group)
    retry = {**BY_DEATH_ALONE, "strategy": "RetryStream"}
    first, second = group.declare(2, recovery=retry)
    lost = group.give(first.consumer, 3)
    assert [one for one, _ in _read_as_other(group)] == lost
    group.delete_pod(first)
    group.await_moved(lost)
    copies = group.copies(group.keys.retry)
    assert copies.keys() == set(lost)
    assert _read_as_other(group) == []
    assert group.redis.xlen(group.stream) == 3

    # Of the retry stream, entries of the dead move behind those that are done with.
    *stuck, done = group.deliver(second.consumer, 3, stream=group.keys.retry)
    group.redis.xack(group.keys.retry, group.keys.group, done)
    group.delete_pod(second)
    group.until(lambda: not group.pending(group.keys.retry), "the copies to move")
    group.until(
        lambda: group.redis.xrange(group.keys.retry, count=1)[0][0] == done,
        "what is done with, before the last entry that was delivered, to go",
    )
    assert group.copies(group.keys.retry).keys() == set(lost)
    assert group.recorded(LedgerKind.REQUEUED) == [*lost, *stuck]
    assert _read_as_other(group) == []


def test_released_entries_keep_their_ids_and_are_offered_to_workers_that_claim(
    group: Group, operator: Operators
) -> None:
    _add_other_group(group)
    release = {**BY_DEATH_ALONE, "strategy": "Release"}
    gone, alive = group.declare(2, recovery=release)
    lost, kept = group.give(gone.consumer, 3), group.give(alive.consumer, 1)
    group.delete_pod(gone)
    claimed = _claim_what_is_offered(group, alive)
    assert claimed == lost
    assert group.owners() == dict.fromkeys([*lost, *kept], alive.consumer)
    assert group.redis.xlen(group.stream) == 4
    # Whichever replica was first: each was offered once, and is counted since it was taken.
    assert group.recorded(LedgerKind.RELEASED) == lost
    group.await_reported(released=len(lost), requeued=0)
    released = ("pelops_released_total", "pelops_offered_total")
    assert [group.measured(operator, one) for one in released] == [3, 3]
    group.acknowledge([*lost, *kept])
    assert not group.pending()


@pytest.mark.full
def test_an_unclaimed_offer_is_reported_and_does_not_count_as_released(
    group: Group, operator: Operators
) -> None:
    """The workers read `>` alone: offers wait, are reported once, and do not count as recovery."""
    release = {"scanPeriodSeconds": 1, "processingTimeoutSeconds": 3600, "strategy": "Release"}
    gone, alive = group.declare(2, recovery=release)
    lost = group.give(gone.consumer, 5)
    group.delete_pod(gone)
    group.resources.await_condition(group.name, "OffersNotTaken", reason="OffersNotTaken")
    message = group.resources.condition(group.name, "OffersNotTaken")["message"]
    assert group.keys.offer_stream in message and "PELOPS_HANDOVER_STREAM" in message
    healthy = group.resources.await_condition(
        group.name, "RecoveryHealthy", reason="OffersNotTaken"
    )
    assert healthy["status"] == "False"
    group.await_scans(5)
    group.await_reported(released=0, requeued=0, offered=5)
    assert group.owners() == dict.fromkeys(lost, gone.consumer)
    assert group.recorded(LedgerKind.RELEASED) == lost
    assert group.redis.xlen(group.keys.offer_stream) == 1
    assert group.measured(operator, "pelops_released_total") == 0
    group.await_event("Released")

    assert _claim_what_is_offered(group, alive) == lost
    group.await_reported(released=5, offered=0)
    group.until(
        lambda: not group.resources.condition(group.name, "OffersNotTaken"), "no OffersNotTaken"
    )
    group.resources.await_condition(group.name, "RecoveryHealthy", reason="Scanning")
    assert group.measured(operator, "pelops_released_total") == 5


def _claim_what_is_offered(group: Group, worker: Pod) -> list[str]:
    """A worker that claims: it takes what the owner that an offer names still holds."""
    claimed: list[str] = []

    def claim() -> bool:
        read = {group.keys.offer_stream: ">"}
        answer = group.redis.xreadgroup(group.keys.group, worker.consumer, read)
        for _, offers in answer:
            for offer, fields in offers:
                owners = group.owners()
                ids = [
                    one for one in fields["ids"].split() if owners.get(one) == fields["consumer"]
                ]
                if ids:
                    group.redis.xclaim(group.stream, group.keys.group, worker.consumer, 0, ids)
                group.redis.xack(group.keys.offer_stream, group.keys.group, offer)
                claimed.extend(ids)
        return bool(claimed)

    group.until(claim, "an offer")
    return claimed


def test_an_entry_is_requeued_from_a_live_pod_only_without_lock(
    group: Group,
) -> None:
    recovery = {"processingTimeoutSeconds": 3600, "locks": {"graceSeconds": 1}}
    (pod,) = group.declare(1, recovery=recovery)
    locked, free = group.add(2)
    key = f"lock:{{{group.stream}}}:{locked}"
    group.redis.set(key, pod.consumer)
    assert group.deliver(pod.consumer, 2) == [locked, free]
    group.await_moved([free])
    group.await_scans()
    assert group.owners() == {locked: pod.consumer}
    group.redis.delete(key)
    group.await_moved([locked])
    assert group.copies().keys() == {locked, free}


@pytest.mark.full
def test_an_expired_lock_triggers_a_scan_before_the_next_period(
    group: Group,
) -> None:
    recovery = {"scanPeriodSeconds": 3600, "locks": {"graceSeconds": 1}}
    (pod,) = group.declare(1, recovery={"scanPeriodSeconds": 3600})
    locked = group.give(pod.consumer, 1)
    group.redis.set(f"lock:{{{group.stream}}}:{locked[0]}", pod.consumer, px=30_000)
    group.await_idle(locked, 1_000)
    group.apply(replicas=1, recovery=recovery)  # it is scanned once, and finds the lock
    group.await_scans(1)
    assert group.owners() == {locked[0]: pod.consumer}
    group.await_moved(locked)


def test_a_dangling_pending_entry_is_reported_and_acknowledged(
    resources: Resources, operator: Operators, redis_86: RedisServers, stream: str
) -> None:
    group = Group(resources, redis_86, stream)
    group.declare(recovery=EAGER)
    gone, there = group.give("laptop", 2)
    group.redis.xdel(stream, gone)
    group.await_moved([gone, there])
    (letter,) = group.letters()
    assert (letter["_reason"], letter["_original_id"]) == ("PayloadGone", gone)
    assert (letter["_stream"], letter["_group"]) == (stream, NAME)
    assert letter["_consumer"] == "laptop"
    assert group.recorded(LedgerKind.PAYLOAD_GONE) == [gone]
    assert group.recorded(LedgerKind.REQUEUED) == [there]
    assert group.await_event("PayloadGone")["type"] == "Warning"
    group.await_reported(payloadGone=1, requeued=1)
    assert group.measured(operator, "pelops_payload_gone_total") == 1
