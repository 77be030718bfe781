"""When the replicas are left alone, though the backlog should decide them."""

from __future__ import annotations

import pytest

from pelops.domain.condition import Finding
from pelops.policy.scaling.decision import (
    ScalingDecision,
    decide_unchanged,
    is_automatic,
    report_failure,
)
from pelops.policy.status.reasons import Reason
from tests.builders import resource

AUTO = resource(scaling={"mode": "Auto"}).spec
CONFLICT = Finding(reason=Reason.CONFLICT, message="shop/older acts")
UNREACHABLE = Finding(reason=Reason.REDIS_UNREACHABLE, message="no answer")
TAKEN = Finding(reason=Reason.NAME_TAKEN, message="rename it")


@pytest.mark.parametrize(
    ("redis", "workload", "reason"),
    [
        (CONFLICT, None, Reason.CONFLICT),
        (None, CONFLICT, Reason.CONFLICT),
        (None, TAKEN, Reason.NAME_TAKEN),
        (UNREACHABLE, TAKEN, Reason.NAME_TAKEN),
    ],
)
def test_what_is_not_the_resources_own_is_left_alone_and_reported(
    redis: Finding | None, workload: Finding | None, reason: Reason
) -> None:
    decision = decide_unchanged(AUTO, redis_problem=redis, workload_problem=workload)
    assert decision is not None
    assert (decision.replicas, decision.reason, decision.is_active) == (None, reason, False)
    assert decision.message in {CONFLICT.message, TAKEN.message}


@pytest.mark.parametrize("redis", [None, UNREACHABLE])
def test_a_redis_that_does_not_answer_is_for_the_decision_to_judge(redis: Finding | None) -> None:
    assert decide_unchanged(AUTO, redis_problem=redis, workload_problem=None) is None


def test_a_suspended_resource_is_left_alone() -> None:
    spec = resource(scaling={"mode": "Auto"}, suspend=True).spec
    decision = decide_unchanged(spec, redis_problem=None, workload_problem=None)
    assert decision is not None
    assert (decision.replicas, decision.reason) == (None, Reason.SUSPENDED)


def test_a_failed_write_reports_the_wanted_replicas_and_the_cause() -> None:
    wanted = ScalingDecision(replicas=3, reason=Reason.SCALED, message="300 owed")
    failed = report_failure(wanted, Finding(reason=Reason.FORBIDDEN, message="Forbidden by a rule"))
    assert (failed.replicas, failed.reason, failed.is_active) == (3, Reason.FORBIDDEN, False)
    assert failed.message == "Forbidden by a rule. 300 owed"


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [({}, True), ({"mode": "Auto"}, True), ({"mode": "Manual"}, False), (None, False)],
)
def test_scaling_that_says_no_mode_is_automatic(
    scaling: dict[str, str] | None, expected: bool
) -> None:
    assert is_automatic(resource(scaling=scaling).spec) is expected
