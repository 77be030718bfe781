"""Workers that go: those that hold nothing, and in a drain not all at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.admission import changing
from tests.audit import AuditTrail, writes
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    WORKERS,
    Object,
    a_deployment,
    a_spec,
    await_absence,
    await_object,
    get,
    patch,
)
from tests.e2e.recovering import Group
from tests.operators import SERVICE_ACCOUNT, Resources

BUDGET = "poddisruptionbudget"


@pytest.fixture
def drained(node: Node) -> Iterator[Node]:
    """A node that takes pods again after the test."""
    yield node
    node.plane.kubectl("uncordon", node.name)


def test_of_workers_that_are_scaled_in_by_hand_the_idle_ones_go(
    resources: Resources, node: Node, redis_86: StandaloneServers, stream: str
) -> None:
    group = Group(resources, redis_86, stream)
    pods = group.declare(4)
    busy = {pods[0], pods[2]}
    for pod in busy:
        group.give(pod.consumer, 1)
    patch(resources, "scg", NAME, {"spec": {"replicas": 2}})
    assert set(group.await_pods(2)) == busy


@pytest.mark.full
def test_workers_are_drained_one_at_a_time(
    resources: Resources, drained: Node, redis_86: StandaloneServers, stream: str
) -> None:
    group = Group(resources, redis_86, stream)
    pods = group.declare(2)
    _await_allowed(resources, 1)
    # The pod in place of the first finds no node, so that the second one must stay.
    failed = _drain(drained, resources, timeout_s=8)
    assert failed.returncode != 0
    assert "violate the pod's disruption budget" in failed.stderr
    (left,) = group.pods()
    assert left in pods


@pytest.mark.full
def test_a_single_worker_can_be_drained(
    resources: Resources, drained: Node, redis_86: StandaloneServers, stream: str
) -> None:
    Group(resources, redis_86, stream).declare(1)
    _await_allowed(resources, 1)
    assert _drain(drained, resources).returncode == 0


@pytest.mark.full
def test_a_budget_of_the_user_replaces_the_generated_one(
    resources: Resources, drained: Node, redis_86: StandaloneServers, stream: str
) -> None:
    group = Group(resources, redis_86, stream)
    group.declare(1)
    await_object(resources, BUDGET, WORKERS)
    resources.apply_raw(_a_budget("theirs"))
    await_absence(resources, BUDGET, WORKERS)
    reported = group.await_event("PodDisruptionBudgetConflict")
    assert "theirs selects the same pods" in reported["note"]
    wait_until(lambda: _allowed(resources, "theirs") == 1, timeout_s=WAIT_S, what="theirs to count")
    assert _drain(drained, resources).returncode == 0
    resources.plane.kubectl("delete", "pdb", "theirs", "-n", resources.namespace)
    await_object(resources, BUDGET, WORKERS)


@pytest.mark.parametrize(
    "change", [{"maxUnavailable": 7}, {"maxUnavailable": None, "minAvailable": 1}], ids=str
)
def test_a_changed_budget_is_corrected(
    resources: Resources, redis_86: StandaloneServers, stream: str, change: Object
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    made = await_object(resources, BUDGET, WORKERS)
    patch(resources, BUDGET, WORKERS, {"spec": change})

    def is_right() -> bool:
        found = resources.get(BUDGET, WORKERS)
        return found is not None and found["spec"] == made["spec"]

    wait_until(is_right, timeout_s=WAIT_S, what="the budget to be as it was", every_s=0.2)


@pytest.mark.full
def test_a_budget_changed_by_a_policy_engine_is_not_rewritten_repeatedly(
    resources: Resources, redis_86: StandaloneServers, stream: str
) -> None:
    trail = AuditTrail(resources.plane, SERVICE_ACCOUNT)
    rule = {
        "apiGroups": ["policy"],
        "apiVersions": ["v1"],
        "resources": ["poddisruptionbudgets"],
    }
    larger = {"op": "replace", "path": "/spec/maxUnavailable", "value": "50%"}
    group = Group(resources, redis_86, stream)
    with changing(resources, rule, [larger]):
        group.declare(0)
        assert await_object(resources, BUDGET, WORKERS)["spec"]["maxUnavailable"] == "50%"
        for owed in range(1, 6):
            group.add(1)
            _await_lag(group, owed)
    written = [
        str(one)
        for one in writes(trail.read())
        if (one.namespace, one.resource) == (resources.namespace, "poddisruptionbudgets")
    ]
    # One that makes it, and at most one look more by each of the two replicas.
    assert 1 <= len(written) <= 3, written


def test_the_budget_goes_with_the_template_and_with_the_resource(
    resources: Resources, redis_86: StandaloneServers, stream: str
) -> None:
    resources.apply_raw(a_deployment("own"))
    resources.apply(NAME, a_spec(redis_86.url, stream))
    await_object(resources, BUDGET, WORKERS)
    targeting = a_spec(redis_86.url, stream, template=None, targetRef={"name": "own"})
    resources.apply(NAME, targeting)
    await_absence(resources, BUDGET, WORKERS)
    resources.apply(NAME, a_spec(redis_86.url, stream, targetRef=None))
    await_object(resources, BUDGET, WORKERS)
    resources.delete(NAME, wait=True)
    await_absence(resources, BUDGET, WORKERS)


def test_workers_run_without_a_budget_where_none_may_be_made(
    resources: Resources, redis_86: StandaloneServers, stream: str
) -> None:
    resources.apply_raw(_a_quota())
    wait_until(
        lambda: (get(resources, "resourcequota", "no-budgets").get("status") or {}).get("used"),
        timeout_s=WAIT_S,
        what="the quota to count",
    )
    group = Group(resources, redis_86, stream)
    group.declare(0)
    reported = group.await_event("PodDisruptionBudgetRefused")
    assert (reported["type"], "exceeded quota" in reported["note"]) == ("Warning", True)
    assert resources.get(BUDGET, WORKERS) is None
    resources.await_condition(NAME, reason="Ready")


def _a_budget(name: str) -> Object:
    """A budget that counts for every pod of its namespace."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": 1, "selector": {}},
    }


def _a_quota() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-budgets"},
        "spec": {"hard": {"count/poddisruptionbudgets.policy": "0"}},
    }


def _drain(node: Node, resources: Resources, timeout_s: float = WAIT_S) -> Any:
    """kubectl drain, of the workers of this test alone."""
    ours = f"--pod-selector=pelops.dev/stream-consumer-group={NAME}"
    options = ("-n", resources.namespace, f"--timeout={timeout_s:g}s")
    return node.plane.kubectl("drain", node.name, ours, *options, check=False)


def _await_lag(group: Group, lag: int) -> None:
    group.until(lambda: group.reported("group").get("lag") == lag, f"a lag of {lag}")


def _await_allowed(resources: Resources, count: int) -> None:
    wait_until(
        lambda: _allowed(resources, WORKERS) == count,
        timeout_s=WAIT_S,
        what=f"{count} disruptions to be allowed",
        every_s=0.2,
    )


def _allowed(resources: Resources, name: str) -> int | None:
    found = resources.get(BUDGET, name) or {}
    allowed: int | None = (found.get("status") or {}).get("disruptionsAllowed")
    return allowed
