"""The status that people and `kubectl get` read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pelops.api.group.scaling import ScalingMode
from pelops.controller.group.group_status import SHOWN, compare, render_status
from pelops.controller.runtime.kind import Difference, PreviousStatus
from pelops.controller.runtime.passes import render_refusal
from pelops.domain.condition import Condition, Finding, render_time
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState, ScanReport, Totals
from pelops.policy.scaling.decision import ScalingDecision, decide_fixed
from pelops.policy.scaling.sharing import Claim, decide_sharing
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.facts import Facts
from pelops.policy.status.reasons import Reason
from tests.builders import (
    NOW,
    TEMPLATE,
    empty_redis,
    facts,
    group,
    later,
    owner,
    ownership,
    resource,
    stream,
    workload,
)

FRESH = PreviousStatus(status={}, generation=3)
READY = [Condition(type="Ready", status="True", reason="Ready", message="well")]


def rendered(seen: Facts, previous: PreviousStatus = FRESH) -> dict[str, Any]:
    return render_status(seen, READY, previous, NOW)


def owing(**changes: Any) -> Facts:
    return facts(stream=stream(group=group(**changes)))


def remembering(**changes: Any) -> Facts:
    return facts(stream=stream(state=GroupState(**changes)))


def test_a_settled_resource_reports_everything() -> None:
    assert rendered(facts()) == {
        "observedGeneration": 3,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "well",
                "observedGeneration": 3,
                "lastTransitionTime": "2026-05-04T03:02:01Z",
            }
        ],
        "replicas": 2,
        "readyReplicas": 2,
        "desiredReplicas": 2,
        "selector": "app=orders",
        "group": {
            "name": "order-processing",
            "lastDeliveredId": "1700000000000-0",
            "pending": 0,
            "lag": 0,
            "lagKnown": True,
            "consumers": 1,
        },
        "stream": {
            "length": 3,
            "entriesAdded": 3,
            "lastGeneratedId": "1700000000000-0",
        },
        "deadLetter": {"stream": "{orders:events}:order-processing:dlq", "length": 0},
        "recovery": {
            "requeued": 0,
            "released": 0,
            "deadLettered": 0,
            "payloadGone": 0,
            "waiting": 0,
            "offered": 0,
            "unmovable": 0,
        },
        "redis": {"topology": "Standalone", "version": "8.6.0"},
        "summary": {
            "lag": "0",
            "replicas": "2/2",
            "recovered": 0,
            "redis": "8.6.0 Standalone",
        },
    }


def test_the_totals_of_recovery_come_from_the_group_state() -> None:
    totals = Totals(requeued=5, released=2, dead_lettered=1, payload_gone=3, trimmed=9)
    status = rendered(remembering(totals=totals))
    reported = status["recovery"]
    assert (reported["requeued"], reported["released"]) == (5, 2)
    assert (reported["deadLettered"], reported["payloadGone"]) == (1, 3)
    assert status["summary"]["recovered"] == 7


def test_unrecoverable_entries_are_reported_while_recovery_is_enabled() -> None:
    report = ScanReport(waiting=4, unmovable=2, unmatched=("w-2", "w-1"))
    asked = rendered(remembering(report=report))["recovery"]
    assert (asked["waiting"], asked["unmovable"]) == (4, 2)
    assert asked["unmatchedConsumers"] == ["w-1", "w-2"]
    off = replace(remembering(report=report), resource=resource(recovery={"strategy": "Disabled"}))
    assert not {"waiting", "unmovable", "unmatchedConsumers"} & rendered(off)["recovery"].keys()


def test_the_stuck_entries_that_the_last_scan_left_are_one_number() -> None:
    report = ScanReport(waiting=4, offered=3, unmovable=2, stuck=10)
    scanned = remembering(report=report, scanned_at=NOW)
    recovery = rendered(scanned)["recovery"]
    assert (recovery["stuck"], recovery["lastScanTime"]) == (10, render_time(NOW))
    assert "stuck" not in rendered(remembering(report=ScanReport()))["recovery"], "no scan was made"


@pytest.mark.parametrize(
    ("reason", "recovery"),
    [(Reason.REQUEUE_WOULD_DUPLICATE, {}), ("", {"strategy": "Disabled"})],
    ids=["scans recover nothing", "recovery is disabled"],
)
def test_how_many_are_stuck_is_said_also_where_nothing_is_recovered(
    reason: str, recovery: dict[str, Any]
) -> None:
    scanned = remembering(report=ScanReport(stuck=4, reason=reason), scanned_at=NOW)
    asked = replace(scanned, resource=resource(recovery=recovery))
    assert rendered(asked)["recovery"]["stuck"] == 4


def test_the_time_of_a_scan_alone_is_never_written() -> None:
    before = rendered(remembering(scanned_at=NOW))
    after = rendered(remembering(scanned_at=later(hours=1)))
    assert before != after
    assert compare(after, before) is Difference.NONE
    assert compare({**after, "readyReplicas": 7}, before) is Difference.FACTS


def test_totals_beyond_all_memory_are_still_a_status_that_can_be_written() -> None:
    status = rendered(remembering(totals=Totals(requeued=2**62, released=2**62)))
    assert status["summary"]["recovered"] == status["recovery"]["requeued"] == 2**53 - 1


def test_names_of_consumers_are_reported_in_a_form_that_json_holds() -> None:
    names = ("\udcff", "x" * 9000, "", *(f"w-{number}" for number in range(9)))
    reported = rendered(remembering(report=ScanReport(unmatched=names)))["recovery"]
    assert len(reported["unmatchedConsumers"]) == 5
    assert reported["unmatchedConsumers"][0] == "?"
    long = remembering(report=ScanReport(unmatched=("x" * 9000,)))
    (name,) = rendered(long)["recovery"]["unmatchedConsumers"]
    assert len(name) == 256


def test_an_unknown_lag_is_never_a_number() -> None:
    status = rendered(owing(lag=None))
    assert "lag" not in status["group"]
    assert status["group"]["lagKnown"] is False
    assert status["summary"]["lag"] == "unknown"


def test_a_lower_bound_of_the_lag_is_reported_as_such() -> None:
    status = rendered(owing(lag=None, at_least=312))
    assert (status["group"]["lag"], status["group"]["lagKnown"]) == (312, False)
    assert status["summary"]["lag"] == ">=312"


def test_a_huge_lag_is_capped_at_the_json_limit() -> None:
    assert rendered(owing(lag=2**62))["group"]["lag"] == 2**53 - 1


def test_the_oldest_pending_entry_reports_since_when() -> None:
    group_status = rendered(owing(pending=2, lowest_pending=EntryId(1700000000123)))["group"]
    assert group_status["oldestPendingTime"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("number", [int(later(seconds=5).timestamp() * 1000), 2**64 - 1])
def test_an_entry_id_that_is_no_past_time_gives_no_pending_time(number: int) -> None:
    status = rendered(owing(pending=1, lowest_pending=EntryId(number)))
    assert "oldestPendingTime" not in status["group"]


def test_what_cannot_be_seen_is_left_out() -> None:
    seen = facts(stream=None, keys=None, server_version=None, topology=None)
    status = rendered(seen)
    assert not {"stream", "deadLetter", "redis", "recovery"} & status.keys()
    assert status["summary"] == {"replicas": "2/2"}


def test_a_lost_group_is_remembered_by_its_position() -> None:
    before = PreviousStatus(status=rendered(facts()), generation=3)
    lost = rendered(facts(stream=empty_redis()), before)
    assert lost["group"]["lastDeliveredId"] == "1700000000000-0"
    assert "pending" not in lost["group"]


def test_the_status_of_a_conflict_names_the_owner_of_the_group() -> None:
    theirs = stream(ownership=ownership(owner=owner(uid="other", namespace="store", name="old")))
    conflict = Finding(reason="Conflict", message="older")
    assert rendered(facts(stream=theirs, redis_problem=conflict))["group"]["ownedBy"] == "store/old"
    assert "ownedBy" not in rendered(facts(stream=theirs))["group"]


def test_a_written_name_of_any_length_does_not_spoil_the_status() -> None:
    theirs = stream(ownership=ownership(owner=owner(uid="other", name="x" * 9000)))
    conflict = Finding(reason="Conflict", message="older")
    status = rendered(facts(stream=theirs, redis_problem=conflict))
    assert len(status["group"]["ownedBy"]) == 1024


def test_the_wanted_replicas_are_those_decided_else_those_of_the_target() -> None:
    asked, seen = resource(template=TEMPLATE, replicas=5), workload(wished=2)
    decided = facts(resource=asked, workload=seen, scaling=decide_fixed(asked.spec, seen))
    assert rendered(decided)["desiredReplicas"] == 5
    assert rendered(facts(workload=seen))["desiredReplicas"] == 2


def test_without_a_decision_the_desired_replicas_of_the_status_stay() -> None:
    seen = facts(resource=resource(scaling={"mode": "Auto"}), scaling=None)
    reported = PreviousStatus(status={"desiredReplicas": 7}, generation=3)
    assert rendered(seen, reported)["desiredReplicas"] == 7
    assert rendered(seen)["desiredReplicas"] == 2, "the replicas of the target, until then"


def test_a_refused_spec_keeps_what_was_known() -> None:
    before = PreviousStatus(status=rendered(facts()), generation=4)
    refusal = [Condition(type="Ready", status="False", reason="InvalidSpec", message="no")]
    status = render_refusal(refusal, before, NOW)
    assert status["observedGeneration"] == 4
    assert [(c["type"], c["reason"]) for c in status["conditions"]] == [
        ("Ready", "InvalidSpec"),
        ("Stalled", "InvalidSpec"),
    ]
    assert status["group"] == before.status["group"]


BASE = rendered(facts())

# What is written rarely.
NUMBERS: dict[str, dict[str, Any]] = {
    "an entry was added": rendered(owing(lag=1)),
    "an entry was delivered": rendered(
        owing(pending=1, last_delivered_id=EntryId(9), lowest_pending=EntryId(9))
    ),
    "an entry was given up": rendered(facts(stream=stream(dead_letters=1))),
    "an entry was requeued": rendered(remembering(totals=Totals(requeued=1))),
    "an entry was dead-lettered, one released, one found gone": rendered(
        remembering(totals=Totals(released=1, dead_lettered=1, payload_gone=1))
    ),
    "entries wait for their turn": rendered(remembering(report=ScanReport(waiting=3, unmovable=1))),
    "the lag was lost": rendered(owing(lag=None)),
    "another pod came": rendered(facts(workload=workload(current=5))),
}
# What is written at once.
FACTS: dict[str, dict[str, Any]] = {
    "a consumer matches no pod": rendered(remembering(report=ScanReport(unmatched=("w-1",)))),
    "a worker became ready": rendered(facts(workload=workload(ready=1))),
    "the server was upgraded": rendered(facts(server_version="8.8.0")),
    "there is no status yet": {},
}


@pytest.mark.parametrize("name", ["the same facts", *NUMBERS, *FACTS])
def test_a_difference_is_as_urgent_as_it_deserves(name: str) -> None:
    other = {"the same facts": BASE, **NUMBERS, **FACTS}[name]
    urgency = Difference.NUMBERS if name in NUMBERS else Difference.FACTS
    assert compare(other, BASE) is (Difference.NONE if other is BASE else urgency)


def scaled(message: str, reason: Reason = Reason.SCALED, **changes: Any) -> dict[str, Any]:
    """The status while scaling reports this message, all conditions included."""
    decision = ScalingDecision(replicas=2, reason=reason, message=message)
    seen = facts(resource=resource(scaling={"mode": "Auto"}), scaling=decision, **changes)
    return render_status(seen, decide_conditions(seen), FRESH, NOW)


STUCK = Reason.SCALING_INEFFECTIVE  # Ready repeats it
CONFLICT = Finding(reason="Conflict", message="of another")

SCALED: dict[str, tuple[dict[str, Any], dict[str, Any], Difference]] = {
    "the numbers that decided": (scaled("7 owed"), scaled("8 owed"), Difference.NUMBERS),
    "the numbers of a problem that Ready repeats": (
        scaled("7 owed", STUCK),
        scaled("8 owed", STUCK),
        Difference.NUMBERS,
    ),
    "the reason": (scaled("7 owed"), scaled("7 owed", Reason.LIMITED), Difference.FACTS),
    "a problem of another condition": (
        scaled("of another"),
        scaled("of another", workload_problem=CONFLICT),
        Difference.FACTS,
    ),
}


@pytest.mark.parametrize("case", SCALED.values(), ids=SCALED)
def test_what_changed_in_scaling_is_as_urgent_as_it_deserves(
    case: tuple[dict[str, Any], dict[str, Any], Difference],
) -> None:
    before, after, difference = case
    assert compare(after, before) is difference


def sharing(demands: dict[str, float | None] | None, *names: str) -> Facts:
    """A resource that follows the first of these; all others follow it as well."""
    own = Claim(name="order-processing", uid="uid-1", mode=ScalingMode.FOLLOW)
    modes = [ScalingMode.AUTO, *(len(names) - 1) * [ScalingMode.FOLLOW]]
    others = (Claim(name=n, uid=n, mode=m) for n, m in zip(names, modes, strict=True))
    return facts(sharing=decide_sharing(own, others), demands=demands)


def test_the_status_shows_the_leader_and_the_demand_of_each_group() -> None:
    asked = {"order-processing": 1.254, "lead": 3.0, "aaa": None}
    assert rendered(sharing(asked, "lead", "aaa"))["scaling"] == {
        "leader": "lead",
        "demand": "1.25",
        "sharedWith": [
            {"name": "lead", "mode": "Auto", "demand": "3"},
            {"name": "aaa", "mode": "Follow"},
        ],
    }
    assert "scaling" not in rendered(facts())


def test_a_replica_that_does_not_decide_repeats_what_each_group_asked_for() -> None:
    before = rendered(sharing({"order-processing": 1.0, "lead": 3.0}, "lead"))
    previous = PreviousStatus(status=before, generation=3)
    again = rendered(sharing(None, "lead", "new"), previous)["scaling"]
    assert again["demand"] == "1"
    assert again["sharedWith"] == [
        {"name": "lead", "mode": "Auto", "demand": "3"},
        {"name": "new", "mode": "Follow"},
    ]


def test_of_very_many_that_share_a_workload_some_are_shown() -> None:
    names = [f"n{number:04}" for number in range(5_000)]
    shown = rendered(sharing(dict.fromkeys(names, 1.0), *reversed(names)))["scaling"]["sharedWith"]
    assert [one["name"] for one in shown] == [names[-1], *names[: SHOWN - 1]]


SHARED: dict[str, tuple[Facts, Difference]] = {
    "what the others ask for": (sharing({"lead": 4.0}, "lead"), Difference.NUMBERS),
    "what it asks for": (sharing({"order-processing": 4.0}, "lead"), Difference.NUMBERS),
    "another one leads": (sharing(None, "other"), Difference.FACTS),
    "one more shares": (sharing(None, "lead", "more"), Difference.FACTS),
    "nobody shares any more": (facts(), Difference.FACTS),
}


@pytest.mark.parametrize("case", SHARED.values(), ids=SHARED)
def test_changes_of_demand_are_numbers_and_changes_of_members_are_facts(
    case: tuple[Facts, Difference],
) -> None:
    seen, difference = case
    assert compare(rendered(seen), rendered(sharing({"lead": 3.0}, "lead"))) is difference
