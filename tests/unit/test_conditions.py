"""What a person reads in the conditions, case by case."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pelops.domain.condition import Condition, Finding
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState, ScanReport
from pelops.policy.scaling.decision import NOT_DECIDED, ScalingDecision
from pelops.policy.status.conditions import decide_conditions, decide_upkeep, refused
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import Reason
from tests.builders import TEMPLATE, empty_redis, facts, group, pod, resource, stream, workload

PROBLEM = Finding(reason="RedisUnreachable", message="Redis does not answer. Check it")
TAKEN = Finding(reason="NameTaken", message="rename it")
SUSPENDED = resource(suspend=True)
OWNED = resource(template=TEMPLATE)
SCALED_BY_ANOTHER = {
    "conditions": [
        {
            "type": "ScalingActive",
            "status": "True",
            "reason": "Scaled",
            "message": "1,240 owed",
            "lastTransitionTime": "2026-05-04T03:02:01Z",
        }
    ]
}
INEFFECTIVE = ScalingDecision(
    replicas=2, reason=Reason.SCALING_INEFFECTIVE, message="no more than 2, since it is full"
)
GONE = workload(exists=False, wished=None, current=0, ready=0, pods=())


def crashing(**changes: Any) -> Any:
    return pod(is_ready=False, waiting_reason="CrashLoopBackOff", **changes)


def waiting(reason: str, message: str | None = None) -> Any:
    return pod(is_ready=False, waiting_reason=reason, waiting_message=message)


class Case(NamedTuple):
    shown: str  # the type of the condition, its status, and its reason
    words: str  # a part of its message
    given: Facts


CASES: dict[str, Case] = {
    "all is well": Case("Ready True Ready", "2 of 2 workers are ready", facts()),
    "the group exists": Case("GroupReady True GroupExists", "order-processing", facts()),
    "Redis is down": Case(
        "GroupReady False RedisUnreachable", "Redis does not answer", facts(redis_problem=PROBLEM)
    ),
    "the group is not there yet": Case(
        "GroupReady False Creating", "Creating group", facts(stream=empty_redis())
    ),
    "its ledger is not there yet": Case(
        "GroupReady False Creating", "Creating group", facts(stream=stream(ledger_exists=False))
    ),
    "a suspended resource does not create its group": Case(
        "GroupReady False Suspended",
        "spec.suspend: true prevents",
        facts(resource=SUSPENDED, stream=empty_redis()),
    ),
    "a suspended resource without its group is not ready": Case(
        "Ready False Suspended",
        "spec.suspend: true prevents",
        facts(
            resource=resource(suspend=True, recovery={"strategy": "Disabled"}), stream=empty_redis()
        ),
    ),
    "a suspended resource with all in place is ready": Case(
        "Ready True Suspended", "exists on stream", facts(resource=SUSPENDED)
    ),
    "the target is missing": Case(
        "WorkloadReady False TargetMissing",
        "Deployment shop/order-workers does not exist; create it",
        facts(workload=GONE),
    ),
    "the Deployment waits for the group": Case(
        "WorkloadReady False WaitingForGroup",
        "GroupReady",
        facts(resource=OWNED, workload=GONE, stream=empty_redis()),
    ),
    "the Deployment is Creating group": Case(
        "WorkloadReady False Creating",
        "Deployment shop/order-workers",
        facts(resource=OWNED, workload=GONE),
    ),
    "somebody else has the name": Case(
        "WorkloadReady False NameTaken", "rename it", facts(resource=OWNED, workload_problem=TAKEN)
    ),
    "nobody is wanted": Case(
        "WorkloadReady True ScaledToZero",
        "scaled to zero",
        facts(workload=workload(wished=0, current=0, ready=0, pods=())),
    ),
    "a quota refuses pods": Case(
        "WorkloadReady False PodsRefused",
        "0 of 2 workers are ready; pods cannot be created: exceeded quota: pods",
        facts(workload=workload(ready=0, failure="exceeded quota: pods")),
    ),
    "a worker crashes": Case(
        "WorkloadReady False CrashLooping",
        "(exit code 137) and is waiting for its next restart; see kubectl logs -n shop w-1 "
        "--previous",
        facts(workload=workload(ready=1, pods=(pod(), crashing(exit_code=137)))),
    ),
    "a crash tells more than a pull": Case(
        "WorkloadReady False CrashLooping",
        "w-1 crashed and is waiting",
        facts(workload=workload(ready=0, pods=(waiting("ImagePullBackOff"), crashing()))),
    ),
    "an image cannot be pulled": Case(
        "WorkloadReady False ImagePullBackOff",
        "is waiting: ImagePullBackOff: no such image",
        facts(workload=workload(ready=1, pods=(waiting("ImagePullBackOff", "no such image"),))),
    ),
    "a container waits for something odd": Case(
        "WorkloadReady False ContainerWaiting",
        "is waiting: my own reason",
        facts(workload=workload(ready=1, pods=(waiting("my own reason"),))),
    ),
    "containers are being made": Case(
        "WorkloadReady False WorkersNotReady",
        "1 of 2 workers are ready",
        facts(workload=workload(ready=1, pods=(waiting("ContainerCreating"),))),
    ),
    "a node is lost": Case(
        "WorkloadReady False NodeNotReady",
        "that are not Ready: n1, n2; see kubectl describe nodes",
        facts(workload=workload(ready=1, unready_nodes=frozenset({"n2", "n1"}))),
    ),
    "the number of wanted workers is unknown": Case(
        "WorkloadReady False PodsRefused",
        "0 of 0 workers are ready; pods cannot be created: quota",
        facts(workload=workload(ready=0, wished=None, failure="quota")),
    ),
    "a roll-out is not seen yet": Case(
        "WorkloadReady False WorkersNotReady",
        "Deployment shop/order-workers was changed, and its controller has not started the",
        facts(workload=workload(is_rolled_out=False)),
    ),
    "the replicas are nobody's": Case(
        "ScalingActive False ScalingDisabled", "does not change the replicas", facts()
    ),
    "the replicas are said": Case(
        "ScalingActive True Manual",
        "spec.replicas sets the number of workers: 2",
        facts(resource=resource(template=TEMPLATE, replicas=2)),
    ),
    "nobody has decided about scaling yet": Case(
        "ScalingActive False BacklogUnknown",
        "has not been observed yet",
        facts(resource=resource(scaling={"mode": "Auto"}), scaling=None),
    ),
    "another replica of the operator decides": Case(
        "ScalingActive True Scaled",
        "1,240 owed",
        facts(resource=resource(scaling={"mode": "Auto"}, status=SCALED_BY_ANOTHER), scaling=None),
    ),
    "scaling is held while it waits for another condition": Case(
        "Ready True Ready",
        "exists",
        facts(resource=resource(scaling={"mode": "Auto"}), scaling=NOT_DECIDED),
    ),
    "more workers would not help": Case(
        "Ready False ScalingIneffective",
        "no more than 2",
        facts(resource=resource(scaling={"mode": "Auto"}), scaling=INEFFECTIVE),
    ),
    "it is suspended": Case(
        "Suspended True Suspended", "changes nothing", facts(resource=SUSPENDED)
    ),
    "the first problem is the one of Redis": Case(
        "Ready False RedisUnreachable", "Check it", facts(redis_problem=PROBLEM, workload=GONE)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_condition_has_its_status_reason_and_message(case: Case) -> None:
    condition = find(decide_conditions(case.given), case.shown.split()[0])
    assert f"{condition.type} {condition.status} {condition.reason}" == case.shown
    assert case.words in condition.message


def test_what_was_not_asked_for_is_not_reported() -> None:
    kinds = {condition.type for condition in decide_conditions(facts())}
    assert kinds == {"Ready", "GroupReady", "WorkloadReady", "ScalingActive", "RecoveryHealthy"}


def test_recovery_that_is_off_is_not_reported() -> None:
    off = facts(resource=resource(recovery={"strategy": "Disabled"}))
    assert "RecoveryHealthy" not in {condition.type for condition in decide_conditions(off)}


def test_recovery_that_cannot_be_makes_the_resource_unready_though_all_else_works() -> None:
    conditions = decide_conditions(facts(stream=stream(groups=2)))
    assert find(conditions, "GroupReady").is_true
    assert find(conditions, "Ready").reason == "RequeueWouldDuplicate"


def test_an_alarm_leaves_the_resource_ready() -> None:
    conditions = decide_conditions(facts(evicts_any_key=True))
    assert find(conditions, "EvictionPossible").is_true
    assert find(conditions, "Ready").is_true


def test_a_refused_spec_reports_its_problem_and_nothing_else() -> None:
    (condition,) = refused(Finding(reason="InvalidSpec", message="spec.stream: too long"))
    assert (condition.type, condition.reason) == ("Ready", "InvalidSpec")


def find(conditions: list[Condition], kind: str) -> Condition:
    return next(condition for condition in conditions if condition.type == kind)


# --- What a person reads about recovery and retention: how it works, or what keeps it from working


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


class Upkeep(NamedTuple):
    shown: str  # the status of the condition, and its reason
    words: str  # a part of its message
    given: Facts


# The condition RecoveryHealthy.
RECOVERY: dict[str, Upkeep] = {
    "copies go to the end of the stream": Upkeep(
        "True Scanning",
        (
            "copied to the end of the stream: immediately when the pod of their worker has ended; "
            "after a restart within the pod if they were delivered some seconds before it; "
            "otherwise 300 s after"
        ),
        facts(),
    ),
    "copies go to the retry stream, which workers must know": Upkeep(
        "True Scanning",
        "copied to {orders:events}:order-processing:retry, which the workers must read as well",
        asking({"strategy": "RetryStream"}),
    ),
    "entries are offered to workers that claim": Upkeep(
        "True Scanning",
        (
            "offered to workers that claim entries: immediately when the pod of their worker has "
            "ended; after a restart within the pod if they were delivered some seconds before it; "
            "otherwise 45 s"
        ),
        asking({"strategy": "Release", "processingTimeoutSeconds": 45}),
    ),
    "nobody takes what is offered": Upkeep(
        "False OffersNotTaken",
        "See the condition OffersNotTaken",
        asking({"strategy": "Release"}, stream=untaken()),
    ),
    "what was offered before is no matter of another strategy": Upkeep(
        "True Scanning", "copied to the end of the stream", asking({}, stream=untaken())
    ),
    "a missing lock frees an entry": Upkeep(
        "True Scanning", "or 7 s without their lock", asking({"locks": {"graceSeconds": 7}})
    ),
    "a suspended resource recovers nothing and is well": Upkeep(
        "True Suspended", "are not recovered", facts(resource=resource(suspend=True))
    ),
    "a suspended resource does not repeat an old report": Upkeep(
        "True Suspended",
        "are not recovered",
        facts(resource=resource(suspend=True), stream=reporting("PermissionDenied")),
    ),
    "Redis is down": Upkeep("False RedisUnreachable", "GroupReady", facts(redis_problem=PROBLEM)),
    "the group is not there yet": Upkeep(
        "False WaitingForGroup", "see the condition GroupReady", facts(stream=empty_redis())
    ),
    "other groups would be given the copies": Upkeep(
        "False RequeueWouldDuplicate", "spec.recovery.strategy: RetryStream", facts(stream=SHARED)
    ),
    "Release is the other way out of several groups": Upkeep(
        "False RequeueWouldDuplicate", "or Release (for workers that claim", facts(stream=SHARED)
    ),
    "a retry stream is of this group alone": Upkeep(
        "True Scanning", "retry", asking({"strategy": "RetryStream"}, stream=SHARED)
    ),
    "a released entry is of this group alone": Upkeep(
        "True Scanning", "claim", asking({"strategy": "Release"}, stream=SHARED)
    ),
    "the position is ahead of the stream": Upkeep(
        "False PositionAhead", "XGROUP SETID orders:events order-processing ID", facts(stream=AHEAD)
    ),
    "locks in another slot cannot be seen": Upkeep(
        "False LockInAnotherSlot",
        "as in lock:{$tag}:$id",
        asking(LOCKS_ELSEWHERE, topology="Cluster"),
    ),
    "without slots a lock is seen under any name": Upkeep(
        "True Scanning", "30 s without their lock", asking(LOCKS_ELSEWHERE, topology="Standalone")
    ),
    "locks in the stream's slot are seen": Upkeep(
        "True Scanning", "lock", asking({"locks": {}}, topology="Cluster")
    ),
    "the last scan was refused": Upkeep(
        "False PermissionDenied",
        "XADD is forbidden. Grant it",
        facts(stream=reporting("PermissionDenied", "XADD is forbidden. Grant it")),
    ),
    "the slot moves": Upkeep(
        "False SlotMigrating", "to do", facts(stream=reporting("SlotMigrating"))
    ),
    "nobody reports when a lock expires, which only costs time": Upkeep(
        "True KeyspaceNotificationsUnavailable",
        "notify-keyspace-events",
        facts(
            stream=reporting("KeyspaceNotificationsUnavailable", "set notify-keyspace-events Ex")
        ),
    ),
    "what the last scan counted is older than this look": Upkeep(
        "True Scanning", "copied", facts(stream=reporting("RequeueWouldDuplicate"))
    ),
    "a report that somebody else wrote": Upkeep(
        "False UnexpectedError",
        "see the log of the operator",
        facts(stream=reporting("no word", "")),
    ),
}


@pytest.mark.parametrize("case", RECOVERY.values(), ids=RECOVERY)
def test_recovery_health_has_its_status_reason_and_message(case: Upkeep) -> None:
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


RETENTION: dict[str, Upkeep] = {
    "by number": Upkeep(
        "True Trimming",
        "trimmed when the stream has more than 5 entries, if every",
        retaining({"maxLength": 5}),
    ),
    "by age": Upkeep(
        "True Trimming", "trimmed after 60 s, if every", retaining({"maxAgeSeconds": 60})
    ),
    "by both": Upkeep(
        "True Trimming",
        "more than 5 entries or after 60 s",
        retaining({"maxLength": 5, "maxAgeSeconds": 60}),
    ),
    "not while suspended": Upkeep(
        "True Suspended",
        "nothing is trimmed",
        facts(resource=resource(retention={"maxLength": 5}, suspend=True)),
    ),
    "not without Redis": Upkeep(
        "False RedisUnreachable",
        "Nothing is trimmed",
        retaining({"maxLength": 5}, redis_problem=PROBLEM),
    ),
}


@pytest.mark.parametrize("case", RETENTION.values(), ids=RETENTION)
def test_the_stream_is_trimmed(case: Upkeep) -> None:
    condition = decide_upkeep(case.given)[-1]
    assert condition.type == "RetentionActive"
    assert f"{condition.status} {condition.reason}" == case.shown
    assert case.words in condition.message


def test_upkeep_that_was_not_asked_for_is_not_reported() -> None:
    assert decide_upkeep(asking({"strategy": "Disabled"}, stream=SHARED)) == []
