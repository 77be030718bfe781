"""Workers that hold entries are not taken away, however few are wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pelops.policy.scaling.decision import keep_busy_workers
from pelops.policy.status.reasons import Reason
from tests.builders import TARGET
from tests.scaling_cases import SECOND, decide, owing, wanting

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
