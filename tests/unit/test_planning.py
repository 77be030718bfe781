"""Which resource acts, what is missing in Redis, the number of workers, and how a resource ends."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Fixed(NamedTuple):
    replicas: int | None
    reason: str
    spec: dict[str, Any]
    seen: dict[str, Any] | None = None


SCALING: dict[str, Fixed] = {
    "a target without scaling keeps its replicas": Fixed(None, "ScalingDisabled", {}),
    "a template without scaling runs spec.replicas": Fixed(
        3, "Manual", {"template": TEMPLATE, "replicas": 3}
    ),
    "mode Manual says the number for a target": Fixed(
        4, "Manual", {"scaling": {"mode": "Manual"}, "replicas": 4}
    ),
    "zero is a number": Fixed(0, "Manual", {"scaling": {"mode": "Manual"}, "replicas": 0}),
    "mode Disabled leaves a template alone": Fixed(
        None, "ScalingDisabled", {"template": TEMPLATE, "scaling": {"mode": "Disabled"}}
    ),
    "an autoscaler wins over spec.replicas": Fixed(
        None, "ScaledByAutoscaler", {"template": TEMPLATE, "replicas": 3}, {"autoscaler": "orders"}
    ),
    "an autoscaler wins over mode Auto": Fixed(
        None, "ScaledByAutoscaler", {"scaling": {"mode": "Auto"}}, {"autoscaler": "orders"}
    ),
}


@pytest.mark.parametrize("case", SCALING.values(), ids=SCALING)
def test_scaling_without_a_backlog(case: Fixed) -> None:
    decision = decide_fixed(resource(**case.spec).spec, workload(**(case.seen or {})))
    assert decision is not None
    assert (decision.replicas, decision.reason) == (case.replicas, case.reason)
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


class Planned(NamedTuple):
    words: str  # a part of the message
    missing: list[MissingPart]
    was_created: bool
    seen: dict[str, Any]


def planned(
    words: str, missing: list[MissingPart], *, was_created: bool = True, **seen: Any
) -> Planned:
    return Planned(words, missing, was_created, seen)


PLANS: dict[str, Planned] = {
    "a complete group missing nothing": planned("nothing is missing", []),
    "a group of nobody is taken into hold": planned(
        "create the ownership record", [MissingPart.OWNERSHIP], ownership=None
    ),
    "a hold of which half is used is renewed": planned(
        "create the ownership record",
        [MissingPart.OWNERSHIP],
        ownership=ownership(owned_until=NOW + OWNERSHIP_LIFETIME / 2 - OWNERSHIP_LIFETIME / 600),
    ),
    "a fresh hold is left alone": planned(
        "nothing", [], ownership=ownership(owned_until=NOW + OWNERSHIP_LIFETIME / 2)
    ),
    "a hold beyond a clock that went back is renewed": planned(
        "create the ownership record",
        [MissingPart.OWNERSHIP],
        ownership=ownership(owned_until=NOW + 3 * OWNERSHIP_LIFETIME),
    ),
    "another's hold is to be taken over": planned(
        "create the ownership record",
        [MissingPart.OWNERSHIP],
        ownership=ownership(owner=owner(uid="other", cluster="c2")),
    ),
    "a missing ledger is made": planned("ledger", [MissingPart.LEDGER], ledger_exists=False),
    "missing dead letters are made": planned(
        "dead-letter stream", [MissingPart.DEAD_LETTERS], dead_letter_exists=False
    ),
    "a lost group is created at the beginning": planned(
        "create the group, which was deleted from Redis, again at 0-0",
        [MissingPart.GROUP],
        group=None,
    ),
    "a lost group is created anew where it loses nothing": planned(
        "again where nothing is skipped, at 7-0 or before",
        [MissingPart.GROUP],
        group=None,
        state=GroupState(seen=remembered()),
    ),
    "a missing retry stream is made": planned(
        "create the retry stream", [MissingPart.RETRY], retry=RetryObservation(exists=False)
    ),
    "a retry stream that is there is left alone": planned(
        "nothing", [], retry=RetryObservation(exists=True)
    ),
    "a missing offer stream is made": planned(
        "create the offer stream", [MissingPart.HANDOVER], has_offer_stream=False
    ),
    "a new group is created where it was asked for": planned(
        "create the group at the end of the stream",
        [MissingPart.GROUP],
        was_created=False,
        group=None,
    ),
}


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)
def test_provisioning(case: Planned) -> None:
    spec = resource(start_from="End").spec
    plan = plan_provisioning(spec, stream(**case.seen), owner(), was_created=case.was_created)
    assert list(plan.missing) == case.missing
    assert case.words in plan.message


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
