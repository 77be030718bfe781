"""Which pods a scale-in should take, and what must be written so that it takes those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from pelops.domain.workload import PodObservation
from pelops.kube.workload_observation import observe_pod
from pelops.policy.recovery.owners import Owners
from pelops.policy.scaling.decision import keep_busy_workers
from pelops.policy.scaling.victims import (
    HIGHEST,
    LOWEST,
    PodPending,
    count_kept,
    count_unknown,
    find_contested,
    list_holdings,
    rank,
)
from pelops.policy.status.reasons import Reason
from tests.builders import TARGET, later, pod
from tests.scaling_cases import SECOND, decide, owing, wanting


def holding(
    name: str,
    pending: int = 0,
    *,
    at_work: int = 0,
    age_s: float = 100,
    cost: int | None = None,
) -> Any:
    """What a pod holds that was made `age_s` ago."""
    return PodPending(
        pod=name,
        uid=f"uid-{name}",
        pending=pending,
        at_work=at_work,
        created=later(seconds=-age_s),
        cost=cost,
    )


class Ranked(NamedTuple):
    leaving: int
    written: dict[str, int]
    pods: Sequence[PodPending]


def ranked(leaving: int, written: dict[str, int], *pods: PodPending) -> Ranked:
    return Ranked(leaving, written, pods)


RANKED: dict[str, Ranked] = {
    "those that hold nothing leave": ranked(
        2,
        {"b": -1, "d": -1},
        holding("a", 3),
        holding("b"),
        holding("c", 1),
        holding("d"),
        holding("e", 2),
    ),
    "those that are done with what they hold leave before one that is at work": ranked(
        2, {"b": 1}, holding("a", 9), holding("b", 1, at_work=1), holding("c", 5)
    ),
    "of those that hold as much the youngest leave": ranked(
        1, {"b": -1}, holding("a", age_s=30), holding("b", age_s=10), holding("c", age_s=20)
    ),
    "who holds least leaves when all hold something, however young the others are": ranked(
        1, {"b": -1}, holding("a", 3, age_s=1), holding("b", 2, age_s=99), holding("c", 9, age_s=2)
    ),
    "those that stay are written to when they are fewer": ranked(
        3, {"a": 1}, holding("a", 1), holding("b"), holding("c"), holding("d")
    ),
    "those that leave are written to when both are as many: they take their costs along": ranked(
        1, {"b": -1}, holding("a", 1), holding("b")
    ),
    "nothing is written when the costs are right already": ranked(
        1, {}, holding("a", 1), holding("b", cost=-1), holding("c", 1, cost=7)
    ),
    "a pod that an earlier scale-in named and did not take is taken back": ranked(
        1, {"b": -2}, holding("a", 5, cost=-1), holding("b"), holding("c")
    ),
    "a pod that an earlier scale-in kept has no better place than what it holds": ranked(
        1, {"a": -1}, holding("a", cost=1), holding("b", 1), holding("c", 1)
    ),
    "one cost is put right when all others have moved": ranked(
        2, {"c": 101}, holding("a", cost=100), holding("b", cost=100), holding("c", 1, cost=0)
    ),
    "a cost in the template, which all have, is undercut": ranked(
        1, {"c": -1}, holding("a", 1, cost=100), holding("b", 1, cost=100), holding("c", cost=100)
    ),
    "beside the very highest cost": ranked(
        1,
        {"a": -1},
        holding("a", cost=HIGHEST),
        holding("b", 1, cost=HIGHEST),
        holding("c", 1, cost=HIGHEST),
    ),
    "beside the very lowest cost": ranked(
        1, {"b": 0}, holding("a", cost=LOWEST), holding("b", 1, cost=LOWEST)
    ),
    "nobody is named when all leave": ranked(2, {}, holding("a"), holding("b", 1)),
    "nobody is named when none leaves": ranked(0, {}, holding("a"), holding("b", 1)),
    "there is nobody": ranked(1, {}),
}


@pytest.mark.parametrize("case", RANKED.values(), ids=RANKED)
def test_the_right_pods_are_named_with_the_fewest_writes(case: Ranked) -> None:
    assert rank(case.pods, case.leaving) == case.written


def test_those_that_hold_entries_are_kept_when_fifty_writes_cannot_name_everyone() -> None:
    busy = [holding(f"busy-{n}", n + 1) for n in range(20)]
    idle = [holding(f"idle-{n}") for n in range(180)]
    assert rank(busy + idle, 60) == {one.pod: 1 for one in busy}


def test_those_that_hold_most_are_kept_when_too_many_hold_something() -> None:
    holdings = [holding(f"pod-{n}", n) for n in range(200)]
    assert rank(holdings, 60) == {f"pod-{n}": 1 for n in range(150, 200)}


def test_what_a_pod_holds_is_summed_over_the_consumers_that_name_it() -> None:
    pods = [pod(name="web-a", uid="a"), pod(name="web-b", uid="b", deletion_cost=4)]
    pending = {"web-a-17": 2, "web-a-18": 3, "web-b": 0, "laptop": 9}
    first, second = list_holdings(pods, Owners(pods), pending)
    assert (first.pod, first.uid, first.pending, first.cost) == ("web-a", "a", 5, None)
    assert (second.pod, second.uid, second.pending, second.cost) == ("web-b", "b", 0, 4)


def test_entries_of_running_handlers_are_counted_separately() -> None:
    pods = [pod(name="web-a", uid="a"), pod(name="web-b", uid="b")]
    (first, second) = list_holdings(pods, Owners(pods), {"web-a": 5, "web-b": 2}, {"web-b": 2})
    assert (first.pending, first.at_work) == (5, 0)
    assert (second.pending, second.at_work) == (2, 2)


def test_a_consumer_of_two_pods_keeps_both() -> None:
    pods = [pod(name="x-1", uid="1", hostname="same"), pod(name="x-2", uid="2", hostname="same")]
    assert [one.pending for one in list_holdings(pods, Owners(pods), {"same": 1})] == [1, 1]


def test_a_deployment_keeps_as_many_as_hold_something() -> None:
    assert count_kept([holding("a", 2), holding("b"), holding("c", 1)]) == 2
    assert count_kept([]) == 0


@pytest.mark.parametrize(
    ("held", "kept"),
    [
        ({"web-0": 0, "web-1": 0, "web-2": 0}, 0),
        ({"web-0": 1, "web-1": 0, "web-2": 0}, 1),
        ({"web-0": 0, "web-1": 0, "web-2": 1}, 3),
        ({f"web-{n}": int(n == 9) for n in range(12)}, 10),
        ({"web-5": 0, "web-6": 1, "web-7": 0}, 2),  # spec.ordinals.start is 5
        ({}, 0),
    ],
)
def test_a_stateful_set_keeps_all_up_to_the_last_that_holds_something(
    held: dict[str, int], kept: int
) -> None:
    assert count_kept([holding(*one) for one in held.items()], by_ordinal=True) == kept


def test_a_consumer_that_no_pod_matches_may_be_any_pod() -> None:
    pods = [pod(name=f"web-{n}", uid=f"uid-{n}") for n in range(3)]
    owners = Owners(pods, is_stranger=lambda name: name == "stranger-1")
    dead = "web-9:aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
    pending = {"web-0": 1, "worker-1": 2, "worker-2": 0, "stranger-1": 1, dead: 3}
    unknown = count_unknown(owners, pending)
    assert unknown == 1
    holdings = list_holdings(pods, owners, pending)
    assert count_kept(holdings, unknown=unknown) == 2
    assert count_kept(holdings, unknown=9) == 3
    assert count_kept(holdings, unknown=unknown, by_ordinal=True) == 3


READY = pod(name="ready")
UNREADY = pod(name="unready", is_ready=False)
PENDING = pod(name="pending", phase="Pending", is_ready=False)
UNPLACED = pod(name="unplaced", phase="Pending", is_ready=False, node=None)
GOING = pod(name="going", is_deleting=True)
DONE = pod(name="done", phase="Succeeded", is_ready=False)
FLEET = (READY, pod(name="also"), UNREADY, PENDING, UNPLACED, GOING, DONE)


@pytest.mark.parametrize(
    ("leaving", "contested", "of_these"),
    [
        (1, {"pending"}, 0),
        (2, {"unready"}, 0),
        (3, {"ready", "also"}, 0),
        (4, {"ready", "also"}, 1),
        (5, set(), 0),
        (-1, {"unplaced"}, 0),
    ],
)
def test_pods_that_are_not_ready_go_before_any_cost_counts(
    leaving: int, contested: set[str], of_these: int
) -> None:
    found, count = find_contested(FLEET, leaving)
    assert ({one.name for one in found}, count) == (contested, of_these)


def test_costs_count_among_pods_that_are_not_ready_too() -> None:
    fleet: list[PodObservation] = [READY, UNREADY, pod(name="starting", is_ready=False)]
    found, count = find_contested(fleet, 1)
    assert ({one.name for one in found}, count) == ({"unready", "starting"}, 1)


@pytest.mark.parametrize(
    ("annotations", "cost"),
    [
        (None, None),
        ({}, None),
        ({"controller.kubernetes.io/pod-deletion-cost": "-7"}, -7),
        ({"controller.kubernetes.io/pod-deletion-cost": "much"}, None),
    ],
)
def test_a_deletion_cost_is_read_and_is_no_news_of_the_pod(
    annotations: dict[str, str] | None, cost: int | None
) -> None:
    plain = observe_pod({"metadata": {"name": "w-1"}})
    costly = observe_pod({"metadata": {"name": "w-1", "annotations": annotations}})
    assert costly.deletion_cost == cost
    assert costly == plain


# --- Workers that hold entries are not taken away, however few are wanted


LONG_JOBS = owing(held=5)
IDLE_FOR_LONG: dict[str, Any] = {"current": 8, "memory": wanting(0)}


def test_workers_that_hold_entries_are_spared() -> None:
    decision = decide(LONG_JOBS, **IDLE_FOR_LONG)
    assert decision.replicas == 1
    assert decision.needs_busy_count
    spared = keep_busy_workers(decision, 4)
    assert (spared.replicas, spared.reason) == (4, Reason.SCALED)
    assert spared.message.endswith(
        "1 worker wanted by backlog; held at 4, because 4 workers have pending entries"
    )


def test_no_worker_is_removed_while_the_owners_of_pending_entries_are_unknown() -> None:
    spared = keep_busy_workers(decide(LONG_JOBS, **IDLE_FOR_LONG), None)
    assert spared.replicas == 5
    assert spared.message.endswith(
        "held at 5, because it is unknown which workers have pending entries"
    )


def test_sparing_never_adds_a_worker() -> None:
    decision = decide(owing(held=50), current=3, memory=wanting(0))
    assert keep_busy_workers(decision, 40).replicas == 3


def test_the_last_worker_is_spared_when_an_old_report_hides_its_entries() -> None:
    """A scan's report may count as waiting what was handed to a worker since."""
    memory = wanting(0, empty_since=SECOND - 60)
    decision = decide(owing(waiting=2), current=1, memory=memory)
    assert (decision.replicas, decision.needs_busy_count) == (0, True)
    spared = keep_busy_workers(decision, 1)
    assert (spared.replicas, spared.reason) == (1, Reason.SCALED)
    assert spared.message.endswith("held at 1, because 1 worker has pending entries")


def test_a_stateful_set_keeps_all_pods_while_one_is_busy() -> None:
    """A StatefulSet takes its highest pods: the one that holds the entry may be the last."""
    target = replace(TARGET, kind="StatefulSet")
    decision = decide(owing(held=1), current=8, target=target)
    assert keep_busy_workers(decision, 8).replicas == 8
    assert not decide(owing(), current=8, target=target).needs_busy_count


def test_without_pending_entries_no_busy_workers_are_counted() -> None:
    assert not decide(owing(), **IDLE_FOR_LONG).needs_busy_count
