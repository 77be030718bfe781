"""Which Events a change of the status is worth."""

from __future__ import annotations

from typing import Any

from pelops.controller.runtime.events import list_transitions
from pelops.domain.condition import Condition, render_conditions
from pelops.policy.status.reasons import ALARMS
from tests.builders import NOW, later

WELL = Condition(type="Ready", status="True", reason="Ready", message="well")
DOWN = Condition(type="Ready", status="False", reason="RedisUnreachable", message="check it")
STARTING = Condition(type="Ready", status="False", reason="Creating", message="wait")
WAITING = Condition(type="Ready", status="False", reason="ApprovalRequired", message="approve it")
LOST = Condition(type="DataLoss", status="True", reason="DataLoss", message="at least 3")
MORE = Condition(type="DataLoss", status="True", reason="DataLoss", message="at least 4")


def status(*conditions: Condition, before: Any = None, seconds: int = 0) -> dict[str, Any]:
    previous = (before or {}).get("conditions", ())
    now = later(seconds=seconds)
    return {"conditions": render_conditions(conditions, previous, generation=1, now=now)}


def reported(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(h.type, h.reason, h.note) for h in list_transitions(before, after, ALARMS)]


def test_readiness_is_reported_when_its_reason_changes() -> None:
    assert reported({}, status(STARTING)) == []
    assert reported({}, status(WAITING)) == [("Normal", "ApprovalRequired", "approve it")]
    assert reported(status(WELL), status(STARTING)) == [("Normal", "Creating", "wait")]
    assert reported(status(STARTING), status(WELL)) == [("Normal", "Ready", "well")]
    assert reported(status(WELL), status(DOWN)) == [("Warning", "RedisUnreachable", "check it")]
    assert reported(status(DOWN), status(DOWN)) == []
    assert reported(status(WELL), {}) == []


def test_an_alarm_is_reported_once_when_it_begins() -> None:
    quiet = status(WELL)
    begun = status(WELL, LOST, before=quiet)
    assert reported(quiet, begun) == [("Warning", "DataLoss", "at least 3")]
    assert reported(begun, status(WELL, LOST, before=begun, seconds=9)) == []
    assert reported(begun, status(WELL, MORE, before=begun, seconds=9)) == []
    assert reported(begun, quiet) == []


def test_an_alarm_that_begins_again_is_reported_again() -> None:
    quiet = status(WELL)
    first, second = (status(WELL, LOST, before=quiet, seconds=s) for s in (0, 60))
    one, other = (next(list_transitions(quiet, after, ALARMS)) for after in (first, second))
    assert one.occurrence != other.occurrence


def test_every_replica_reports_the_same_transitions() -> None:
    before, after = status(WELL), status(DOWN, LOST)
    again = list(list_transitions(dict(before), after, ALARMS))
    assert list(list_transitions(before, after, ALARMS)) == again
    assert NOW.strftime("%Y-%m-%dT%H:%M:%SZ") in again[0].occurrence
