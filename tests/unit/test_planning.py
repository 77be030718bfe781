"""Which resource acts, what is missing in Redis, the number of workers, and how a resource ends."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import OWNERSHIP_LIFETIME, GroupState, RememberedPosition
from pelops.domain.stream_observation import RetryObservation
from pelops.policy.group.provisioning import (
    CleanupAction,
    MissingPart,
    StreamUser,
    decide_cleanup,
    decide_conflict,
    decide_dead_letters_in_use,
    decide_finalizer,
    decide_start,
    needs_offer_stream,
    needs_retry_stream,
    plan_provisioning,
)
from pelops.policy.scaling.decision import decide_fixed
from pelops.policy.status.reasons import Reason
from tests.builders import (
    NOW,
    TEMPLATE,
    empty_redis,
    later,
    owner,
    ownership,
    resource,
    stream,
    workload,
)

SCALING: dict[str, tuple[dict[str, Any], dict[str, Any], int | None, str]] = {
    "a target without scaling keeps its replicas": ({}, {}, None, "ScalingDisabled"),
    "a template without scaling runs spec.replicas": (
        {"template": TEMPLATE, "replicas": 3},
        {},
        3,
        "Manual",
    ),
    "mode Manual says the number for a target": (
        {"scaling": {"mode": "Manual"}, "replicas": 4},
        {},
        4,
        "Manual",
    ),
    "zero is a number": ({"scaling": {"mode": "Manual"}, "replicas": 0}, {}, 0, "Manual"),
    "mode Disabled leaves a template alone": (
        {"template": TEMPLATE, "scaling": {"mode": "Disabled"}},
        {},
        None,
        "ScalingDisabled",
    ),
    "an autoscaler wins over spec.replicas": (
        {"template": TEMPLATE, "replicas": 3},
        {"autoscaler": "orders"},
        None,
        "ScaledByAutoscaler",
    ),
    "an autoscaler wins over mode Auto": (
        {"scaling": {"mode": "Auto"}},
        {"autoscaler": "orders"},
        None,
        "ScaledByAutoscaler",
    ),
}


@pytest.mark.parametrize("case", SCALING.values(), ids=SCALING)
def test_scaling(case: tuple[dict[str, Any], dict[str, Any], int | None, str]) -> None:
    spec, seen, replicas, reason = case
    decision = decide_fixed(resource(**spec).spec, workload(**seen))
    assert decision is not None
    assert (decision.replicas, decision.reason) == (replicas, reason)
    assert decision.message


def remembered() -> RememberedPosition:
    """A group that was seen at 7-0."""
    return RememberedPosition(
        last_delivered_id=EntryId(7),
        lowest_pending=None,
        entries_added=7,
        last_generated_id=EntryId(7),
        at=NOW,
    )


PLANS: dict[str, tuple[dict[str, Any], bool, tuple[MissingPart, ...], str]] = {
    "a complete group missing nothing": ({}, True, (), "nothing is missing"),
    "a group of nobody is taken into hold": (
        {"ownership": None},
        True,
        (MissingPart.OWNERSHIP,),
        "create the ownership record",
    ),
    "a hold of which half is used is renewed": (
        {
            "ownership": ownership(
                owned_until=NOW + OWNERSHIP_LIFETIME / 2 - OWNERSHIP_LIFETIME / 600
            )
        },
        True,
        (MissingPart.OWNERSHIP,),
        "create the ownership record",
    ),
    "a fresh hold is left alone": (
        {"ownership": ownership(owned_until=NOW + OWNERSHIP_LIFETIME / 2)},
        True,
        (),
        "nothing",
    ),
    "a hold beyond a clock that went back is renewed": (
        {"ownership": ownership(owned_until=NOW + 3 * OWNERSHIP_LIFETIME)},
        True,
        (MissingPart.OWNERSHIP,),
        "create the ownership record",
    ),
    "another's hold is to be taken over": (
        {"ownership": ownership(owner=owner(uid="other", cluster="c2"))},
        True,
        (MissingPart.OWNERSHIP,),
        "create the ownership record",
    ),
    "a missing ledger is made": ({"ledger_exists": False}, True, (MissingPart.LEDGER,), "ledger"),
    "missing dead letters are made": (
        {"dead_letter_exists": False},
        True,
        (MissingPart.DEAD_LETTERS,),
        "dead-letter stream",
    ),
    "a lost group is created at the beginning": (
        {"group": None},
        True,
        (MissingPart.GROUP,),
        "create the group, which was deleted from Redis, again at 0-0",
    ),
    "a lost group is created anew where it loses nothing": (
        {"group": None, "state": GroupState(seen=remembered())},
        True,
        (MissingPart.GROUP,),
        "again where nothing is skipped, at 7-0 or before",
    ),
    "a missing retry stream is made": (
        {"retry": RetryObservation(exists=False)},
        True,
        (MissingPart.RETRY,),
        "create the retry stream",
    ),
    "a retry stream that is there is left alone": (
        {"retry": RetryObservation(exists=True)},
        True,
        (),
        "nothing",
    ),
    "a missing offer stream is made": (
        {"has_offer_stream": False},
        True,
        (MissingPart.HANDOVER,),
        "create the offer stream",
    ),
    "a new group is created where it was asked for": (
        {"group": None},
        False,
        (MissingPart.GROUP,),
        "create the group at the end of the stream",
    ),
}


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)
def test_provisioning(case: tuple[dict[str, Any], bool, tuple[MissingPart, ...], str]) -> None:
    seen, existed, missing, words = case
    spec = resource(start_from="End").spec
    plan = plan_provisioning(spec, stream(**seen), owner(), was_created=existed)
    assert plan.missing == missing
    assert words in plan.message


def test_in_an_empty_redis_everything_is_missing() -> None:
    empty = empty_redis(retry=RetryObservation(exists=False), has_offer_stream=False)
    plan = plan_provisioning(resource().spec, empty, owner(), was_created=False)
    assert plan.missing == tuple(MissingPart)


@pytest.mark.parametrize(
    ("recovery", "needs"),
    [
        ({"strategy": "Disabled"}, (False, False)),
        ({"strategy": "Requeue"}, (False, False)),
        ({"strategy": "RetryStream"}, (True, False)),
        ({"strategy": "Release"}, (False, True)),
    ],
)
def test_streams_beside_the_stream_are_made_for_who_uses_them(
    recovery: dict[str, Any], needs: tuple[bool, bool]
) -> None:
    spec = resource(recovery=recovery).spec
    assert (needs_retry_stream(spec), needs_offer_stream(spec)) == needs


@pytest.mark.parametrize(
    ("start_from", "existed", "start"),
    [
        ("Beginning", False, EntryId.MIN),
        ("End", False, "$"),
        ("7-3", False, EntryId(7, 3)),
        ("End", True, EntryId.MIN),
        ("7-3", True, EntryId.MIN),
    ],
)
def test_a_start_is_for_the_very_first_creation(
    start_from: str, existed: bool, start: object
) -> None:
    assert decide_start(start_from, was_created=existed) == start


def test_a_conflict_names_the_other_and_its_cluster() -> None:
    theirs = ownership(owner=owner(uid="old", cluster="c2", name="orders", created=later(days=-1)))
    finding = decide_conflict(theirs, owner(), NOW)
    assert finding is not None
    assert "StreamConsumerGroup shop/orders of cluster c2" in finding.message
    assert finding.is_terminal


def test_a_recreated_resource_does_not_wait_for_its_predecessors_ownership() -> None:
    former = ownership(owner=owner(uid="former", created=later(days=-1)))
    assert decide_conflict(former, owner(), NOW) is None


# --- The end of a resource: which step comes next, and when it gives up


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


# --- A dead-letter stream that another resource names as its stream


OWN = StreamUser(created=NOW, uid="b", name="shop/mine")
OLDER = StreamUser(created=later(seconds=-1), uid="c", name="pay/older")
SAME_TIME = StreamUser(created=NOW, uid="a", name="pay/of-the-same-second")
YOUNGER = StreamUser(created=later(seconds=1), uid="a", name="pay/younger")


@pytest.mark.parametrize("other", [OLDER, SAME_TIME, YOUNGER], ids=lambda one: one.name)
def test_the_stream_of_any_resource_is_not_adopted(other: StreamUser) -> None:
    found = decide_dead_letters_in_use(OWN, [other], key="pay", is_adopted=False)
    assert found is not None
    assert (found.reason, found.is_terminal) == (Reason.DEAD_LETTER_STREAM_IN_USE, True)
    assert other.name in found.message
    assert "pay" in found.message


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([OLDER], OLDER.name),
        ([SAME_TIME], SAME_TIME.name),
        ([YOUNGER], ""),
        ([YOUNGER, OLDER], OLDER.name),
        ([], ""),
    ],
)
def test_an_adopted_resource_conflicts_only_with_older_ones(
    others: list[StreamUser], named: str
) -> None:
    found = decide_dead_letters_in_use(OWN, others, key="pay", is_adopted=True)
    assert (found is None) == (not named)
    assert found is None or named in found.message


def test_without_another_resource_nothing_is_refused() -> None:
    assert decide_dead_letters_in_use(OWN, [], key="pay", is_adopted=False) is None
