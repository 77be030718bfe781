"""A retry stream that no worker reads, or that is no longer asked for: all of it is shown."""

from __future__ import annotations

import pytest

from pelops.domain.records.ledger import LedgerKind
from tests.e2e.declaring import NAME, Object
from tests.e2e.recovering import Group
from tests.e2e.scaled_group import auto
from tests.operators import Operators

pytestmark = pytest.mark.usefixtures("node")

OTHER = "auditors"
BY_DEATH_ALONE: Object = {"scanPeriodSeconds": 3600, "processingTimeoutSeconds": 3600}
RETRY: Object = {**BY_DEATH_ALONE, "strategy": "RetryStream"}
STREAM: Object = {**BY_DEATH_ALONE, "strategy": "Requeue"}


def _await_backlog(group: Group, *, lag: int, pending: int, retry: Object) -> None:
    """Wait until the status shows these, of both streams together and of the retry stream alone."""

    def is_reported() -> bool:
        reported, alone = group.reported("group"), group.reported("retryStream")
        total = {"lag": lag, "lagKnown": True, "pending": pending}
        return total.items() <= reported.items() and retry.items() <= alone.items()

    group.until(is_reported, f"{lag} undelivered, {pending} pending, of these {retry}")
    assert group.reported("summary")["lag"] == str(lag)
    assert ("oldestPendingTime" in group.reported("group")) == (pending > 0)


def _await_measured(group: Group, operator: Operators, metric: str, value: int, **of: str) -> None:
    group.until(
        lambda: group.measured(operator, metric, **of) == value, f"{metric} {of} to be {value}"
    )


def _await_message(group: Group, condition: str, words: str) -> None:
    group.until(
        lambda: words in group.resources.condition(group.name, condition).get("message", ""),
        f"{condition} to say {words}",
    )


def _await_end_of(group: Group, condition: str) -> None:
    group.until(
        lambda: not group.resources.condition(group.name, condition), f"the end of {condition}"
    )


def _strand_copies(group: Group, count: int) -> tuple[list[str], str]:
    """Copies in the retry stream that no worker reads; their roots, and a consumer that lives."""
    gone, alive = group.declare(2, recovery=RETRY)
    lost = group.give(gone.consumer, count)
    group.delete_pod(gone)
    group.await_moved(lost)
    assert group.copies(group.keys.retry).keys() == set(lost)
    return lost, alive.consumer


@pytest.mark.full
def test_an_unread_retry_stream_is_reported_and_its_copies_can_go_back(
    group: Group, operator: Operators
) -> None:
    lost, alive = _strand_copies(group, 5)
    # Invariant 6: what is to be done is never shown as nothing.
    _await_backlog(group, lag=5, pending=0, retry={"name": group.keys.retry, "lag": 5})
    _await_measured(group, operator, "pelops_lag_entries", 5)
    _await_measured(group, operator, "pelops_stream_lag_entries", 5, stream="retry")
    _await_measured(group, operator, "pelops_stream_lag_entries", 0, stream="main")
    unread = group.resources.await_condition(
        group.name, "RetryStreamNotRead", reason="RetryStreamNotRead"
    )
    assert group.keys.retry in unread["message"] and "PELOPS_RETRY_STREAM" in unread["message"]
    assert group.resources.condition(group.name)["status"] == "True"
    assert group.await_event("RetryStreamNotRead")["type"] == "Warning"

    # A worker begins to read it: the alarm ends, and what it holds is shown as well.
    held = group.deliver(alive, 2, stream=group.keys.retry)
    _await_end_of(group, "RetryStreamNotRead")
    _await_backlog(group, lag=3, pending=2, retry={"lag": 3, "pending": 2})
    _await_measured(group, operator, "pelops_pending_entries", 2)
    _await_measured(group, operator, "pelops_stream_pending_entries", 2, stream="retry")
    assert group.measured(operator, "pelops_oldest_pending_seconds") > 0

    # The strategy changes: undelivered copies go back, what a live worker holds stays.
    group.apply(replicas=2, recovery=STREAM)
    group.until(lambda: len(group.copies()) == 3, "the copies to go back")
    assert group.copies().keys() == set(lost[2:])
    assert list(group.pending(group.keys.retry)) == held
    _await_backlog(group, lag=3, pending=2, retry={"lag": 0, "pending": 2})
    assert not group.resources.condition(group.name, "RetryStreamNotEmpty")
    # It ends, and what it held goes back as well.
    (pod,) = (pod for pod in group.pods() if pod.consumer == alive)
    group.delete_pod(pod)
    group.until(lambda: not group.pending(group.keys.retry), "the rest to go back")
    assert group.copies().keys() == set(lost)
    assert len(group.recorded(LedgerKind.REQUEUED)) == 2 * len(lost)
    _await_backlog(group, lag=5, pending=0, retry={"lag": 0, "pending": 0})


def test_what_cannot_go_back_is_reported_until_the_retry_stream_is_empty(
    group: Group, operator: Operators
) -> None:
    lost, alive = _strand_copies(group, 3)
    group.redis.xgroup_create(group.stream, OTHER, "$")
    for recovery, words in ((STREAM, "its other groups"), ({"strategy": "Disabled"}, "Disabled")):
        group.apply(replicas=2, recovery=recovery)
        _await_message(group, "RetryStreamNotEmpty", words)
        _await_backlog(group, lag=3, pending=0, retry={"lag": 3})
    assert not group.copies()
    held = group.deliver(alive, 3, stream=group.keys.retry)
    _await_backlog(group, lag=0, pending=3, retry={"pending": 3})
    assert group.resources.condition(group.name, "RetryStreamNotEmpty")
    group.redis.xack(group.keys.retry, group.keys.group, *held)
    _await_end_of(group, "RetryStreamNotEmpty")
    assert len(lost) == len(held)


@pytest.mark.parametrize("strategy", ["RetryStream", "Requeue"])
def test_entries_in_the_retry_stream_alone_bring_workers_and_keep_them(
    group: Group, strategy: str
) -> None:
    """Invariant 6. With Requeue the retry stream is a former one, and other groups are there."""
    asked: Object = {"replicas": None, "scaling": auto()}
    group.apply(recovery=RETRY, **asked)
    group.resources.await_condition(group.name, reason="Ready")
    group.redis.xgroup_create(group.stream, OTHER, "$")
    if strategy == "Requeue":
        group.apply(recovery=STREAM, **asked)
        group.resources.await_condition(
            group.name, "RecoveryHealthy", reason="RequeueWouldDuplicate"
        )
    group.until(lambda: not group.pods(), "no worker")
    copy = group.redis.xadd(group.keys.retry, {"n": "1"})
    (pod,) = group.until(group.pods, "a worker")
    (held,) = group.deliver(pod.consumer, 1, stream=group.keys.retry)
    assert held == copy
    _await_backlog(group, lag=0, pending=1, retry={"pending": 1})
    assert group.pods() == [pod]
    group.redis.xack(group.keys.retry, group.keys.group, held)
    group.until(lambda: not group.pods(), "no worker, with nothing to do")


def test_copies_that_go_with_a_group_are_reported(group: Group) -> None:
    _strand_copies(group, 3)
    group.apply(replicas=0, recovery=RETRY, deletionPolicy="Delete")
    group.until(
        lambda: (group.resources.get("scg", NAME) or {})["metadata"].get("finalizers"),
        "the finalizer",
    )
    group.resources.delete(group.name, wait=True)
    event = group.await_event("GroupRemoved")
    assert event["type"] == "Warning"
    assert "3 copies" in event["note"]
