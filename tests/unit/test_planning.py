"""Which resource acts, what is missing in Redis, and how many workers there should be."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import OWNERSHIP_LIFETIME, GroupState, RememberedPosition
from pelops.domain.stream_observation import RetryObservation
from pelops.policy.group.provisioning import (
    MissingPart,
    decide_conflict,
    decide_start,
    needs_offer_stream,
    needs_retry_stream,
    plan_provisioning,
)
from pelops.policy.scaling.decision import decide_fixed
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
