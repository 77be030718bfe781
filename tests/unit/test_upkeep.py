"""What a person reads about recovery and retention: how it works, or what keeps it from working."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pelops.domain.condition import Condition, Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState, ScanReport
from pelops.policy.status.conditions import decide_upkeep
from pelops.policy.status.facts import Facts
from tests.builders import empty_redis, facts, group, resource, stream

PROBLEM = Finding(reason="RedisUnreachable", message="Redis does not answer. Check it")
SHARED = stream(groups=2)
AHEAD = stream(group=group(last_delivered_id=EntryId(1700000000001)))
LOCKS_ELSEWHERE = {"locks": {"keyTemplate": "lock:$id"}}


def asking(recovery: dict[str, Any], **changes: Any) -> Facts:
    return facts(resource=resource(recovery=recovery), **changes)


def retaining(retention: dict[str, Any], **changes: Any) -> Facts:
    return facts(resource=resource(retention=retention), **changes)


def reporting(reason: str, message: str = "what is wrong, and what to do") -> Any:
    return stream(state=GroupState(report=ScanReport(reason=reason, message=message)))


def untaken() -> Any:
    return stream(state=GroupState(report=ScanReport(offered=2, is_not_taken=True)))


class Case(NamedTuple):
    shown: str  # the status of the condition, and its reason
    words: str  # a part of its message
    given: Facts


# The condition RecoveryHealthy.
RECOVERY: dict[str, Case] = {
    "copies go to the end of the stream": Case(
        "True Scanning",
        (
            "copied to the end of the stream: immediately when the pod of their worker has ended; "
            "after a restart within the pod if they were delivered some seconds before it; "
            "otherwise 300 s after"
        ),
        facts(),
    ),
    "copies go to the retry stream, which workers must know": Case(
        "True Scanning",
        "copied to {orders:events}:order-processing:retry, which the workers must read as well",
        asking({"strategy": "RetryStream"}),
    ),
    "entries are offered to workers that claim": Case(
        "True Scanning",
        (
            "offered to workers that claim entries: immediately when the pod of their worker has "
            "ended; after a restart within the pod if they were delivered some seconds before it; "
            "otherwise 45 s"
        ),
        asking({"strategy": "Release", "processingTimeoutSeconds": 45}),
    ),
    "nobody takes what is offered": Case(
        "False OffersNotTaken",
        "See the condition OffersNotTaken",
        asking({"strategy": "Release"}, stream=untaken()),
    ),
    "what was offered before is no matter of another strategy": Case(
        "True Scanning", "copied to the end of the stream", asking({}, stream=untaken())
    ),
    "a missing lock frees an entry": Case(
        "True Scanning", "or 7 s without their lock", asking({"locks": {"graceSeconds": 7}})
    ),
    "a suspended resource recovers nothing and is well": Case(
        "True Suspended", "are not recovered", facts(resource=resource(suspend=True))
    ),
    "a suspended resource does not repeat an old report": Case(
        "True Suspended",
        "are not recovered",
        facts(resource=resource(suspend=True), stream=reporting("PermissionDenied")),
    ),
    "Redis is down": Case("False RedisUnreachable", "GroupReady", facts(redis_problem=PROBLEM)),
    "the group is not there yet": Case(
        "False WaitingForGroup", "see the condition GroupReady", facts(stream=empty_redis())
    ),
    "other groups would be given the copies": Case(
        "False RequeueWouldDuplicate", "spec.recovery.strategy: RetryStream", facts(stream=SHARED)
    ),
    "Release is the other way out of several groups": Case(
        "False RequeueWouldDuplicate", "or Release (for workers that claim", facts(stream=SHARED)
    ),
    "a retry stream is of this group alone": Case(
        "True Scanning", "retry", asking({"strategy": "RetryStream"}, stream=SHARED)
    ),
    "a released entry is of this group alone": Case(
        "True Scanning", "claim", asking({"strategy": "Release"}, stream=SHARED)
    ),
    "the position is ahead of the stream": Case(
        "False PositionAhead", "XGROUP SETID orders:events order-processing ID", facts(stream=AHEAD)
    ),
    "locks in another slot cannot be seen": Case(
        "False LockInAnotherSlot",
        "as in lock:{$tag}:$id",
        asking(LOCKS_ELSEWHERE, topology="Cluster"),
    ),
    "without slots a lock is seen under any name": Case(
        "True Scanning", "30 s without their lock", asking(LOCKS_ELSEWHERE, topology="Standalone")
    ),
    "locks in the stream's slot are seen": Case(
        "True Scanning", "lock", asking({"locks": {}}, topology="Cluster")
    ),
    "the last scan was refused": Case(
        "False PermissionDenied",
        "XADD is forbidden. Grant it",
        facts(stream=reporting("PermissionDenied", "XADD is forbidden. Grant it")),
    ),
    "the slot moves": Case(
        "False SlotMigrating", "to do", facts(stream=reporting("SlotMigrating"))
    ),
    "nobody reports when a lock expires, which only costs time": Case(
        "True KeyspaceNotificationsUnavailable",
        "notify-keyspace-events",
        facts(
            stream=reporting("KeyspaceNotificationsUnavailable", "set notify-keyspace-events Ex")
        ),
    ),
    "what the last scan counted is older than this look": Case(
        "True Scanning", "copied", facts(stream=reporting("RequeueWouldDuplicate"))
    ),
    "a report that somebody else wrote": Case(
        "False UnexpectedError",
        "see the log of the operator",
        facts(stream=reporting("no word", "")),
    ),
}


@pytest.mark.parametrize("case", RECOVERY.values(), ids=RECOVERY)
def test_recovery_health_has_its_status_reason_and_message(case: Case) -> None:
    (condition,) = decide_upkeep(case.given)
    assert condition.type == "RecoveryHealthy"
    assert f"{condition.status} {condition.reason}" == case.shown
    assert case.words in condition.message


def test_a_message_about_a_position_ahead_names_no_end_that_moves() -> None:
    def reported(end: int) -> Condition:
        position = group(last_delivered_id=EntryId(9))
        (condition,) = decide_upkeep(
            facts(stream=stream(group=position, last_generated_id=EntryId(end)))
        )
        return condition

    assert reported(7) == reported(8)
    assert "is 9-0" in reported(8).message


RETENTION: dict[str, Case] = {
    "by number": Case(
        "True Trimming",
        "trimmed when the stream has more than 5 entries, if every",
        retaining({"maxLength": 5}),
    ),
    "by age": Case(
        "True Trimming", "trimmed after 60 s, if every", retaining({"maxAgeSeconds": 60})
    ),
    "by both": Case(
        "True Trimming",
        "more than 5 entries or after 60 s",
        retaining({"maxLength": 5, "maxAgeSeconds": 60}),
    ),
    "not while suspended": Case(
        "True Suspended",
        "nothing is trimmed",
        facts(resource=resource(retention={"maxLength": 5}, suspend=True)),
    ),
    "not without Redis": Case(
        "False RedisUnreachable",
        "Nothing is trimmed",
        retaining({"maxLength": 5}, redis_problem=PROBLEM),
    ),
}


@pytest.mark.parametrize("case", RETENTION.values(), ids=RETENTION)
def test_the_stream_is_trimmed(case: Case) -> None:
    condition = decide_upkeep(case.given)[-1]
    assert condition.type == "RetentionActive"
    assert f"{condition.status} {condition.reason}" == case.shown
    assert case.words in condition.message


def test_what_was_not_asked_for_is_not_reported() -> None:
    assert decide_upkeep(asking({"strategy": "Disabled"}, stream=SHARED)) == []
