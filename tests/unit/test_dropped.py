"""Consumers that were deleted with pending entries, and those that left as they should."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pelops.domain.records.state import GroupState, Totals
from pelops.domain.recovery import OwnerMatch
from pelops.domain.stream_observation import (
    ConsumerObservation,
    RetryObservation,
    StreamObservation,
)
from pelops.domain.workload import ContainerObservation
from pelops.policy.group.losses import DroppedEntries, Holders, find_dropped, has_left
from tests.builders import NOW, group, later, pod, stream


def consumer(name: str, pending: int, idle_s: float = 60) -> ConsumerObservation:
    return ConsumerObservation(name=name, pending=pending, idle=timedelta(seconds=idle_s))


def look(*consumers: ConsumerObservation, **changes: Any) -> StreamObservation:
    """A group of 20 entries that were read, with these consumers."""
    usual: dict[str, Any] = {
        "entries_added": 20,
        "group": group(pending=sum(one.pending for one in consumers), entries_read=20),
        "consumers": consumers,
    }
    return stream(**{**usual, **changes})


JANE, MARY = consumer("jane", 11), consumer("mary", 2)
BEFORE = look(JANE, MARY, server_time=later(seconds=-5))
READ_FIVE = group(pending=7, entries_read=25)
MOVED = GroupState(totals=Totals(requeued=9, dead_lettered=2))
# What was found after jane had 11 entries pending and mary 2, and how many jane's end dropped.
FOUND: dict[str, tuple[StreamObservation, int | None]] = {
    "nothing has changed": (look(JANE, MARY), None),
    "she acknowledged all and stays": (look(consumer("jane", 0), MARY), None),
    "she is gone": (look(MARY), 11),
    "she is gone, and mary acknowledged": (look(consumer("mary", 0)), 11),
    "mary was given five more": (look(consumer("mary", 7), group=READ_FIVE, entries_added=25), 11),
    "mary claimed all of it": (look(consumer("mary", 13)), None),
    "mary claimed a part of it": (look(consumer("mary", 6)), 7),
    "the operator moved all of it": (look(MARY, state=MOVED), None),
    "the operator moved something in one of two streams": (
        look(MARY, state=MOVED, retry=RetryObservation(exists=True)),
        11,
    ),
    "the count of entries read is lost": (
        look(MARY, group=group(pending=2, entries_read=None)),
        11,
    ),
    "the operator made the group anew": (look(MARY, state=GroupState(created_at=NOW)), None),
    "the server has an older state": (look(MARY, entries_added=19), None),
    "the consumers could not be listed": (look(MARY, consumers=None), None),
    "there is no group": (look(MARY, group=None), None),
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_what_the_end_of_a_consumer_drops_at_most(
    case: tuple[StreamObservation, int | None],
) -> None:
    found, at_most = case
    dropped = find_dropped(Holders.of(BEFORE), found, has_left=lambda _: False)
    assert (None if dropped is None else dropped.at_most) == at_most
    if dropped is not None:
        assert dropped == DroppedEntries(
            consumers={"jane": 11},
            at_most=dropped.at_most,
            is_quiet=True,
            observed=later(seconds=-5),
        )


def test_a_consumer_that_was_busy_may_have_finished() -> None:
    busy = look(consumer("jane", 11, idle_s=2), server_time=later(seconds=-5))
    dropped = find_dropped(Holders.of(busy), look(), has_left=lambda _: False)
    assert dropped is not None
    assert not dropped.is_quiet


def test_a_worker_that_left_acknowledged_before() -> None:
    assert (
        find_dropped(Holders.of(BEFORE), look(MARY), has_left=lambda name: name == "jane") is None
    )


def test_of_the_first_observation_nothing_is_reported() -> None:
    assert find_dropped(None, look(), has_left=lambda _: False) is None
    assert Holders.of(look(consumers=None)) is None


RUNNING = ContainerObservation(name="worker", state="running", started=later(minutes=-5))
ALIVE = pod(containers=(RUNNING,))
LEFT: dict[str, tuple[OwnerMatch, bool]] = {
    "no pod": (OwnerMatch(), False),
    "a pod that goes on": (OwnerMatch(pods=(ALIVE,)), False),
    "a pod that is being deleted": (OwnerMatch(pods=(replace(ALIVE, is_deleting=True),)), True),
    "a pod that ended": (OwnerMatch(pods=(replace(ALIVE, phase="Succeeded"),)), True),
    "a container that ended": (
        OwnerMatch(pods=(replace(ALIVE, containers=(replace(RUNNING, state="terminated"),)),)),
        True,
    ),
    "a container that began anew": (
        OwnerMatch(pods=(replace(ALIVE, containers=(replace(RUNNING, started=NOW),)),)),
        True,
    ),
    "a container that began anew by a clock that is behind": (
        OwnerMatch(
            pods=(replace(ALIVE, containers=(replace(RUNNING, started=later(seconds=-10)),)),)
        ),
        True,
    ),
    "a pod that vanished": (OwnerMatch(vanished_uid="3f2b", is_by_uid=True), True),
    "a pod of somebody else": (OwnerMatch(is_strangers=True), True),
}


@pytest.mark.parametrize("case", LEFT.values(), ids=LEFT)
def test_whether_the_worker_behind_a_consumer_has_left(case: tuple[OwnerMatch, bool]) -> None:
    match, expected = case
    assert has_left(match, later(seconds=-5)) == expected
