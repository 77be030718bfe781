"""The end of a resource: which step comes next, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.policy.group.provisioning import CleanupAction, decide_cleanup, decide_finalizer
from tests.builders import NOW, later

CLEANUPS: dict[str, tuple[dict[str, Any], CleanupAction]] = {
    "with Retain the finalizer goes and the group stays": (
        {"deletes_group": False},
        CleanupAction.LET_GO,
    ),
    "with Delete the group is destroyed first": ({}, CleanupAction.DESTROY),
    "a failure is tried again": (
        {"failure": "down", "now": later(seconds=29)},
        CleanupAction.DESTROY,
    ),
    "the patience ends": ({"failure": "down", "now": later(seconds=30)}, CleanupAction.LET_GO),
    "an operator that comes late tries once": (
        {"now": later(hours=1)},
        CleanupAction.DESTROY,
    ),
}


@pytest.mark.parametrize("case", CLEANUPS.values(), ids=CLEANUPS)
def test_cleanup(case: tuple[dict[str, Any], CleanupAction]) -> None:
    changes, action = case
    usual = {"deletes_group": True, "failure": None, "now": NOW}
    decision = decide_cleanup(deleted_at=NOW, **{**usual, **changes})
    assert decision.action is action


def test_what_is_left_behind_is_reported_with_its_cause() -> None:
    decision = decide_cleanup(
        deletes_group=True,
        deleted_at=NOW,
        failure="no answer",
        now=later(seconds=31),
    )
    assert decision.reason == "GroupNotDestroyed"
    assert decision.message.endswith("stays in Redis (remove it with XGROUP DESTROY): no answer")


@pytest.mark.parametrize(
    ("deletes", "has", "wanted"),
    [(True, False, True), (False, True, False), (True, True, None), (False, False, None)],
)
def test_only_delete_needs_a_finalizer(deletes: bool, has: bool, wanted: bool | None) -> None:
    assert decide_finalizer(deletes_group=deletes, has_finalizer=has) is wanted
