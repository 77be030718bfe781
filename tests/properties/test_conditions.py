"""Whatever is seen, the conditions say it in the form that Kubernetes wants, and always alike."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pelops.api.group.group_status_model import StatusCondition as WireCondition
from pelops.api.group.group_status_model import StreamConsumerGroupStatus
from pelops.controller.group.group_status import compare, render_status
from pelops.controller.runtime.kind import Difference, PreviousStatus
from pelops.domain.condition import MESSAGE_LIMIT, Condition, render_conditions, render_time
from pelops.domain.records.state import GroupState, Totals
from pelops.domain.stream_observation import GroupObservation, StreamObservation
from pelops.errors import PelopsError
from pelops.policy.status.conditions import decide_conditions, refused
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.facts import Facts
from pelops.policy.status.health import PROGRESS_DEADLINE
from pelops.policy.status.reasons import ALARMS, ConditionType, Reason
from tests.builders import NOW, later
from tests.properties.strategies import (
    COUNT,
    GROUP,
    LAG,
    MOMENT,
    PROBLEM,
    STATE,
    STREAM,
    TEXT,
    facts,
    pelops_errors,
)

CONDITION = st.builds(
    Condition,
    type=st.sampled_from(list(ConditionType)),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=st.sampled_from(list(Reason)),
    message=TEXT,
)
NONE = PreviousStatus(status={}, generation=1)


def rendered(seen: Facts, previous: PreviousStatus = NONE, now: datetime = NOW) -> dict[str, Any]:
    return render_status(seen, decide_conditions(seen), previous, now)


@given(facts())
def test_each_condition_stands_once_and_ready_comes_first(seen: Facts) -> None:
    kinds = [condition.type for condition in decide_conditions(seen)]
    assert kinds[:4] == ["Ready", "GroupReady", "WorkloadReady", "ScalingActive"]
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) <= set(ConditionType)


@given(facts())
def test_the_api_server_accepts_every_condition(seen: Facts) -> None:
    for condition in render_conditions(decide_conditions(seen), (), generation=1, now=NOW):
        WireCondition.model_validate(condition)
        assert 0 < len(condition["message"]) <= MESSAGE_LIMIT
        assert len(condition["reason"]) <= 128  # as an Event allows


@given(facts())
def test_the_api_server_accepts_every_status(seen: Facts) -> None:
    StreamConsumerGroupStatus.model_validate(rendered(seen))


@given(facts())
def test_ready_says_what_the_first_failing_condition_says(seen: Facts) -> None:
    ready, *details = decide_conditions(seen)
    failing = [c for c in details if not c.is_true and c.reason != Reason.SCALING_DISABLED]
    assert not {condition.type for condition in failing} & {*ALARMS}
    assert ready.is_true == (not failing)
    if failing:
        assert (ready.reason, ready.message) == (failing[0].reason, failing[0].message)


@given(facts())
def test_alarms_are_reported_only_while_they_hold_and_change_nothing_else(seen: Facts) -> None:
    conditions = decide_conditions(seen)
    alarms = [condition for condition in conditions if condition.type in {*ALARMS}]
    assert all(alarm.is_true for alarm in alarms)
    assert conditions[len(conditions) - len(alarms) :] == alarms


@given(facts(), STREAM, GROUP, STATE, st.data())
def test_no_number_that_moves_changes_a_condition(
    seen: Facts,
    stream: StreamObservation,
    group: GroupObservation,
    state: GroupState,
    data: st.DataObject,
) -> None:
    """Else every entry that is added, delivered or recovered would cost each replica a write."""
    stream = replace(stream, group=group, state=state)
    moved = replace(
        stream,
        server_time=data.draw(MOMENT),
        length=data.draw(COUNT),
        dead_letters=data.draw(COUNT),
        group=replace(group, pending=data.draw(COUNT), lag=data.draw(st.none() | LAG)),
        state=replace(
            state,
            totals=Totals(requeued=data.draw(COUNT), trimmed=data.draw(COUNT)),
            report=replace(state.report, waiting=data.draw(COUNT)),
            scanned_at=data.draw(MOMENT),
        ),
    )
    before, after = (decide_conditions(replace(seen, stream=s)) for s in (stream, moved))
    assert before == after


@given(facts(), MOMENT)
def test_the_same_facts_give_the_same_bytes_from_every_replica(seen: Facts, now: datetime) -> None:
    """Time alone changes one thing once: what is not ready for too long is Stalled."""
    first = rendered(seen)
    again = rendered(seen, PreviousStatus(status=first, generation=1), now)
    if now - NOW < PROGRESS_DEADLINE:
        assert json.dumps(again) == json.dumps(first)
    later_on = now + PROGRESS_DEADLINE
    settled = rendered(seen, PreviousStatus(status=again, generation=1), later_on)
    ever = rendered(seen, PreviousStatus(status=settled, generation=1), later_on)
    assert json.dumps(ever) == json.dumps(settled)
    assert compare(ever, json.loads(json.dumps(settled))) is Difference.NONE


@given(PROBLEM)
def test_a_spec_that_cannot_be_read_gives_one_condition(problem: Any) -> None:
    (condition,) = refused(problem)
    assert (condition.type, condition.status) == ("Ready", "False")


@given(pelops_errors())
def test_every_error_has_a_reason_of_the_table_and_keeps_its_advice(error: PelopsError) -> None:
    finding = diagnose(error)
    assert finding.reason in set(Reason)
    assert 0 < len(finding.message) <= MESSAGE_LIMIT
    if finding.reason == Reason.REDIS_UNREACHABLE:
        assert finding.message.endswith("automatically")


@given(st.lists(CONDITION, unique_by=lambda c: c.type), st.lists(CONDITION))
def test_a_transition_time_changes_only_when_the_status_flips(
    wished: list[Condition], before: list[Condition]
) -> None:
    unique = list({condition.type: condition for condition in before}.values())
    old = render_conditions(unique, (), generation=1, now=NOW)
    new = render_conditions(wished, old, generation=2, now=later(seconds=9))
    was = {condition["type"]: condition for condition in old}
    for condition in new:
        same = was.get(condition["type"], {}).get("status") == condition["status"]
        expected = NOW if same else later(seconds=9)
        assert condition["lastTransitionTime"] == render_time(expected)
        assert condition["observedGeneration"] == 2


@given(facts())
def test_a_replica_that_does_not_scale_keeps_the_status_unchanged(seen: Facts) -> None:
    first = rendered(seen)
    known = _with_status(seen, first)
    reported = rendered(known, PreviousStatus(status=first, generation=1))
    other = replace(_with_status(seen, reported), scaling=None)
    wished = rendered(other, PreviousStatus(status=reported, generation=1))
    assert compare(wished, reported) is Difference.NONE


def _with_status(seen: Facts, status: dict[str, Any]) -> Facts:
    parsed = StreamConsumerGroupStatus.model_validate(status)
    return replace(seen, resource=seen.resource.model_copy(update={"status": parsed}))
