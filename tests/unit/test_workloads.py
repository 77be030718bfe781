"""The worker Deployment: how it is built, and when it counts as applied."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pelops.controller.runtime.cache import Name
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.errors import InvalidSpec
from pelops.kube.client import DISRUPTION_BUDGET, STREAM_CONSUMER_GROUP
from pelops.kube.container_environment import WorkerAccess
from pelops.kube.disruption_budget import build_budget, is_as_built, observe_budget
from pelops.kube.worker_deployment import (
    RESOURCE_LABEL,
    build_deployment,
    is_applied,
    replicas_owner,
    worker_labels,
)
from tests.builders import TEMPLATE, keys, resource
from tests.cached_objects import Manifest, build
from tests.cached_objects import resource as cached_resource

NO_SECRET = WorkerAccess()
TLS = WorkerAccess(url="rediss://r", secret="r", secret_keys=frozenset({"ca.crt"}))


def built(
    template: dict[str, Any] = TEMPLATE, access: WorkerAccess = NO_SECRET, **spec: Any
) -> dict[str, Any]:
    asked = resource(template=template, **spec)
    return build_deployment(asked, keys(asked), access)


def containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return found


def with_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


def test_the_deployment_goes_with_its_resource() -> None:
    metadata = built()["metadata"]
    assert metadata["name"] == "order-processing-workers"
    (reference,) = metadata["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("uid-1", True)


def test_a_built_workload_does_not_set_replicas() -> None:
    assert "replicas" not in built(replicas=7)["spec"]


def test_the_template_of_the_resource_is_not_changed_by_building() -> None:
    before = copy.deepcopy(TEMPLATE)
    built(access=TLS)
    assert before == TEMPLATE


def test_labels_of_the_user_stay_except_the_one_that_selects() -> None:
    deployment = built(
        {
            "metadata": {
                "labels": {
                    "app": "orders",
                    "app.kubernetes.io/managed-by": "me",
                    "pelops.dev/stream-consumer-group": "another",
                }
            },
            **TEMPLATE,
        }
    )
    selector = deployment["spec"]["selector"]["matchLabels"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= selector.items()
    assert labels["app"] == "orders"
    assert labels["app.kubernetes.io/managed-by"] == "me"


def test_user_variables_take_precedence_and_precede_their_references() -> None:
    theirs = [
        {"name": "GREETING", "value": "$(PELOPS_STREAM)"},
        {"name": "POD_NAME", "value": "me"},
        {"name": "PELOPS_MAX_RETRIES", "value": "9"},
    ]
    (worker,) = containers(built(with_container(env=theirs)))
    names = [variable["name"] for variable in worker["env"]]
    assert len(set(names)) == len(names)
    assert names.index("POD_NAME") < names.index("PELOPS_CONSUMER")
    assert names.index("PELOPS_STREAM") < names.index("GREETING")
    assert {"name": "PELOPS_MAX_RETRIES", "value": "9"} in worker["env"]


def test_only_the_container_that_reads_is_given_variables() -> None:
    template = {"spec": {"containers": [{"name": "proxy"}, {"name": "worker"}]}}
    proxy, worker = containers(built(template, container_name="worker"))
    assert "env" not in proxy
    assert worker["env"]


def test_certificates_are_mounted_where_the_variables_say() -> None:
    pod = built(access=TLS)["spec"]["template"]["spec"]
    (volume,), (mount,) = pod["volumes"], pod["containers"][0]["volumeMounts"]
    assert volume["secret"]["secretName"] == "r"
    assert volume["secret"]["optional"] is True
    assert mount == {"name": volume["name"], "mountPath": "/etc/pelops/redis", "readOnly": True}


def test_volumes_of_the_user_stay_and_take_precedence() -> None:
    theirs = [{"name": "cache", "emptyDir": {}}]
    template = {"spec": {**TEMPLATE["spec"], "volumes": theirs}}
    pod = built(template, TLS)["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["cache", "pelops-redis-tls"]
    own = {"spec": {**TEMPLATE["spec"], "volumes": [{"name": "pelops-redis-tls"}]}}
    assert len(built(own, TLS)["spec"]["template"]["spec"]["volumes"]) == 1


WORKER: dict[str, Any] = {"name": "worker"}
# The CRD leaves most of a template unchecked: empty is well, another shape is the author's.
SHAPES: dict[str, tuple[dict[str, Any], str | None]] = {
    "no metadata": ({"metadata": None, **TEMPLATE}, None),
    "no labels": ({"metadata": {"labels": None}, **TEMPLATE}, None),
    "no volumes": ({"spec": {"containers": [WORKER], "volumes": None}}, None),
    "no variables": ({"spec": {"containers": [{**WORKER, "env": None}]}}, None),
    "metadata in words": (
        {"metadata": "orders", **TEMPLATE},
        "in spec.template, metadata must be an object",
    ),
    "labels in a list": ({"metadata": {"labels": ["a"]}, **TEMPLATE}, "labels must be an object"),
    "volumes in an object": (
        {"spec": {"containers": [WORKER], "volumes": {"a": 1}}},
        "volumes must be a list",
    ),
    "variables in words": (
        {"spec": {"containers": [{**WORKER, "env": ["A=b"]}]}},
        "env must be a list of objects",
    ),
    "no containers": ({"spec": {"containers": []}}, "add the container of the worker"),
}


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_a_template_of_any_shape_is_built_or_refused_in_words(
    case: tuple[dict[str, Any], str | None],
) -> None:
    template, problem = case
    if problem is None:
        assert built(template, TLS)
        return
    with pytest.raises(InvalidSpec, match=problem):
        built(template, TLS)


def test_a_container_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InvalidSpec, match=r"'reader', but spec.template has the containers worker"):
        built(container_name="reader")


# wished, live, whether an apply may be left out
APPLIED: dict[str, tuple[Any, Any, bool]] = {
    "what others added is left alone": ({"a": 1}, {"a": 1, "b": 2}, True),
    "another value": ({"a": 1}, {"a": 2}, False),
    "a missing value": ({"a": {"b": 1}}, {"a": {}}, False),
    "what is empty may be missing": ({"a": {}, "b": [], "c": "", "d": None}, {}, True),
    "an item that others put first": ([{"name": "a"}], [{"name": "b"}, {"name": "a"}], True),
    "an item that is gone": ([{"name": "a"}, {"name": "b"}], [{"name": "a"}], False),
    "the same arguments": ({"args": ["a", "b"]}, {"args": ["a", "b"]}, True),
    "arguments in another order": ({"args": ["a", "b"]}, {"args": ["b", "a"]}, False),
    "one argument more": ({"args": ["a"]}, {"args": ["a", "--dry-run"]}, False),
    "an object where a list should be": ({"args": ["a"]}, {"args": {"a": 1}}, False),
    "text where an object should be": ({"a": {"b": 1}}, {"a": "b"}, False),
}


@pytest.mark.parametrize("case", APPLIED.values(), ids=APPLIED)
def test_an_apply_is_left_out_only_when_everything_is_there(case: tuple[Any, Any, bool]) -> None:
    wished, live, expected = case
    assert is_applied(wished, live) is expected


def managed(manager: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"manager": manager, "fieldsV1": {"f:spec": fields}}


OWNERS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "nobody": ([], None),
    "ourselves": ([managed("pelops", {"f:replicas": {}})], None),
    "an autoscaler": ([managed("pelops", {}), managed("hpa", {"f:replicas": {}})], "hpa"),
    "a person who changed something else": ([managed("kubectl-edit", {"f:paused": {}})], None),
}


@pytest.mark.parametrize("case", OWNERS.values(), ids=OWNERS)
def test_the_replicas_belong_to(case: tuple[list[dict[str, Any]], str | None]) -> None:
    entries, manager = case
    assert replicas_owner({"metadata": {"managedFields": entries}}) == manager


# --- PodDisruptionBudgets: whose workers they are about, and when there are too many for one pod


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
