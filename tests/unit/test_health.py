"""What GitOps tools see: in progress, healthy or failed, for every reason that Ready may have."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pelops.controller.audit.audit_status import render_audit_status
from pelops.controller.group.group_status import compare
from pelops.controller.runtime.kind import Difference, PreviousStatus, render_heading
from pelops.domain.condition import Condition, Finding
from pelops.policy.audit.audit_conditions import decide_audit_conditions
from pelops.policy.status.health import (
    PROGRESS_DEADLINE,
    is_attended,
    shows_nothing_pending,
    stays_as_it_is,
)
from pelops.policy.status.reasons import NEEDS_CHANGE, UNDER_WAY, Reason
from tests.audit_facts import facts as audit_facts
from tests.builders import NOW
from tests.kstatus import compute

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "conditions.md").read_text(encoding="utf-8")
LATE = NOW + PROGRESS_DEADLINE
WAITING = [Reason.CRASH_LOOPING, Reason.SECRET_MISSING, Reason.REDIS_UNREACHABLE]


def ready_for(reason: str, message: str | None = None) -> Condition:
    """Ready with this reason."""
    is_ready = reason in {Reason.READY, Reason.SCHEDULED, Reason.COMPLETED}
    return Condition(
        type="Ready",
        status="True" if is_ready else "False",
        reason=reason,
        message=message or f"m {reason}",
    )


def seen(
    reason: str,
    *,
    before: dict[str, Any] | None = None,
    now: datetime = NOW,
    generation: int = 1,
    message: str | None = None,
) -> dict[str, Any]:
    """A resource whose Ready has this reason, as it is written after `before`."""
    ready = ready_for(reason, message)
    previous = PreviousStatus(status=(before or {}).get("status") or {}, generation=generation)
    heading = render_heading([ready], previous, now)
    return {"metadata": {"generation": generation}, "status": heading}


def conditions(thing: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in thing["status"]["conditions"]}


def documented(kind: str) -> set[str]:
    """The reasons that the page has in the row of its table that begins with this."""
    row = re.search(rf"^\| {re.escape(kind)} \|(.*)$", PAGE, flags=re.MULTILINE)
    assert row is not None
    return set(re.findall(r"`(\w+)`", row[1])) & {*Reason}


@pytest.mark.parametrize("reason", [Reason.READY, Reason.SCHEDULED, Reason.COMPLETED])
def test_a_ready_resource_is_current_and_has_neither_condition(reason: Reason) -> None:
    thing = seen(reason)
    assert compute(thing) == "Current"
    assert conditions(thing).keys() == {"Ready"}


@pytest.mark.parametrize("reason", sorted(NEEDS_CHANGE))
def test_a_problem_that_needs_a_user_is_failed_at_once(reason: Reason) -> None:
    thing = seen(reason)
    stalled = conditions(thing)["Stalled"]
    assert compute(thing) == "Failed"
    assert (stalled["reason"], stalled["message"]) == (reason, f"m {reason}")
    assert "Reconciling" not in conditions(thing)


OTHERS = {*Reason} - NEEDS_CHANGE - UNDER_WAY
OTHERS -= {Reason.READY, Reason.SCHEDULED, Reason.COMPLETED, Reason.SUSPENDED}


@pytest.mark.parametrize("reason", [*sorted(OTHERS), "FromAKubelet"])
def test_any_other_problem_is_in_progress_and_failed_after_the_deadline(reason: str) -> None:
    early = seen(reason)
    assert compute(early) == "InProgress"
    assert conditions(early)["Reconciling"]["reason"] == reason
    almost = seen(reason, before=early, now=LATE - timedelta(seconds=1))
    assert compute(almost) == "InProgress"
    late = seen(reason, before=almost, now=LATE)
    assert compute(late) == "Failed"
    assert (
        conditions(late)["Stalled"]["message"] == f"Not ready for more than 10 minutes: m {reason}"
    )
    again = seen(reason, before=late, now=LATE + timedelta(hours=1))
    assert again["status"] == late["status"]  # the same facts cost no write


@pytest.mark.parametrize("reason", sorted(UNDER_WAY))
def test_what_goes_on_is_in_progress_however_long(reason: Reason) -> None:
    thing = seen(reason, before=seen(reason), now=NOW + timedelta(days=1))
    assert compute(thing) == "InProgress"


def test_a_suspended_resource_is_never_failed() -> None:
    thing = seen(Reason.SUSPENDED, before=seen(Reason.SUSPENDED), now=NOW + timedelta(days=1))
    assert compute(thing) == "InProgress"
    assert conditions(thing).keys() == {"Ready"}


def test_the_deadline_counts_from_the_newest_change_of_the_spec() -> None:
    failed = seen(Reason.CRASH_LOOPING, before=seen(Reason.CRASH_LOOPING), now=LATE)
    changed = seen(Reason.CRASH_LOOPING, before=failed, now=LATE, generation=2)
    assert compute(changed) == "InProgress"
    slow = seen(Reason.CRASH_LOOPING, before=seen(Reason.CRASH_LOOPING), now=LATE, generation=2)
    assert compute(slow) == "InProgress"
    assert conditions(slow)["Reconciling"]["lastTransitionTime"] != NOW.isoformat()
    still = seen(Reason.CRASH_LOOPING, before=slow, now=LATE + PROGRESS_DEADLINE, generation=2)
    assert compute(still) == "Failed"


@pytest.mark.parametrize("reason", [*WAITING, *sorted(UNDER_WAY)])
def test_a_resource_that_was_too_late_stays_failed_until_it_is_ready(reason: Reason) -> None:
    """A container that crashes and starts again must not look like progress in between."""
    failed = seen(Reason.CRASH_LOOPING, before=seen(Reason.CRASH_LOOPING), now=LATE)
    assert compute(seen(reason, before=failed, now=LATE + timedelta(seconds=1))) == "Failed"
    assert compute(seen(Reason.READY, before=failed, now=LATE)) == "Current"


def test_a_resource_that_was_corrected_from_outside_is_in_progress_again() -> None:
    before = seen(Reason.AUTHENTICATION_FAILED)
    assert compute(seen(Reason.WORKERS_NOT_READY, before=before)) == "InProgress"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (None, "Current"),
        (Finding(reason=Reason.GROUP_MISSING, message="m"), "InProgress"),
        (Finding(reason=Reason.INVALID_SPEC, message="m"), "Failed"),
    ],
)
def test_an_audit_is_seen_in_the_same_way(problem: Finding | None, expected: str) -> None:
    facts = audit_facts(plan_problem=problem)
    decided = decide_audit_conditions(facts, now=NOW)
    status = render_audit_status(facts, decided, PreviousStatus(status={}, generation=1), NOW)
    assert compute({"metadata": {"generation": 1}, "status": status}) == expected


def test_a_resource_that_was_never_observed_is_in_progress() -> None:
    fresh = {"metadata": {"generation": 1}, "status": {"observedGeneration": -1}}
    assert compute(fresh) == "InProgress"
    assert compute({"metadata": {"generation": 1}}) == "Current"  # why there is a default


@pytest.mark.parametrize("now", [NOW, LATE])
def test_numbers_of_scaling_in_these_conditions_are_no_reason_to_write(now: datetime) -> None:
    def status(number: int) -> dict[str, Any]:
        message = f"more workers do not help: {number} of 9 are ready"
        scaling = Condition(
            type="ScalingActive", status="False", reason="ScalingIneffective", message=message
        )
        ready = Condition(
            type="Ready", status="False", reason="ScalingIneffective", message=message
        )
        early = render_heading([ready, scaling], PreviousStatus(status={}, generation=1), NOW)
        return render_heading([ready, scaling], PreviousStatus(status=early, generation=1), now)

    assert compare(status(3), status(4)) is Difference.NUMBERS


@pytest.mark.parametrize(
    ("row", "reasons"),
    [
        ("failed at once", NEEDS_CHANGE),
        ("in progress, however long", UNDER_WAY | {Reason.SUSPENDED}),
    ],
)
def test_the_page_says_which_reasons_are_failed_at_once_and_which_never(
    row: str, reasons: frozenset[Reason]
) -> None:
    assert documented(row) == set(reasons)


@pytest.mark.parametrize("reason", Reason)
def test_what_stays_as_it_is_does_not_become_stalled_with_time(reason: Reason) -> None:
    if stays_as_it_is(ready_for(reason)):
        early = seen(reason)
        late = seen(reason, before=early, now=LATE + timedelta(hours=1))
        types = {one["type"] for one in late["status"]["conditions"]}
        assert "Stalled" not in types


def test_only_a_problem_that_lasts_changes_with_time() -> None:
    assert stays_as_it_is(ready_for(Reason.READY))
    assert stays_as_it_is(ready_for(Reason.WORKERS_NOT_READY))
    assert not any(stays_as_it_is(ready_for(reason)) for reason in WAITING)


ATTENDED: dict[str, tuple[dict[str, Any], bool]] = {
    "Ready": (seen(Reason.READY)["status"], True),
    "workers that start": (seen(Reason.WORKERS_NOT_READY)["status"], True),
    "a group to come": (seen(Reason.CREATING)["status"], False),
    "trouble": (seen(Reason.REDIS_UNREACHABLE)["status"], False),
    "another generation": (seen(Reason.READY, generation=2)["status"], False),
    "nothing yet": ({}, False),
}


@pytest.mark.parametrize("case", ATTENDED.values(), ids=ATTENDED)
def test_a_status_shows_whether_all_is_done_that_was_asked_for(
    case: tuple[dict[str, Any], bool],
) -> None:
    status, attended = case
    assert is_attended(status, generation=1) is attended


@pytest.mark.parametrize(
    ("group", "shown"), [({"pending": 0}, True), ({"pending": 1}, False), ({}, False)]
)
def test_a_status_shows_whether_nothing_is_pending(group: dict[str, Any], shown: bool) -> None:
    status = {**seen(Reason.READY)["status"], "group": group}
    assert shows_nothing_pending(status, generation=1) is shown
    assert not shows_nothing_pending(status, generation=2)
