"""When a status is worth a write: numbers alone are reported rarely, everything else at once."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pelops.controller.group.group_status import compare, render_status
from pelops.controller.runtime.kind import Difference, PreviousStatus
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.facts import Facts
from tests.builders import NOW
from tests.properties.strategies import facts

# By the schema of status: what moves with every entry that is added, delivered or acknowledged.
MOVING = {
    "group": {"lastDeliveredId", "pending", "lag", "lagKnown", "oldestPendingTime", "consumers"},
    "stream": {"length", "entriesAdded", "lastGeneratedId"},
    "deadLetter": {"length"},
    "recovery": {
        *("requeued", "released", "deadLettered", "payloadGone"),
        *("waiting", "offered", "unmovable"),
    },
    "summary": {"lag", "recovered"},
}
PREVIOUS = PreviousStatus(status={}, generation=1)


def rendered(seen: Facts) -> dict[str, Any]:
    status = render_status(seen, decide_conditions(seen), PREVIOUS, NOW)
    # The time of the last scan alone causes no write.
    status.get("recovery", {}).pop("lastScanTime", None)
    return status


STATUS = facts().map(rendered)


def settled(status: dict[str, Any]) -> dict[str, Any]:
    """The status without what moves, and without the reason for a number of replicas."""
    kept = copy.deepcopy(status)
    kept.pop("replicas", None)
    reasons = [one["message"] for one in kept["conditions"] if one["type"] == "ScalingActive"]
    for one in kept["conditions"]:
        repeats = any(one["message"].endswith(reason) for reason in reasons if reason)
        if repeats and one["type"] in {"ScalingActive", "Ready", "Reconciling", "Stalled"}:
            one["message"] = ""
    for part, fields in MOVING.items():
        rest = {k: v for k, v in kept.pop(part, {}).items() if k not in fields}
        if rest:
            kept[part] = rest
    return kept


@given(STATUS, STATUS)
def test_only_numbers_that_always_move_may_wait(one: dict[str, Any], other: dict[str, Any]) -> None:
    difference = compare(one, other)
    assert (difference is Difference.NONE) == (one == other)
    assert (difference is Difference.FACTS) == (settled(one) != settled(other))
    assert compare(other, one) is difference


@given(STATUS, st.data())
def test_one_field_more_or_less_is_seen(status: dict[str, Any], data: st.DataObject) -> None:
    live = copy.deepcopy(status)
    part = data.draw(st.sampled_from(sorted(live)))
    if not isinstance(live[part], dict):
        del live[part]
        moves = part == "replicas"
        assert compare(status, live) is (Difference.NUMBERS if moves else Difference.FACTS)
        return
    field = data.draw(st.sampled_from(sorted(live[part])))
    del live[part][field]
    recovers = field in MOVING.get(part, set())
    assert compare(status, live) is (Difference.NUMBERS if recovers else Difference.FACTS)


@given(facts(), facts())
def test_that_a_group_once_existed_is_not_forgotten(before: Facts, after: Facts) -> None:
    first = rendered(before)
    second = render_status(
        after, decide_conditions(after), PreviousStatus(status=first, generation=1), NOW
    )
    if "lastDeliveredId" in first["group"]:
        assert "lastDeliveredId" in second["group"]
