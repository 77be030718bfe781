"""What a person reads in the conditions, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.domain.condition import Condition, Finding
from pelops.policy.scaling.decision import NOT_DECIDED, ScalingDecision
from pelops.policy.status.conditions import decide_conditions, refused
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import Reason
from tests.builders import TEMPLATE, empty_redis, facts, pod, resource, stream, workload

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


# The sentence of a case: facts, the condition, its status, its reason, what its message says.
CASES: dict[str, tuple[Facts, str, str, str, str]] = {
    "all is well": (facts(), "Ready", "True", "Ready", "2 of 2 workers are ready"),
    "the group exists": (facts(), "GroupReady", "True", "GroupExists", "order-processing"),
    "Redis is down": (
        facts(redis_problem=PROBLEM),
        "GroupReady",
        "False",
        "RedisUnreachable",
        "Redis does not answer",
    ),
    "the group is not there yet": (
        facts(stream=empty_redis()),
        "GroupReady",
        "False",
        "Creating",
        "Creating group",
    ),
    "its ledger is not there yet": (
        facts(stream=stream(ledger_exists=False)),
        "GroupReady",
        "False",
        "Creating",
        "Creating group",
    ),
    "a suspended resource does not create its group": (
        facts(resource=SUSPENDED, stream=empty_redis()),
        "GroupReady",
        "False",
        "Suspended",
        "spec.suspend: true prevents",
    ),
    "a suspended resource without its group is not ready": (
        facts(
            resource=resource(suspend=True, recovery={"strategy": "Disabled"}),
            stream=empty_redis(),
        ),
        "Ready",
        "False",
        "Suspended",
        "spec.suspend: true prevents",
    ),
    "a suspended resource with all in place is ready": (
        facts(resource=SUSPENDED),
        "Ready",
        "True",
        "Suspended",
        "exists on stream",
    ),
    "the target is missing": (
        facts(workload=GONE),
        "WorkloadReady",
        "False",
        "TargetMissing",
        "Deployment shop/order-workers does not exist; create it",
    ),
    "the Deployment waits for the group": (
        facts(resource=OWNED, workload=GONE, stream=empty_redis()),
        "WorkloadReady",
        "False",
        "WaitingForGroup",
        "GroupReady",
    ),
    "the Deployment is Creating group": (
        facts(resource=OWNED, workload=GONE),
        "WorkloadReady",
        "False",
        "Creating",
        "Deployment shop/order-workers",
    ),
    "somebody else has the name": (
        facts(resource=OWNED, workload_problem=TAKEN),
        "WorkloadReady",
        "False",
        "NameTaken",
        "rename it",
    ),
    "nobody is wanted": (
        facts(workload=workload(wished=0, current=0, ready=0, pods=())),
        "WorkloadReady",
        "True",
        "ScaledToZero",
        "scaled to zero",
    ),
    "a quota refuses pods": (
        facts(workload=workload(ready=0, failure="exceeded quota: pods")),
        "WorkloadReady",
        "False",
        "PodsRefused",
        "0 of 2 workers are ready; pods cannot be created: exceeded quota: pods",
    ),
    "a worker crashes": (
        facts(workload=workload(ready=1, pods=(pod(), crashing(exit_code=137)))),
        "WorkloadReady",
        "False",
        "CrashLooping",
        "(exit code 137) and is waiting for its next restart; see kubectl logs -n shop w-1 "
        "--previous",
    ),
    "a crash tells more than a pull": (
        facts(workload=workload(ready=0, pods=(waiting("ImagePullBackOff"), crashing()))),
        "WorkloadReady",
        "False",
        "CrashLooping",
        "w-1 crashed and is waiting",
    ),
    "an image cannot be pulled": (
        facts(workload=workload(ready=1, pods=(waiting("ImagePullBackOff", "no such image"),))),
        "WorkloadReady",
        "False",
        "ImagePullBackOff",
        "is waiting: ImagePullBackOff: no such image",
    ),
    "a container waits for something odd": (
        facts(workload=workload(ready=1, pods=(waiting("my own reason"),))),
        "WorkloadReady",
        "False",
        "ContainerWaiting",
        "is waiting: my own reason",
    ),
    "containers are being made": (
        facts(workload=workload(ready=1, pods=(waiting("ContainerCreating"),))),
        "WorkloadReady",
        "False",
        "WorkersNotReady",
        "1 of 2 workers are ready",
    ),
    "a node is lost": (
        facts(workload=workload(ready=1, unready_nodes=frozenset({"n2", "n1"}))),
        "WorkloadReady",
        "False",
        "NodeNotReady",
        "that are not Ready: n1, n2; see kubectl describe nodes",
    ),
    "the number of wanted workers is unknown": (
        facts(workload=workload(ready=0, wished=None, failure="quota")),
        "WorkloadReady",
        "False",
        "PodsRefused",
        "0 of 0 workers are ready; pods cannot be created: quota",
    ),
    "a roll-out is not seen yet": (
        facts(workload=workload(is_rolled_out=False)),
        "WorkloadReady",
        "False",
        "WorkersNotReady",
        "Deployment shop/order-workers was changed, and its controller has not started the",
    ),
    "the replicas are nobody's": (
        facts(),
        "ScalingActive",
        "False",
        "ScalingDisabled",
        "does not change the replicas",
    ),
    "the replicas are said": (
        facts(resource=resource(template=TEMPLATE, replicas=2)),
        "ScalingActive",
        "True",
        "Manual",
        "spec.replicas sets the number of workers: 2",
    ),
    "nobody has decided about scaling yet": (
        facts(resource=resource(scaling={"mode": "Auto"}), scaling=None),
        "ScalingActive",
        "False",
        "BacklogUnknown",
        "has not been observed yet",
    ),
    "another replica of the operator decides": (
        facts(resource=resource(scaling={"mode": "Auto"}, status=SCALED_BY_ANOTHER), scaling=None),
        "ScalingActive",
        "True",
        "Scaled",
        "1,240 owed",
    ),
    "scaling is held while it waits for another condition": (
        facts(resource=resource(scaling={"mode": "Auto"}), scaling=NOT_DECIDED),
        "Ready",
        "True",
        "Ready",
        "exists",
    ),
    "more workers would not help": (
        facts(resource=resource(scaling={"mode": "Auto"}), scaling=INEFFECTIVE),
        "Ready",
        "False",
        "ScalingIneffective",
        "no more than 2",
    ),
    "it is suspended": (
        facts(resource=SUSPENDED),
        "Suspended",
        "True",
        "Suspended",
        "changes nothing",
    ),
    "the first problem is the one of Redis": (
        facts(redis_problem=PROBLEM, workload=GONE),
        "Ready",
        "False",
        "RedisUnreachable",
        "Check it",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_condition_has_its_status_reason_and_message(
    case: tuple[Facts, str, str, str, str],
) -> None:
    seen, kind, status, reason, words = case
    condition = find(decide_conditions(seen), kind)
    assert (condition.status, condition.reason) == (status, reason)
    assert words in condition.message


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
