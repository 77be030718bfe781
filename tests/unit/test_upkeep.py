"""What a person reads about recovery and retention: how it works, or what keeps it from working."""

from __future__ import annotations

from typing import Any

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


# The sentence of a case: facts, status and reason of RecoveryHealthy, what its message says.
RECOVERY: dict[str, tuple[Facts, str, str, str]] = {
    "copies go to the end of the stream": (
        facts(),
        "True",
        "Scanning",
        "copied to the end of the stream: immediately when the pod of their worker has ended; "
        "after a restart within the pod if they were delivered some seconds before it; "
        "otherwise 300 s after",
    ),
    "copies go to the retry stream, which workers must know": (
        asking({"strategy": "RetryStream"}),
        "True",
        "Scanning",
        "copied to {orders:events}:order-processing:retry, which the workers must read as well",
    ),
    "entries are offered to workers that claim": (
        asking({"strategy": "Release", "processingTimeoutSeconds": 45}),
        "True",
        "Scanning",
        "offered to workers that claim entries: immediately when the pod of their worker has "
        "ended; after a restart within the pod if they were delivered some seconds before it; "
        "otherwise 45 s",
    ),
    "nobody takes what is offered": (
        asking({"strategy": "Release"}, stream=untaken()),
        "False",
        "OffersNotTaken",
        "See the condition OffersNotTaken",
    ),
    "what was offered before is no matter of another strategy": (
        asking({}, stream=untaken()),
        "True",
        "Scanning",
        "copied to the end of the stream",
    ),
    "a missing lock frees an entry": (
        asking({"locks": {"graceSeconds": 7}}),
        "True",
        "Scanning",
        "or 7 s without their lock",
    ),
    "a suspended resource recovers nothing and is well": (
        facts(resource=resource(suspend=True)),
        "True",
        "Suspended",
        "are not recovered",
    ),
    "a suspended resource does not repeat an old report": (
        facts(resource=resource(suspend=True), stream=reporting("PermissionDenied")),
        "True",
        "Suspended",
        "are not recovered",
    ),
    "Redis is down": (facts(redis_problem=PROBLEM), "False", "RedisUnreachable", "GroupReady"),
    "the group is not there yet": (
        facts(stream=empty_redis()),
        "False",
        "WaitingForGroup",
        "see the condition GroupReady",
    ),
    "other groups would be given the copies": (
        facts(stream=SHARED),
        "False",
        "RequeueWouldDuplicate",
        "spec.recovery.strategy: RetryStream",
    ),
    "Release is the other way out of several groups": (
        facts(stream=SHARED),
        "False",
        "RequeueWouldDuplicate",
        "or Release (for workers that claim",
    ),
    "a retry stream is of this group alone": (
        asking({"strategy": "RetryStream"}, stream=SHARED),
        "True",
        "Scanning",
        "retry",
    ),
    "a released entry is of this group alone": (
        asking({"strategy": "Release"}, stream=SHARED),
        "True",
        "Scanning",
        "claim",
    ),
    "the position is ahead of the stream": (
        facts(stream=AHEAD),
        "False",
        "PositionAhead",
        "XGROUP SETID orders:events order-processing ID",
    ),
    "locks in another slot cannot be seen": (
        asking(LOCKS_ELSEWHERE, topology="Cluster"),
        "False",
        "LockInAnotherSlot",
        "as in lock:{$tag}:$id",
    ),
    "without slots a lock is seen under any name": (
        asking(LOCKS_ELSEWHERE, topology="Standalone"),
        "True",
        "Scanning",
        "30 s without their lock",
    ),
    "locks in the stream's slot are seen": (
        asking({"locks": {}}, topology="Cluster"),
        "True",
        "Scanning",
        "lock",
    ),
    "the last scan was refused": (
        facts(stream=reporting("PermissionDenied", "XADD is forbidden. Grant it")),
        "False",
        "PermissionDenied",
        "XADD is forbidden. Grant it",
    ),
    "the slot moves": (facts(stream=reporting("SlotMigrating")), "False", "SlotMigrating", "to do"),
    "nobody reports when a lock expires, which only costs time": (
        facts(
            stream=reporting("KeyspaceNotificationsUnavailable", "set notify-keyspace-events Ex")
        ),
        "True",
        "KeyspaceNotificationsUnavailable",
        "notify-keyspace-events",
    ),
    "what the last scan counted is older than this look": (
        facts(stream=reporting("RequeueWouldDuplicate")),
        "True",
        "Scanning",
        "copied",
    ),
    "a report that somebody else wrote": (
        facts(stream=reporting("no word", "")),
        "False",
        "UnexpectedError",
        "see the log of the operator",
    ),
}


@pytest.mark.parametrize("case", RECOVERY.values(), ids=RECOVERY)
def test_recovery_health_has_its_status_reason_and_message(
    case: tuple[Facts, str, str, str],
) -> None:
    seen, status, reason, words = case
    (condition,) = decide_upkeep(seen)
    assert condition.type == "RecoveryHealthy"
    assert (condition.status, condition.reason) == (status, reason)
    assert words in condition.message


def test_a_message_about_a_position_ahead_names_no_end_that_moves() -> None:
    def reported(end: int) -> Condition:
        position = group(last_delivered_id=EntryId(9))
        (condition,) = decide_upkeep(
            facts(stream=stream(group=position, last_generated_id=EntryId(end)))
        )
        return condition

    assert reported(7) == reported(8)
    assert "is 9-0" in reported(8).message


RETENTION: dict[str, tuple[Facts, str, str, str]] = {
    "by number": (
        retaining({"maxLength": 5}),
        "True",
        "Trimming",
        "trimmed when the stream has more than 5 entries, if every",
    ),
    "by age": (
        retaining({"maxAgeSeconds": 60}),
        "True",
        "Trimming",
        "trimmed after 60 s, if every",
    ),
    "by both": (
        retaining({"maxLength": 5, "maxAgeSeconds": 60}),
        "True",
        "Trimming",
        "more than 5 entries or after 60 s",
    ),
    "not while suspended": (
        facts(resource=resource(retention={"maxLength": 5}, suspend=True)),
        "True",
        "Suspended",
        "nothing is trimmed",
    ),
    "not without Redis": (
        retaining({"maxLength": 5}, redis_problem=PROBLEM),
        "False",
        "RedisUnreachable",
        "Nothing is trimmed",
    ),
}


@pytest.mark.parametrize("case", RETENTION.values(), ids=RETENTION)
def test_the_stream_is_trimmed(case: tuple[Facts, str, str, str]) -> None:
    seen, status, reason, words = case
    condition = decide_upkeep(seen)[-1]
    assert condition.type == "RetentionActive"
    assert (condition.status, condition.reason) == (status, reason)
    assert words in condition.message


def test_what_was_not_asked_for_is_not_reported() -> None:
    assert decide_upkeep(asking({"strategy": "Disabled"}, stream=SHARED)) == []
