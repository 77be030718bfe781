"""PodDisruptionBudgets: whose workers they are about, and when there are too many for one pod."""

from __future__ import annotations

from typing import Any

import pytest

from pelops.controller.runtime.cache import Name
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import DISRUPTION_BUDGET, STREAM_CONSUMER_GROUP
from pelops.kube.disruption_budget import build_budget, is_as_built, observe_budget
from pelops.kube.worker_deployment import RESOURCE_LABEL, worker_labels
from tests.builders import TEMPLATE, resource
from tests.cached_objects import Manifest, build
from tests.cached_objects import resource as cached_resource

RETURNS: Name = ("shop", "returns")
LABELS = {RESOURCE_LABEL: "returns", "team": "sales"}


def budget(
    name: str, selector: dict[str, Any] | None, *, version: int = 1, **spec: Any
) -> Manifest:
    """A budget with this selector, without an owner."""
    return build(name, version=version, spec={"selector": selector, **spec})


def ours(*, version: int = 1, **spec: Any) -> Manifest:
    """The budget that the resource returns owns."""
    made = budget(
        "returns-workers", {"matchLabels": {RESOURCE_LABEL: "returns"}}, version=version, **spec
    )
    made["metadata"]["ownerReferences"] = [{"uid": "uid-returns", "controller": True}]
    return made


@pytest.fixture
def cache() -> WorkloadCache:
    """returns and sales own workers; orders adopts some."""
    cache = WorkloadCache()
    for one in (cached_resource("returns"), cached_resource("sales")):
        one["spec"]["template"] = TEMPLATE
        cache.put(STREAM_CONSUMER_GROUP, one)
    cache.put(STREAM_CONSUMER_GROUP, cached_resource("orders", "workers"))
    return cache


def other(cache: WorkloadCache) -> str | None:
    return cache.budgets.find_other("shop", "returns", LABELS, besides="uid-returns")


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({}, True),
        ({"matchLabels": {}}, True),
        (None, False),
        ({"matchLabels": {"team": "sales"}}, True),
        ({"matchLabels": {"team": "other"}}, False),
        ({"matchLabels": {RESOURCE_LABEL: "returns"}}, True),
        ({"matchLabels": {RESOURCE_LABEL: "orders"}}, False),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}, True),
    ],
)
def test_a_foreign_budget_is_found_when_it_selects_the_workers(
    cache: WorkloadCache, selector: dict[str, Any] | None, selects: bool
) -> None:
    cache.put(DISRUPTION_BUDGET, budget("theirs", selector))
    assert other(cache) == ("theirs" if selects else None)


def test_the_own_budget_and_budgets_of_other_namespaces_are_not_foreign(
    cache: WorkloadCache,
) -> None:
    cache.put(DISRUPTION_BUDGET, ours())
    elsewhere = budget("theirs", {})
    elsewhere["metadata"]["namespace"] = "bakery"
    cache.put(DISRUPTION_BUDGET, elsewhere)
    assert other(cache) is None


def test_a_budget_that_was_deleted_or_selects_other_pods_is_not_found(cache: WorkloadCache) -> None:
    cache.put(DISRUPTION_BUDGET, budget("theirs", {}))
    cache.put(DISRUPTION_BUDGET, budget("theirs", {"matchLabels": {"team": "x"}}, version=2))
    assert other(cache) is None
    cache.put(DISRUPTION_BUDGET, budget("theirs", {}, version=3))
    cache.remove(DISRUPTION_BUDGET, ("shop", "theirs"), "uid-theirs")
    assert other(cache) is None


def test_the_own_budget_concerns_its_resource_alone(cache: WorkloadCache) -> None:
    assert cache.put(DISRUPTION_BUDGET, ours()) == {RETURNS}
    assert cache.remove(DISRUPTION_BUDGET, ("shop", "returns-workers")) == {RETURNS}


def test_a_budget_for_whatever_pods_concerns_all_that_own_workers_there(
    cache: WorkloadCache,
) -> None:
    owning = {RETURNS, ("shop", "sales")}
    assert cache.put(DISRUPTION_BUDGET, budget("theirs", {"matchLabels": {"a": "b"}})) == owning
    changed = budget("theirs", {"matchLabels": {RESOURCE_LABEL: "returns"}}, version=2)
    assert cache.put(DISRUPTION_BUDGET, changed) == owning
    assert cache.remove(DISRUPTION_BUDGET, ("shop", "theirs")) == {RETURNS}


def test_a_change_of_a_budgets_status_concerns_no_resource(cache: WorkloadCache) -> None:
    cache.put(DISRUPTION_BUDGET, ours())
    counted = {**ours(version=2), "status": {"currentHealthy": 3}}
    assert cache.put(DISRUPTION_BUDGET, counted) == set()


def test_a_budget_selects_the_pods_of_its_resource_which_controls_it() -> None:
    owner = resource(template={**TEMPLATE, "metadata": {"labels": {"team": "sales"}}})
    body = build_budget(owner)
    made = observe_budget(body)
    assert made.selects(worker_labels(owner))
    assert made.controller_uid == owner.metadata.uid
    assert is_as_built(body, made)


def test_a_changed_budget_is_not_as_built() -> None:
    body = build_budget(resource(template=TEMPLATE))
    changed = {**body, "spec": {**body["spec"], "maxUnavailable": 5}}
    assert not is_as_built(body, observe_budget(changed))
